"""The calibration curve and its monotone view."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import make
from state.calibrators.curve import Monotone, curve, isotonic

VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


@given(VALUES)
def test_isotonic_increases_keeps_the_mean_and_what_increases(values: list[float]) -> None:
    fit = isotonic(values)
    assert all(left <= right for left, right in pairwise(fit))
    assert sum(fit) == pytest.approx(sum(values), abs=1e-12)
    assert isotonic(fit) == fit
    assert isotonic(sorted(values)) == pytest.approx(sorted(values))


@given(VALUES, VALUES)
def test_isotonic_is_nearest(values: list[float], others: list[float]) -> None:
    others = sorted((others * len(values))[: len(values)])
    fit = isotonic(values)

    def far(sequence: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(sequence, values, strict=True))

    assert far(fit) <= far(others) + 1e-12


def test_weights_count_as_repetitions() -> None:
    values, weights = [0.5, 0.1, 0.3, 0.2, 0.9], [1, 3, 2, 2, 1]
    repeated = isotonic([value for value, weight in zip(values, weights, strict=True) for _ in range(weight)])
    once = isotonic(values, weights)
    assert [fit for fit, weight in zip(once, weights, strict=True) for _ in range(weight)] == pytest.approx(repeated)


def test_curve_changes_nothing() -> None:
    calibrator = make("platt+minimax")
    calibrator.update(calibrator.predict(0.3).ticket, 1)
    before = calibrator.encode()
    assert curve(calibrator, [0.3, 0.9, 0.1]) == [calibrator.predict(p).p for p in (0.3, 0.9, 0.1)]
    assert calibrator.encode() == before


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20, unique=True), st.floats(0, 1), st.floats(0, 1))
def test_view_is_monotone(knots: list[float], p: float, q: float) -> None:
    calibrator = make("minimax", buckets=5, grid=10)
    rng = random.Random(5)
    for t in range(300):
        calibrator.update(calibrator.predict(rng.random(), (), b"%d" % t).ticket, rng.random() < 0.4)
    view = Monotone(calibrator, sorted(knots))
    low, high = sorted((p, q))
    assert 0.0 <= view(low) <= view(high) <= 1.0


@pytest.mark.parametrize("knots", [(), (0.5,), (0.5, 0.5), (0.9, 0.1)])
def test_knots_must_increase(knots: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="increasing order"):
        Monotone(make("identity"), knots)
