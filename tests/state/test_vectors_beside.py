"""Segments and challengers of classes and numbers in the engine, as streams of probabilities have them."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from state import calibrators, kinds
from state.calibrators.multiclass import Multiclass
from state.events import Event, Forecast, Outcome
from state.forecasts import Normal, Probs
from state.policies import Policies
from state.policy import Challenger, Policy
from state.scoring import segment_pairs
from state.scoring.pair_scores import PairScores
from state.scoring.recent import Recent
from state.scoring.segment_pairs import SegmentPairScores
from tests.state.histories import Table, Worker

pytestmark = pytest.mark.usefixtures("no_warm_up")

LEVELS = (0.1, 0.5, 0.9)
PLAIN = {
    "numbers": Policy("quantile", {"levels": LEVELS}),
    "classes": Policy("multiclass", {"classes": 3, "each": "platt"}),
}
OTHERS = {
    "numbers": Challenger("quantile", {"levels": LEVELS, "rate": 0.3, "link": "identity"}),
    "classes": Challenger("multiclass", {"classes": 3, "each": "histogram"}),
}
BOTH = ["numbers", "classes"]


def policies(**streams: Policy) -> Policies:
    return Policies(list(streams.items()))


def beside(stream: str) -> Policy:
    return replace(PLAIN[stream], shadow=(OTHERS[stream],))


def history(stream: str, n: int, seed: int) -> list[Event]:
    """Return events with late, early, revised and missing outcomes, of two countries; one of them is off."""
    rng = random.Random(seed)
    events: list[Event] = []
    at = [0, 0]
    for t in range(n):
        country = rng.choice(["DE", "FR"])
        raw = Normal(0.0, 1.0) if stream == "numbers" else Probs((0.5, 0.3, 0.2))
        events.append(Forecast(at[0], None, f"e{t}", stream, raw, (), 1000 + t, None, (country,)))
        at[0] += 1
        for other in {max(0, t - rng.randrange(9)), t + 1 if rng.random() < 0.1 else t}:
            y = rng.gauss(0.0, 1.0) if stream == "numbers" else float(rng.choices((0, 1, 2), (5, 3, 2))[0])
            events.append(Outcome(at[1], None, f"e{other}", y, 1000 + t, b"value"))
            at[1] += 1
    return events


def played(events: list[Event], of: Policies, size: int = 7) -> Worker:
    worker = Worker(of)
    for start in range(0, len(events), size):
        worker.fold(*events[start : start + size])
    return worker


@pytest.mark.parametrize("stream", BOTH)
def test_a_challengers_row_is_the_one_it_would_have_as_the_champion(stream: str) -> None:
    events = history(stream, 300, 2)
    (challenger,) = beside(stream).challengers
    key = kinds.CALIBRATOR.key(stream, challenger.config)
    shadowed = played(events, policies(**{stream: beside(stream)})).table
    assert shadowed[key] == played(events, policies(**{stream: challenger})).table[key]


@pytest.mark.parametrize("stream", BOTH)
def test_a_comparison_is_of_the_labels_in_force(stream: str) -> None:
    events = history(stream, 200, 4)
    worker = played(events, policies(**{stream: beside(stream)}))
    (challenger,) = beside(stream).challengers
    found = kinds.COMPARISON.decode(worker.table[kinds.COMPARISON.key(stream, PLAIN[stream].config, challenger.config)])
    expected = PairScores()
    for entry in worker.table.entries():
        if entry.stream == stream and entry.resolved_ts:
            (shadow,) = entry.shadows
            expected.observe(entry.p, shadow.p, entry.y)
    assert isinstance(found, PairScores)
    assert found.tally == expected.tally
    assert found.sums == pytest.approx(expected.sums)
    assert any(entry.revisions for entry in worker.table.entries()), "some labels were revised"


@pytest.mark.parametrize("stream", BOTH)
def test_segments_are_of_their_events_alone(stream: str) -> None:
    events = history(stream, 300, 5)
    policy = replace(PLAIN[stream], segments=("country",))
    worker = played(events, policies(**{stream: policy}))
    dictionary = kinds.NAMES.decode(worker.table[kinds.NAMES.key(stream, policy.layout)])
    countries = {event.event_id: event.segments for event in events if isinstance(event, Forecast)}
    for slot in dictionary.groups(("DE",)) + dictionary.groups(("FR",)):
        value = dictionary.segment(slot).value
        expected, issued = PairScores(), 0
        for key, row in worker.table.of(kinds.LEDGER.letter).items():
            entry = worker.table.entry(key[1:].decode())
            assert entry is not None, row
            if countries.get(key[1:].decode()) == (value,) and entry.stream:
                issued += 1
                if entry.resolved_ts:
                    expected.observe(entry.raw, entry.p, entry.y)
        found = kinds.SEGMENT.decode(worker.table[kinds.SEGMENT.key(stream, policy.scored, slot)])
        assert isinstance(found, SegmentPairScores)
        assert (found.issued, found.known, found.n) == (issued, expected.n, expected.n)
        assert found.tally == expected.tally
        assert found.sums == pytest.approx(expected.sums)


def recent_of(table: Table, policy: Policy) -> dict[int, Recent]:
    """Return the recent windows of a stream's segments by slot."""
    prefix = kinds.SEGMENT.letter + policy.scored
    found = {kinds.SEGMENT.of(key)[2]: kinds.SEGMENT.decode(row) for key, row in table.of(prefix).items()}
    return {slot: each.recent for slot, each in found.items() if each.recent is not None}


@pytest.mark.parametrize("stream", BOTH)
def test_recent_windows_are_of_the_labels_in_force(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_pairs, "TOGETHER", 1)  # windows of 500 events of the stream, to have some
    policy = replace(PLAIN[stream], segments=("country",))
    worker = played(history(stream, 1800, 5), policies(**{stream: policy}))
    entries = [each for each in worker.table.entries() if each.groups and each.resolved_ts]
    assert any(each.revisions for each in entries), "some labels were revised"
    expected: dict[int, SegmentPairScores] = {}
    for entry in sorted(entries, key=lambda each: each.window):
        found = [expected.setdefault(slot, SegmentPairScores()) for slot in entry.groups]
        segment_pairs.observe_segments(found, cast("Any", entry.raw), cast("Any", entry.p), entry.y, entry.window)
    recent = recent_of(worker.table, policy)
    assert {len(each.stretches()) for each in recent.values()} >= {3}
    assert {slot: each.encode() for slot, each in recent.items()} == {
        slot: each.recent.encode() for slot, each in expected.items() if each.recent is not None
    }


@pytest.mark.parametrize("stream", BOTH)
def test_another_configuration_has_windows_of_its_own(stream: str) -> None:
    (challenger,) = beside(stream).challengers
    one, other = (replace(each, segments=("country",)) for each in (PLAIN[stream], challenger))
    raw = Normal(0.0, 1.0) if stream == "numbers" else Probs((0.5, 0.3, 0.2))
    worker = Worker(policies(**{stream: one}))
    worker.fold(*(Forecast(n, None, f"e{n}", stream, raw, (), n, None, ("DE",)) for n in range(20)))
    worker.fold(*(Outcome(n, None, f"e{n}", 1.0, 30) for n in range(10)))
    worker = Worker(policies(**{stream: other}), worker.table)
    worker.fold(*(Forecast(n, None, f"e{n}", stream, raw, (), n, None, ("DE",)) for n in range(20, 25)))
    worker.fold(*(Outcome(n, None, f"e{n}", 1.0, 31) for n in range(10, 23)))
    worker.fold(*(Outcome(30 + n, None, f"e{n}", 0.0, 32) for n in range(5)))
    counted = [recent_of(worker.table, policy)[2].stretches()[0] for policy in (one, other)]
    assert [each.n for each in counted] == [20, 3]
    scores = [
        kinds.SEGMENT.decode(worker.table[kinds.SEGMENT.key(stream, policy.scored, 2)]) for policy in (one, other)
    ]
    assert [(each.issued, each.n) for each in scores] == [(20, 20), (5, 3)]


@pytest.mark.parametrize("stream", BOTH)
def test_batches_leave_no_trace_beside(stream: str) -> None:
    policy = replace(beside(stream), segments=("country",))
    events, of = history(stream, 150, 7), policies(**{stream: policy})
    tables: list[Table] = [played(events, of, size).table for size in (1, 8, 400)]
    assert tables[0] == tables[1] == tables[2]


def test_other_levels_or_classes_are_other_segments() -> None:
    one, other = (Policy("quantile", {"levels": each}, segments=("a",)) for each in (LEVELS, (0.1, 0.9)))
    classes = Policy("multiclass", {"classes": 3}, segments=("a",))
    plain = Policy("identity", segments=("a",))
    assert len({each.layout for each in (one, other, classes, plain)}) == 4
    assert replace(one, options={"levels": LEVELS, "rate": 0.1}).layout == one.layout
    table = Worker(policies(s=one)).table
    for n, policy in enumerate((one, other)):
        worker = Worker(policies(s=policy), table)
        worker.fold(Forecast(n, None, f"e{n}", "s", Normal(0.0, 1.0), (), 0, None, ("x",)))
    Worker(policies(s=other), table).fold(*(Outcome(n, None, f"e{n}", 0.5, 1) for n in range(2)))
    for policy in (one, other):
        scores = kinds.SEGMENT.decode(table[kinds.SEGMENT.key("s", policy.scored, 2)])
        assert (scores.n, scores.issued) == (1, 1)


@pytest.mark.parametrize(
    ("policy", "shadow", "said"),
    [
        (PLAIN["numbers"], Challenger("quantile", {}), r"need levels = \[0.1, 0.5, 0.9\]"),
        (PLAIN["classes"], Challenger("multiclass", {"classes": 4}), "need classes = 3"),
        (PLAIN["numbers"], OTHERS["classes"], "takes another forecast"),
        (Policy("platt"), OTHERS["numbers"], "takes another forecast"),
        (PLAIN["classes"], Challenger("multiclass", {"classes": 3, "each": "platt"}), "already serves"),
    ],
)
def test_a_challenger_that_cannot_be_compared_is_refused(policy: Policy, shadow: Challenger, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(policy, shadow=(shadow,))


def test_challengers_whose_tickets_outgrow_a_row_are_refused() -> None:
    wide = tuple((i + 1) / 257.0 for i in range(256))
    shadow = tuple(Challenger("quantile", {"levels": wide, "rate": 0.01 * (i + 1)}) for i in range(8))
    with pytest.raises(ValueError, match="there is room for 65000"):
        Policy("quantile", {"levels": wide}, shadow=shadow)
    assert len(Policy("quantile", {"levels": wide}, shadow=shadow[:3]).challengers) == 3


def _class(rng: random.Random, country: str) -> float:
    return float(rng.choices((0, 1, 2), (8, 1, 1) if country == "DE" else (2, 5, 3))[0])


def _number(rng: random.Random, country: str) -> float:
    return rng.gauss(2.0 if country == "DE" else -2.0, 1.0)


@pytest.mark.parametrize(
    ("plain", "raw", "happens", "most"),
    [
        (Policy("multiclass", {"classes": 3, "each": "prudent"}), Probs((0.5, 0.3, 0.2)), _class, 0.9),
        (PLAIN["numbers"], Normal(0.0, 1.0), _number, 0.7),
    ],
    ids=["classes", "numbers"],
)
def test_classes_and_numbers_are_corrected_by_segment(
    plain: Policy, raw: Any, happens: Callable[[random.Random, str], float], most: float
) -> None:
    apart = replace(plain, segments=("country",))
    assert plain.config != apart.config, "names of segments are part of what such a calibrator is"
    losses = []
    for policy in (plain, apart):
        rng, worker = random.Random(8), Worker(policies(s=policy))
        for t in range(1500):
            country = ("DE", "FR")[t % 2]
            worker.fold(Forecast(t, None, f"e{t}", "s", raw, (), t, None, (country,) if policy is apart else ()))
            worker.fold(Outcome(t, None, f"e{t}", happens(rng, country), t))
        found: Any = kinds.VECTORS.decode(worker.table[kinds.VECTORS.key("s", policy.config)]).total
        of_classes = plain.calibrator == "multiclass"
        losses.append(found.log_loss("calibrated") if of_classes else sum(found.pinball("calibrated")))
    assert losses[1] < most * losses[0]


def test_classes_whose_calibrator_uses_no_segments_are_the_same_with_them() -> None:
    assert replace(PLAIN["classes"], segments=("country",)).config == PLAIN["classes"].config


def test_a_ticket_of_classes_follows_its_event_to_other_slots() -> None:
    calibrator = calibrators.make("multiclass", classes=3, each="prudent")
    multiclass = cast("Multiclass", calibrator)
    for t in range(300):
        answer = multiclass.predict(Probs((0.5, 0.3, 0.2)), (), b"%d" % t, (2,))
        multiclass.update(answer.ticket, float(t % 2))
    ticket = multiclass.predict(Probs((0.5, 0.3, 0.2)), (), b"e", (2, 66)).ticket
    assert multiclass.regrouped(ticket, {2: 3, 66: 70}) != ticket
    assert multiclass.regrouped(multiclass.regrouped(ticket, {2: 3, 66: 70}), {3: 2, 70: 66}) == ticket
    assert len(multiclass.encode()) <= multiclass.largest()
    assert multiclass.largest(64) < multiclass.largest()
