"""Smooth calibration error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.scoring.smooth import smooth_error

KNOTS = st.integers(2, 12)


@settings(deadline=None, derandomize=True)
@given(KNOTS, st.integers(0, 2**32 - 1))
def test_no_lipschitz_weights_find_more(knots: int, seed: int) -> None:
    """It is a maximum over multiples of the mesh; nothing between them does better."""
    rng = np.random.default_rng(seed)
    sums = rng.normal(size=knots)
    found = smooth_error(sums)
    for _ in range(50):
        w = rng.uniform(-1, 1) + np.cumsum(np.r_[0.0, rng.uniform(-1, 1, knots - 1) / (knots - 1)])
        assert float(np.clip(w, -1, 1) @ sums) <= found + 1e-12


@settings(deadline=None, derandomize=True)
@given(KNOTS, st.integers(0, 2**32 - 1))
def test_it_lies_between_the_bias_and_the_sum_of_all_errors(knots: int, seed: int) -> None:
    sums = np.random.default_rng(seed).normal(size=knots)
    assert abs(sums.sum()) <= smooth_error(sums) + 1e-12
    assert smooth_error(sums) <= np.abs(sums).sum() + 1e-12
    assert smooth_error(-sums) == pytest.approx(smooth_error(sums))


def test_errors_that_alternate_from_knot_to_knot_hardly_count() -> None:
    """Such errors a change of 1/K mends: the best weights are half the mesh up and half the mesh down."""
    sums = np.array([1.0, -1.0] * 8)
    assert smooth_error(sums) == pytest.approx(8 / 15)
    assert np.abs(sums).sum() == 16
