"""Laws of scores that are sums: they add up, what is taken out leaves no trace, bytes go on bit for bit."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.forecasts import Classwise, Quantiles
from state.scoring.ages import DAY_MS, Ages
from state.scoring.band_counts import BandCounts
from state.scoring.class_scores import ClassScores
from state.scoring.comparison import Comparison
from state.scoring.course import Course
from state.scoring.distribution import Distribution
from state.scoring.pair_scores import PairScores
from state.scoring.quantile_scores import QuantileScores
from state.scoring.scores import Scores
from state.scoring.segment_scores import SegmentScores
from state.scoring.tallies import LevelTally, TopTally
from state.scoring.weighted import Weighted

#: Sums of numbers at these levels are exact.
LEVELS = (0.25, 0.5, 0.75, 0.875)
UNIT = st.floats(0, 1)
LABEL = st.sampled_from([0.0, 1.0])
PROBS = st.lists(UNIT, min_size=3, max_size=3).map(Classwise)
VALUES = st.lists(st.integers(-3, 3).map(float), min_size=4, max_size=4).map(lambda found: tuple(sorted(found)))
LAW = VALUES.map(lambda values: Quantiles(LEVELS, values))
OUTCOME = st.integers(-4, 4).map(float)


class Family(NamedTuple):
    """Scores of one kind: what their events are, those of none, how they take an event, and how they are read."""

    events: st.SearchStrategy[tuple[Any, ...]]
    zero: Callable[[], Any]
    decode: Callable[[bytes], Any]

    def of(self, events: list[tuple[Any, ...]]) -> Any:
        scores = self.zero()
        for event in events:
            scores.observe(*event)
        return scores


DRAWN = st.tuples(UNIT, UNIT, LABEL | UNIT, st.none() | UNIT)
CLASSES = st.tuples(PROBS, PROBS, st.integers(0, 2))
FAMILIES = {
    "scores": Family(DRAWN, Scores, Scores.decode),
    "comparison": Family(st.tuples(UNIT, UNIT, LABEL, st.none() | UNIT), Comparison, Comparison.decode),
    "classes": Family(CLASSES, lambda: ClassScores(3), ClassScores.decode),
    "numbers": Family(
        st.tuples(LAW, LAW, OUTCOME, st.binary(max_size=3)), lambda: QuantileScores(LEVELS), QuantileScores.decode
    ),
    "pairs of classes": Family(CLASSES, PairScores, PairScores.decode),
    "pairs of numbers": Family(st.tuples(LAW, LAW, OUTCOME), PairScores, PairScores.decode),
    "likeliest": Family(CLASSES, TopTally, lambda payload: TopTally().decode(payload, 0)[0]),
    "levels": Family(
        st.tuples(VALUES, VALUES, OUTCOME),
        lambda: LevelTally(LEVELS),
        lambda payload: LevelTally(LEVELS).decode(payload, 0)[0],
    ),
}
EVERY = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@EVERY
@given(st.data())
def test_parts_add_up_to_the_whole_and_zero_changes_nothing(family: Family, data: st.DataObject) -> None:
    first, rest = (data.draw(st.lists(family.events, max_size=12)) for _ in range(2))
    whole = family.of([*first, *rest])
    assert family.of(first) + family.of(rest) == whole == whole + family.zero() == family.zero() + whole
    assert whole - family.of(first) == family.of(rest)
    assert whole - whole == family.zero()
    assert whole.n == len(first) + len(rest)


@EVERY
@given(st.data(), st.randoms(use_true_random=False))
def test_order_and_events_taken_out_leave_no_trace(family: Family, data: st.DataObject, rng: random.Random) -> None:
    kept, out = (data.draw(st.lists(family.events, max_size=12)) for _ in range(2))
    shuffled = [*out, *kept]
    rng.shuffle(shuffled)
    scores = family.of(shuffled)
    for event in out:
        scores.observe(*event, sign=-1)
    assert scores == family.of(kept)
    assert scores.encode() == family.of(kept).encode()


@EVERY
@given(st.data())
def test_decoded_scores_go_on_bit_for_bit(family: Family, data: st.DataObject) -> None:
    events = data.draw(st.lists(family.events, min_size=1, max_size=12))
    scores = family.of(events[1:])
    again = family.decode(scores.encode())
    assert again == scores
    for each in (scores, again):
        each.observe(*events[0])
    assert again == scores
    assert again.encode() == scores.encode()


class Counted(NamedTuple):
    """What a partition counts in the order of time: what its events are, those of none, how an event is taken."""

    events: st.SearchStrategy[Any]
    zero: Callable[[], Any]
    take: Callable[[Any, Any, int], object]
    #: What partitions know together as one that had all events would.
    known: Callable[[Any], Any] = lambda counted: counted

    def of(self, events: list[tuple[int, Any]]) -> Any:
        counted = self.zero()
        for now, event in events:
            self.take(counted, event, now)
        return counted


def _age(ages: Ages, event: tuple[int, int] | None, _: int) -> None:
    if event is None:
        ages.expire()
    else:
        ages.observe(*event)


def _band(counts: BandCounts, event: tuple[int, int, int], now: int) -> None:
    before, served, y = event
    counts.issue(before, served, now // DAY_MS)
    counts.resolve(before, served, 1, y, now // DAY_MS)


def _course(course: Course, event: tuple[float, float, float] | None, now: int) -> None:
    now += DAY_MS  # stream time 0 is no time: it is not known yet
    if event is None:
        course.issue(now)
    else:
        course.resolve(*event, now)


QUARTERS = st.integers(0, 4).map(lambda n: n / 4)  # sums of these are exact
BINARY = st.tuples(QUARTERS, QUARTERS, LABEL)
#: Between events, ms.
GAPS = st.sampled_from([0, 0, DAY_MS // 48, DAY_MS, 8 * DAY_MS])
COUNTED = {
    "ages": Counted(st.tuples(st.integers(0, 2**45), st.integers(0, 40)) | st.none(), Ages, _age),
    "bands": Counted(st.tuples(*[st.integers(0, 2)] * 2, st.integers(0, 1)), lambda: BandCounts(3), _band),
    "course": Counted(BINARY | st.none(), Course, _course),
    "distribution": Counted(
        UNIT, Distribution, lambda found, raw, now: found.observe(raw, now), lambda found: found.recent
    ),
    "weights": Counted(
        st.tuples(QUARTERS, QUARTERS, LABEL, st.integers(0, 9).map(float)),
        Weighted,
        lambda found, event, _: found.observe(*event),
    ),
    "segments": Counted(BINARY, SegmentScores, lambda scores, event, _: scores.observe(*event)),
}


@pytest.mark.parametrize("counted", COUNTED.values(), ids=COUNTED)
@given(st.data())
def test_what_partitions_count_adds_up_and_bytes_go_on_bit_for_bit(counted: Counted, data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.tuples(GAPS, counted.events), max_size=60))
    events = [(sum(gap for gap, _ in gaps[: n + 1]), event) for n, (_, event) in enumerate(gaps)]
    whole, half = counted.of(events), len(events) // 2
    for mine, others in ((events[::2], events[1::2]), (events[:half], events[half:])):  # one may be quiet for long
        one, other = counted.of(mine), counted.of(others)
        assert counted.known(one + other) == counted.known(whole)
        assert one + other == other + one
        assert one + counted.zero() == one
    again = type(whole).decode(whole.encode())
    assert again.encode() == whole.encode()
    for now, event in events[:20]:
        for each in (whole, again):
            counted.take(each, event, events[-1][0] + now)
    assert again.encode() == whole.encode()
