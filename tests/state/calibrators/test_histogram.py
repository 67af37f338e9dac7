"""Histogram binning."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators.histogram import EDGE, Histogram, edges


@given(st.integers(1, 1000), st.sampled_from(["logit", "uniform"]))
def test_edges_increase_within_0_and_1(bins: int, spacing: str) -> None:
    found = (0.0, *edges(bins, spacing), 1.0)
    assert len(found) == bins + 1
    assert all(low < high for low, high in pairwise(found))


def test_logit_bins_tell_rare_events_apart() -> None:
    calibrator = Histogram()
    tickets = {calibrator.predict(p).ticket for p in (0.0005, 0.002, 0.005, 0.02)}
    assert len(tickets) == 4
    assert calibrator.predict(0.0).ticket == calibrator.predict(EDGE).ticket


def test_what_is_served_is_the_mean_shrunk_to_the_forecast() -> None:
    calibrator = Histogram(bins=10, spacing="uniform")
    for y in (1, 0, 0, 1, 1):
        calibrator.update(calibrator.predict(0.72).ticket, y)
    assert calibrator.predict(0.75).p == (3 + 3 * 0.75) / (5 + 3)
    assert calibrator.predict(0.85).p == 0.85


@given(st.floats(0, 1), st.integers(1, 50), st.sampled_from([0, 20]))
def test_fresh_bin_serves_the_forecast(p: float, bins: int, halflife: int) -> None:
    assert Histogram(bins=bins, halflife=halflife).predict(p).p == p


@pytest.mark.parametrize("halflife", [0, 500])
def test_learns_a_map_that_goes_up_and_down(halflife: int) -> None:
    calibrator, rng = Histogram(bins=10, spacing="uniform", halflife=halflife), random.Random(3)
    for _ in range(40_000):
        p = rng.random()
        calibrator.update(calibrator.predict(p).ticket, float(rng.random() < 0.5 + 0.4 * (-1) ** int(10 * p)))
    for j in range(10):
        # Hoeffding at 1e-6 over ten bins of 3,500 outcomes and more; with the halflife, of 500 / ln 2 effective ones.
        n = 500 / math.log(2) if halflife else 3500
        slack = math.sqrt(math.log(2e7) / (2 * n)) + Histogram.SHRINK / n
        assert abs(calibrator.predict((j + 0.5) / 10).p - (0.5 + 0.4 * (-1) ** j)) < slack


def test_halflife_forgets() -> None:
    calibrator = Histogram(halflife=50)
    for t in range(1000):
        calibrator.update(calibrator.predict(0.5).ticket, float(t >= 950))
    n = sum(0.5 ** (k / 50) for k in range(1000))
    assert calibrator.predict(0.5).p == pytest.approx((n / 2 + 1.5) / (n + 3), abs=1e-6)
    assert not calibrator.order_free
