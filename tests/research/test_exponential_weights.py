"""Exponential weights over swaps."""

import math
import random

import numpy as np
import pytest

from research.calibrators.exponential_weights import PRIOR, ExponentialWeights


def test_served_distribution_is_left_as_it_is_by_the_weighted_swaps() -> None:
    calibrator = ExponentialWeights(buckets=1, grid=6)
    rng = random.Random(2)
    for t in range(300):
        calibrator.update(calibrator.predict(rng.random(), (), b"%d" % t).ticket, float(rng.random() < 0.4))
    points = calibrator._grid.points
    c, t = calibrator._grid.nearest(0.5), calibrator.learnt
    eta = math.sqrt(math.log(12) / (2 * t))
    rates = np.zeros((7, 7))
    for i in range(7):
        n, s = calibrator._cells.get(i, (0, 0))
        for j in (i - 1, i + 1):
            if 0 <= j <= 6:
                delta = points[j] - points[i]
                regret = (2 * delta * (s - n * points[i]) - delta**2 * n) / abs(delta)
                rates[i, j] = math.exp(eta * regret + (PRIOR if abs(j - c) < abs(i - c) else 0.0))
    generator = rates - np.diag(rates.sum(axis=1))
    stationary = np.linalg.lstsq(np.vstack([generator.T, np.ones(7)]), [*np.zeros(7), 1.0], rcond=None)[0]
    assert calibrator.predict(0.5).p == pytest.approx(stationary @ np.array(points))
    drawn = [calibrator.predict(0.5, (), b"%d" % k).draw for k in range(4000)]
    # Hoeffding: a mean of 4,000 draws in [0, 1] is off by .0426 with probability 1e-6.
    assert abs(sum(drawn) / 4000 - calibrator.predict(0.5).p) < 0.0426


def test_fresh_bucket_serves_mostly_the_nearest_point() -> None:
    calibrator = ExponentialWeights(buckets=1, grid=10, spacing="uniform")
    served = [calibrator.predict(0.52, (), b"%d" % t).draw for t in range(4000)]
    assert abs(served.count(0.5) / 4000 - 1 / (1 + 2 * math.exp(-PRIOR))) < 0.0426


def test_learns_what_a_bucket_means() -> None:
    calibrator = ExponentialWeights(buckets=1, grid=20, spacing="uniform")
    rng = random.Random(4)
    for t in range(5000):
        calibrator.update(calibrator.predict(0.8, (), b"%d" % t).ticket, float(rng.random() < 0.35))
    assert calibrator.predict(0.8).p == pytest.approx(0.35, abs=0.05)


def test_opponent_is_answered() -> None:
    calibrator = ExponentialWeights(buckets=1, grid=20, spacing="uniform")
    for t in range(10_000):
        expected, _, ticket = calibrator.predict(0.5, (), b"%d" % t)
        calibrator.update(ticket, float(expected <= 0.5))
    assert (calibrator.error() or 1.0) < 0.1  # every deterministic method ends at .5
    assert calibrator.bound() is None
