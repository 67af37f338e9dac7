"""Weighted sums: what was expected and what came true, by weight."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scoring.weighted import LARGEST, Weighted
from state.scoring.windows import KINDS
from tests.state.histories import STEADY

EVENTS = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.0, 1.0]), st.floats(0, LARGEST)),
    max_size=30,
)


def counted(events: list[tuple[float, float, float, float]]) -> Weighted:
    found = Weighted()
    for raw, p, y, w in events:
        found.observe(raw, p, y, w)
    return found


@given(EVENTS)
@STEADY
def test_sums_are_those_of_the_events_whatever_their_weights(events: list[tuple[float, float, float, float]]) -> None:
    found = counted(events)
    assert found.n == len(events)
    assert found.weight == pytest.approx(math.fsum(w for *_, w in events))
    assert found.happened == pytest.approx(math.fsum(w * y for *_, y, w in events))
    for place, kind in enumerate(KINDS):
        assert found.expected(kind) == pytest.approx(math.fsum(each[place] * each[3] for each in events))
        if found.weight:
            assert 0.0 <= found.error(kind) <= 1.0 + 1e-9
            assert abs(found.bias(kind).value) <= found.error(kind) + 1e-9
            assert sum(each.weight for each in found.bands(kind)) == pytest.approx(found.weight)
    assert 0.0 <= found.effective <= len(events) + 1e-6


@given(EVENTS)
@STEADY
def test_a_label_that_is_taken_back_leaves_no_trace_but_rounding(
    events: list[tuple[float, float, float, float]],
) -> None:
    found, other = counted(events), counted([(raw, p, 1.0 - y, w) for raw, p, y, w in events])
    for raw, p, y, w in events:
        found.revise(raw, p, y, 1.0 - y, w)
    scale = max(found.weight, 1.0)
    assert found.happened == pytest.approx(other.happened, abs=1e-9 * scale)
    for kind in KINDS:
        assert found.off(kind) == pytest.approx(other.off(kind), abs=1e-9 * scale)


def test_a_revision_whose_event_was_counted_elsewhere_is_kept() -> None:
    elsewhere, here = Weighted(), Weighted()
    elsewhere.observe(0.3, 0.2, 0.0, 5.0)
    here.revise(0.3, 0.2, 0.0, 1.0, 5.0)
    both = elsewhere + Weighted.decode(here.encode())
    assert (both.n, both.weight, both.happened) == (1, 5.0, 5.0)
    assert both.bias("raw").low <= both.bias("raw").value


def test_equal_weights_are_counts() -> None:
    rng = random.Random(1)
    events = [(rng.random(), rng.random(), float(rng.random() < 0.3), 7.0) for _ in range(500)]
    found = counted(events)
    assert found.effective == pytest.approx(500)
    assert found.observed == pytest.approx(sum(each[2] for each in events) / 500)


def test_one_event_that_outweighs_all_others_shows_as_one() -> None:
    found = counted([(0.5, 0.5, 0.0, 1.0)] * 1000 + [(0.5, 0.5, 1.0, LARGEST)])
    assert found.effective == pytest.approx(1.0, abs=0.01)
    low, high = found.bias("raw")[1:]
    assert low < -1.0 < 0.0 < high


@pytest.mark.parametrize(("most", "n"), [(1.0, 400), (0.03, 1000)])
def test_the_interval_of_the_bias_holds_the_truth_as_often_as_it_says(most: float, n: int) -> None:
    """Amounts vary by a factor of ten; what is served is the risk, of frauds up to .03."""
    rng, held = random.Random(2), 0
    for _ in range(300):
        events = []
        for _ in range(n):
            p, amount = most * rng.random(), math.exp(rng.gauss(3.0, 1.0))
            events.append((p, p, float(rng.random() < p), amount))
        _, low, high = counted(events).bias("calibrated")
        held += low <= 0.0 <= high
    assert held / 300 >= 0.92
