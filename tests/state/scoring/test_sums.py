"""Laws of scores that are sums: they add up, what is taken out leaves no trace, bytes go on bit for bit."""

import random
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.forecasts import Classwise, Quantiles
from state.scoring.class_scores import ClassScores
from state.scoring.comparison import Comparison
from state.scoring.pair_scores import PairScores
from state.scoring.quantile_scores import QuantileScores
from state.scoring.scores import Scores
from state.scoring.tallies import LevelTally, TopTally

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


@pytest.mark.parametrize("name", ["scores", "comparison", "classes", "numbers"])
@given(st.data())
def test_bytes_that_are_cut_or_too_long_are_refused(name: str, data: st.DataObject) -> None:
    family = FAMILIES[name]
    payload = family.of(data.draw(st.lists(family.events, max_size=3))).encode()
    cut = data.draw(st.integers(0, len(payload) - 1))
    for damaged in (payload[:cut], payload + b"\0"):
        with pytest.raises((ValueError, struct.error)):
            family.decode(damaged)
