"""Segments as they are shown: added up by what they stand for, the worst first, and few of them as series."""

import random
import re
from collections import Counter
from functools import cache

import pytest

from agents.status import tables
from lab.scrape import ScrapedSamples
from state import kinds
from state.events import Event, Forecast, Outcome
from state.forecasts import Probs, Quantiles
from state.policies import Policies
from state.policy import Policy
from state.scoring.recent import RECENT
from state.scoring.segment_pairs import TOGETHER, SegmentPairScores, observe_segments
from state.scoring.segment_scores import SegmentScores
from state.segments import Dictionary, Segment
from streams.metrics import segments
from streams.metrics.catalogue import CATALOGUE
from streams.metrics.description import describe
from streams.metrics.gauges import Gauges
from streams.metrics.rows import StateRows, segmented
from streams.metrics.segments import DESCRIBED, SERIES, SegmentRows
from tests.exposed import exposed
from tests.streams.metrics.live import Live

POLICY = Policy("identity", segments=("country", "channel"), pairs=(("country", "channel"),))
POLICIES = Policies([("s", POLICY)])


def counted(events: list[tuple[str, float, float]]) -> SegmentRows:
    """Return the rows of one name whose events have these values, forecasts and outcomes."""
    dictionary, scores = Dictionary(("country",)), dict[int, SegmentScores]()
    for value, p, y in events:
        (slot,) = dictionary.groups((value,))
        scores.setdefault(slot, SegmentScores()).observe(p, p, y)
    return dictionary, scores


def drawn(value: str, n: int, off: float, seed: int) -> list[tuple[str, float, float]]:
    rng = random.Random(seed)
    return [(value, p, float(rng.random() < p - off)) for p in (rng.uniform(0.2, 0.7) for _ in range(n))]


def told(n: int, seed: int) -> Live:
    """Return a partition that answered events, and what its effects left with a reader."""
    rng, live = random.Random(seed), Live(Gauges(10, "0", lambda: (), POLICIES), policies=POLICIES)
    events: list[Event] = []
    for i in range(n):
        country, channel = rng.choice(["DE", "FR", f"c{rng.randrange(90)}"]), rng.choice(["web", ""])
        chance = rng.uniform(0.2, 0.6)
        y = float(rng.random() < chance - (0.2 if country == "FR" else 0.0))
        events += [
            Forecast(i, None, f"e{i}", "s", chance, (), 1000 + i, None, (country, channel)),
            Outcome(i, None, f"e{i}", y, 1100 + i),
        ]
    for start in range(0, len(events), 500):
        live.fold(0, events[start : start + 500])
    return live


@cache
def stores() -> tuple[Live, Live]:
    return told(2500, 1), told(900, 2)


def test_segments_of_partitions_add_up_by_what_they_stand_for() -> None:
    first, second = drawn("DE", 50, 0.0, 1), drawn("FR", 70, 0.0, 2)
    apart = segments.total([counted([*first, *second]), counted([*second, *first, *first])])
    together = segments.total([counted(first * 3 + second * 2)])
    assert apart == together
    assert {segment: each.n for segment, each in apart.items()} == {
        Segment("country", "DE"): 150,
        Segment("country", "FR"): 140,
    }


def test_the_worst_segment_is_first_and_small_ones_are_not_it() -> None:
    events = drawn("FR", 3000, 0.1, 1) + drawn("DE", 3000, 0.0, 2)
    events += [(f"c{n}", 0.3, float(n % 2)) for n in range(40)]
    described = segments.describe([counted(events)])
    assert (described["scored"], described["off"]) == (42, 1)
    assert len(described["worst"]) == DESCRIBED
    worst = described["worst"][0]
    assert (worst["segment"], worst["value"], worst["sounds"]) == ("country", "FR", True)
    assert worst["off"]["low"] < 0.1 < worst["off"]["high"]
    assert worst["calibrated"]["mean"] - worst["observed"] == pytest.approx(worst["off"]["mean"])
    assert [each["value"] for each in described["worst"][1:2]] == ["DE"], "of those that are not off, the largest first"
    assert sum(band["n"] for band in worst["calibrated"]["bands"]) == 3000


def test_where_raw_scores_were_right_and_served_ones_were_not_is_said_before_a_segment_is_off() -> None:
    dictionary, scores = Dictionary(("channel",)), dict[int, SegmentScores]()
    for value, served in (("app", 0.03), ("web", 0.05)):
        (slot,) = dictionary.groups((value,))
        for i in range(700):
            scores.setdefault(slot, SegmentScores()).observe(0.048, served, float(i % 18 == 0))
    described = segments.describe([(dictionary, scores)])
    assert described["off"] == 0, "chance may do so once in 1,000 streams"
    said = segments.nearer(described)
    assert said.startswith(" Raw scores were nearer than served ones in channel = app (0.048 raw, 0.03 served, 0.05")
    assert "web" not in said


def lately(windows: list[tuple[str, float]], n: int = 400) -> SegmentRows:
    """Return the rows of one name: in each window of the stream n events of a value whose chance is off by so much."""
    rng, dictionary, scores = random.Random(8), Dictionary(("country",)), dict[int, SegmentScores]()
    for number, (value, off) in enumerate(windows):
        (slot,) = dictionary.groups((value,))
        for _ in range(n):
            scores.setdefault(slot, SegmentScores()).observe(0.4, 0.4, float(rng.random() < 0.4 - off), number)
    return dictionary, scores


def test_what_went_wrong_lately_is_found_and_what_was_mended_is_not() -> None:
    windows = [("DE", 0.0), ("FR", 0.2), ("IT", 0.0)] * 20 + [("DE", 0.2), ("FR", 0.0), ("IT", 0.0)] * 12
    described = segments.describe([lately(windows)])
    assert described["recently_off"] == 1
    worst = described["recent"][0]
    assert (worst["value"], worst["sounds"]) == ("DE", True)
    assert worst["off"]["low"] < 0.2 < worst["off"]["high"]
    assert {each["value"]: each["sounds"] for each in described["worst"]} == {"FR": True, "DE": True, "IT": False}


def vectors_lately(of: str, windows: list[tuple[str, float]]) -> SegmentRows:
    """Return the rows of one name of classes or numbers: in each 5,000 events 400 of a value that is off by so much."""
    rng, dictionary, scores = random.Random(8), Dictionary(("country",)), dict[int, SegmentPairScores]()
    levels = (0.1, 0.5, 0.9)
    for number, (value, off) in enumerate(windows):
        (slot,) = dictionary.groups((value,))
        mine = scores.setdefault(slot, SegmentPairScores())
        for _ in range(400):
            if of == "level":
                law = Quantiles(levels, levels)
                observe_segments([mine], law, law, rng.random() * (1.0 + off), TOGETHER * number)
            else:
                y = rng.choices((0, 1, 2), (0.5, 0.3 - off, 0.2 + off))[0]
                observe_segments([mine], Probs((0.5, 0.3, 0.2)), Probs((0.5, 0.3, 0.2)), float(y), TOGETHER * number)
    return dictionary, scores


@pytest.mark.parametrize(("name", "which", "served"), [("level", 0.9, 0.9), ("class", 2, 0.2)])
def test_classes_and_numbers_that_went_wrong_lately_are_found(name: str, which: float, served: float) -> None:
    windows = [("DE", 0.0), ("FR", 0.15), ("IT", 0.0)] * 20 + [("DE", 0.15), ("FR", 0.0), ("IT", 0.0)] * 12
    described = segments.describe([vectors_lately(name, windows)])
    assert described["recently_off"] == 1
    worst = described["recent"][0]
    assert (worst["value"], worst["sounds"], worst["served"]) == ("DE", True, pytest.approx(served))
    assert worst[name] == which
    assert worst["off"]["low"] < served - worst["observed"] < worst["off"]["high"]
    shown, *_ = tables.segments(described)
    assert f"DE, {name} {which:g}" in str(shown.rows[0][1])


def test_a_segment_that_ended_is_not_off_lately() -> None:
    wrong = [("DE", 0.2)] * 3
    assert segments.describe([lately([*wrong, *[("FR", 0.0)] * RECENT])])["recently_off"] == 1
    assert segments.describe([lately([*wrong, *[("FR", 0.0)] * (RECENT + 1)])])["recently_off"] == 0


def test_a_segment_is_silent_if_its_forecasts_wait_and_chance_does_not_explain_that_no_outcome_comes() -> None:
    def silent(ended: int, of_it: int = 40, waiting: int = 60) -> list[tuple[str, int, int]]:
        """Let a value stop after five windows, while another goes on; windows have 400 outcomes each of both."""
        dictionary, scores = lately([("DE", 0.0), ("FR", 0.0)], 1)
        de, fr = (scores[dictionary.groups((value,))[0]] for value in ("DE", "FR"))
        for number in range(2, 7 + ended):
            for each, n in ((de, of_it if number < 7 else 0), (fr, 400)):
                assert isinstance(each, SegmentScores)
                for _ in range(n):
                    each.observe(0.4, 0.4, 0.0, number)
                each.issued += n
                each.known += n
        de.issued += waiting
        return [
            (each["value"], each["missed"], each["waiting"])
            for each in segments.describe([(dictionary, scores)])["silent"]
        ]

    assert silent(0) == silent(1) == silent(2) == []
    assert silent(3) == [("DE", 57, 60)], "of two complete windows; it had 201 outcomes in seven"
    assert silent(3, of_it=30) == [], "so few may not come by chance"
    assert silent(3, waiting=40) == [], "its forecasts have stopped, too"


def test_partitions_that_see_too_little_each_find_it_together() -> None:
    apart = [lately([("DE", 0.12)], 120), lately([("FR", 0.0), ("DE", 0.12)], 120)] * 3
    assert [segments.describe([each])["recently_off"] for each in apart] == [0] * 6
    (found,) = segments.describe(apart)["recent"]
    assert (found["value"], found["events"], found["sounds"]) == ("DE", 720, True)


def test_a_rare_segment_is_off_by_what_it_has() -> None:
    rng = random.Random(4)
    events = [("rare", 0.02, float(rng.random() < 0.005)) for _ in range(5000)]
    described = segments.describe([counted(events)])
    assert described["worst"][0]["calibrated"]["ece"] < 0.03
    assert described["off"] == 1


def test_gauges_are_those_of_the_worst_segments_and_bounded() -> None:
    read = ScrapedSamples(exposed(stores()[0].gauges))
    assert read.value("segments_scored", {"stream": "s"}) > 5
    assert read.value("segments_off", {"stream": "s"}) >= 1
    place = {"stream": "s", "segment": "country", "value": "FR"}
    assert read.value("segment_bias", place) == pytest.approx(0.2, abs=0.05)
    assert read.value("segment_error", place) >= read.value("segment_bias", place) - 1e-9
    series = Counter(re.findall(r"^trueup_(segment\w*)\{", exposed(stores()[0].gauges), re.MULTILINE))
    assert read.value("segment_recent_bias", place) == pytest.approx(0.2, abs=0.05)
    assert read.value("segment_alarm_recent_log10", place) >= 3.0
    few = {name: series.pop(name) for name in ("segment_alarm_recent_log10", "segment_recent_bias")}
    assert 1 <= few["segment_recent_bias"] == few["segment_alarm_recent_log10"] <= SERIES
    whole = ("segments_scored", "segments_off", "segments_off_recently", "segments_silent")
    assert series == dict.fromkeys(whole, 1) | dict.fromkeys(
        ("segment_events", "segment_error", "segment_bias"), SERIES
    )
    series |= few
    assert all(n <= CATALOGUE[name].series for name, n in series.items())


def test_what_effects_left_is_what_the_store_holds() -> None:
    for store in stores():
        stored = store.stored(0, "s")
        left = store.gauges.held()[0]
        assert stored.rows == left.rows
        assert describe(StateRows({0: stored.rows}), "s", POLICY)["segments"]["scored"] > 1


def test_scores_whose_slot_has_no_name_yet_are_left_out() -> None:
    stored = dict(stores()[0].stored(0, "s").rows["s"])
    early = Dictionary(POLICY.segments, POLICY.pairs)
    early.groups(("DE", "web"))
    stored[kinds.NAMES.key("s", POLICY.layout)] = kinds.NAMES.encode(early)
    found = segmented(StateRows({0: {"s": stored}}), "s", POLICY)
    shown = segments.describe(found.values())["worst"]
    assert {each["value"] for each in shown} <= {early.segment(slot).value for slot in early.slots}
    without = {key: row for key, row in stored.items() if key[:1] == kinds.SEGMENT.letter}
    assert not segmented(StateRows({0: {"s": without}}), "s", POLICY)
