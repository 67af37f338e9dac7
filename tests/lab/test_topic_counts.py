"""The demo's account of every record: right when all is well, and loud when anything is missing."""

from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from lab.scrape import Fates, ScrapedSamples
from lab.topic_counts import TopicCounts, disagreements, problems
from tests.lab import exported

FLIGHTS = {"a": (0.2, 1.0), "b": (0.4, 0.0), "c": (0.6, float("nan"))}
FATES = Fates(
    issued=3,
    forecast_duplicate=0,
    forecast_dead=0,
    resolved=2,
    early=0,
    outcome_duplicate=0,
    outcome_revised=0,
    outcome_stale=0,
    outcome_dead=0,
    pending=0,
    expired_forecast=1,
    expired_outcome=0,
)
SENT = {"forecasts": 3, "outcomes": 2}


def answer(event_id: str, raw: float, version: int = 1) -> bytes:
    """Return a record of ``calibrated`` that serves .5."""
    return orjson.dumps({"event_id": event_id, "raw": raw, "p": 0.5, "version": version, "calibrator": "prudent"})


def held() -> TopicCounts:
    """Return what the topics hold when all is well."""
    topics = TopicCounts()
    for event_id, (raw, y) in FLIGHTS.items():
        topics.calibrated_record(answer(event_id, raw))
        if y in {0, 1}:
            record = {"event_id": event_id, "raw": raw, "p": 0.5, "y": y, "version": 1, "revision": 0}
            topics.resolved_record(orjson.dumps(record))
    return topics


def lose_an_answer(topics: TopicCounts) -> None:
    del topics.answers["c"]


def answer_twice_differently(topics: TopicCounts) -> None:
    topics.calibrated_record(orjson.dumps({"event_id": "a", "p": 0.6}))


def lose_a_resolved_event(topics: TopicCounts) -> None:
    del topics.resolved["a"]


def join_with_anothers_outcome(topics: TopicCounts) -> None:
    topics.resolved["a"] = (0.2, 0.5, 0.0)


def hold_a_dead_letter_nobody_counted(topics: TopicCounts) -> None:
    topics.dead_letter(orjson.dumps({"topic": "forecasts", "partition": 0, "offset": 1}))


def test_nothing_is_wrong_when_all_adds_up() -> None:
    assert problems(FATES, SENT, held(), FLIGHTS) == []


def test_answers_repeated_byte_for_byte_are_in_order() -> None:
    topics = held()
    topics.calibrated_record(answer("a", 0.2))
    assert topics.repeated == 1
    assert problems(FATES, SENT, topics, FLIGHTS) == []


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (lose_an_answer, "events played and not answered: 1"),
        (answer_twice_differently, "events with answers that disagree: 1"),
        (lose_a_resolved_event, "resolved: 2, but events in the topic of resolved events: 1"),
        (join_with_anothers_outcome, "events joined with another's outcome: 1"),
        (hold_a_dead_letter_nobody_counted, "dead: 0, but dead letters: 1"),
    ],
)
def test_what_the_topics_lack_is_named(harm: Callable[[TopicCounts], None], complaint: str) -> None:
    topics = held()
    harm(topics)
    assert any(complaint in problem for problem in problems(FATES, SENT, topics, FLIGHTS))


@pytest.mark.parametrize("fate", Fates._fields)
def test_a_fate_counted_once_too_often_is_noticed(fate: str) -> None:
    fates = FATES._replace(**{fate: getattr(FATES, fate) + 1})
    assert problems(fates, SENT, held(), FLIGHTS)


def test_the_newest_label_of_an_event_counts_in_whatever_order_its_records_come() -> None:
    records = [
        {"event_id": "a", "raw": 0.2, "p": 0.5, "y": y, "version": 0, "revision": n} for n, y in enumerate((0, 1, 0))
    ]
    for order in ([0, 1, 2], [2, 0, 1], [0, 1, 2, 1, 2]):
        topics = TopicCounts()
        for n in order:
            topics.resolved_record(orjson.dumps(records[n]))
        assert topics.resolved == {"a": (0.2, 0.5, 0.0)}


def test_scores_that_differ_from_the_records_are_named() -> None:
    topics = held()
    raw, p, y = topics.scored()
    samples = {
        **exported.scores("flights", "raw", raw, y),
        **exported.scores("flights", "calibrated", p, y),
        'warm_up_events{stream="flights"}': 0,
    }
    lines = [f"trueup_{name} {value!r}" for name, value in samples.items()]
    reading = ScrapedSamples("\n".join(lines) + "\n")
    assert disagreements(reading, topics, "flights", matures=True) == []
    assert any("warm_up_events: 0 by /metrics, 2 by" in each for each in disagreements(reading, topics, "flights"))
    other = replace(topics, resolved={**topics.resolved, "a": (0.2, 0.51, 1.0)})
    assert disagreements(reading, other, "flights", matures=True)


def test_fates_follow_early_outcomes_to_their_end() -> None:
    # Five outcomes came before their forecast: three were joined, one expired, one still waits.
    counters = {
        ("forecasts", "issued"): 10, ("forecasts", "duplicate"): 1, ("forecasts", "dead"): 2,
        ("outcomes", "resolved"): 4, ("outcomes", "early"): 5, ("outcomes", "duplicate"): 1,
        ("outcomes", "revised"): 1, ("outcomes", "stale"): 1, ("outcomes", "waiting"): 0, ("outcomes", "dead"): 1,
    }  # fmt: skip
    lines = [f'trueup_records_total{{app="a",topic="{t}",fate="{f}"}} {n}' for (t, f), n in counters.items()]
    lines += [
        'trueup_expired_total{kind="outcome"} 1',
        'trueup_expired_total{kind="forecast"} 2',
        'trueup_pending_events{app="a"} 1',
        "trueup_early_outcomes 1",
    ]
    fates = ScrapedSamples("\n".join(lines) + "\n").fates()
    assert (fates.resolved, fates.early, fates.expired_outcome) == (7, 1, 1)
    assert (fates.forecasts, fates.outcomes) == (13, 13)
    assert fates.issued == fates.resolved + fates.pending + fates.expired_forecast
