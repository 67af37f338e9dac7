"""Errors from counts at the values served."""

import math
import random
from itertools import product

import pytest

from state.calibrators import make
from state.calibrators.bucketed import Bucketed
from state.calibrators.points import Point, debiased_l2, noise


def test_known_values() -> None:
    points = [Point(0.25, 4, 2), Point(0.5, 6, 3)]
    assert debiased_l2(points) == pytest.approx((4 * (1 / 16 - 4 / 48) + 6 * (0 - 9 / 180)) / 10)
    assert noise(points) == pytest.approx((math.sqrt(2 * 0.75 / math.pi) + math.sqrt(3 / math.pi)) / 10)


@pytest.mark.parametrize(("p", "chance"), [(0.3, 0.3), (0.1, 0.6), (0.0, 1.0)])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_debiased_l2_has_the_true_error_as_its_mean(p: float, chance: float, n: int) -> None:
    # Exactly, over all outcomes of n events.
    mean = 0.0
    for s in range(n + 1):
        mean += math.comb(n, s) * chance**s * (1 - chance) ** (n - s) * debiased_l2([Point(p, n, s)])
    assert mean == pytest.approx((chance - p) ** 2)


def test_errors_of_nothing_are_nan() -> None:
    assert all(math.isnan(error([])) for error in (debiased_l2, noise))
    assert math.isnan(debiased_l2([Point(0.5, 1, 1)]))


def played_out(spec: str, rounds: int = 500) -> Bucketed:
    calibrator = make(spec, buckets=3, grid=7)
    rng = random.Random(8)
    for t in range(rounds):
        calibrator.update(calibrator.predict(rng.random(), (), b"%d" % t).ticket, float(rng.random() < 0.3))
    assert isinstance(calibrator, Bucketed)
    return calibrator


@pytest.mark.parametrize("spec", ["minimax", "regret_matching"])
def test_error_of_a_bucketed_calibrator_is_l1_of_what_it_played(spec: str) -> None:
    calibrator = played_out(spec)
    points = calibrator.played()
    assert points is not None
    assert sum(point.n for point in points) == 500
    assert points == sorted(points)
    assert sum(abs(each.s - each.n * each.p) for each in points) / 500 == pytest.approx(calibrator.error())


@pytest.mark.parametrize("spec", ["minimax", "regret_matching"])
def test_internal_regret_is_the_best_move_of_any_pair(spec: str) -> None:
    calibrator = played_out(spec)
    grid = calibrator._grid.points
    gains = [0.0]
    for (cell, (n, s)), other in product(calibrator._cells.items(), grid):
        own = grid[cell % len(grid)]
        gains.append(sum(k * ((own - y) ** 2 - (other - y) ** 2) for k, y in ((n - s, 0), (s, 1))))
    assert calibrator.internal_regret() == pytest.approx(max(gains) / 500)


def test_a_composition_shows_what_its_back_played() -> None:
    calibrator = make("platt+minimax")
    assert calibrator.internal_regret() is None
    answer = calibrator.predict(0.5, (), b"e")
    calibrator.update(answer.ticket, 1)
    assert calibrator.played() == [Point(answer.p, 1, 1)]
    assert calibrator.internal_regret() == pytest.approx((1 - answer.p) ** 2)


@pytest.mark.parametrize("spec", ["platt", "identity", "minimax+platt"])
def test_calibrators_that_do_not_count_show_nothing(spec: str) -> None:
    assert make(spec).played() is None
    assert make(spec).internal_regret() is None
