"""Grids."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators.grid import KNEE, SPACINGS, TAIL, Grid

INTERIOR = st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), min_size=1, max_size=20, unique=True)


@given(st.integers(1, 200), st.sampled_from(SPACINGS), st.floats(0, 1))
def test_nearest_is_nearest(n: int, spacing: str, p: float) -> None:
    grid = Grid.of(n, spacing)
    found = abs(grid.points[grid.nearest(p)] - p)
    assert found <= min(abs(point - p) for point in grid.points) + 1e-15


@given(st.integers(1, 200), st.sampled_from(SPACINGS), st.floats(0, 1))
def test_bucket_holds_its_lower_edge_and_the_last_one_also_1(n: int, spacing: str, p: float) -> None:
    grid = Grid.of(n, spacing)
    for q in (p, *grid.points):
        j = grid.below(q)
        assert grid.points[j] <= q < grid.points[j + 1] or (j == n - 1 and q == 1.0)


@given(st.integers(1, 1000), st.sampled_from(SPACINGS))
def test_spaced_grid_has_n_gaps_and_is_symmetric(n: int, spacing: str) -> None:
    grid = Grid.of(n, spacing)
    assert grid.last == n
    assert [grid.denominator - k for k in reversed(grid.numerators)] == list(grid.numerators)


@given(INTERIOR)
def test_given_points_are_kept_exactly(points: list[float]) -> None:
    points = sorted(points)
    grid = Grid.of(7, "logit", tuple(points))
    assert grid.points == (0.0, *points, 1.0)
    assert [Fraction(k, grid.denominator) for k in grid.numerators[1:-1]] == list(map(Fraction, points))


def log_odds(p: float) -> float:
    return p / (1 - p)


def test_logit_points_are_even_in_log_odds() -> None:
    points = Grid.of(20, "logit").points
    assert points[1] == pytest.approx(TAIL, rel=1e-5)
    ratios = [log_odds(right) / log_odds(left) for left, right in pairwise(points[1:-1])]
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-4)


def test_hybrid_points_are_even_between_the_knees_and_even_in_log_odds_beyond() -> None:
    points = Grid.of(100, "hybrid").points
    middle = [right - left for left, right in pairwise(points) if left > KNEE and right < 1 - KNEE]
    ratios = [log_odds(right) / log_odds(left) for left, right in pairwise(points[1:]) if right < KNEE]
    assert middle == pytest.approx([middle[0]] * len(middle), rel=1e-6)
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-4)
    assert points[1] == pytest.approx(TAIL, rel=1e-5)
    assert len(middle) > 50 < 3 * len(ratios)


def test_uneven_grid_knows_its_gaps() -> None:
    grid = Grid((0, 1, 4, 10), 10)
    assert grid.points == (0.0, 0.1, 0.4, 1.0)
    assert grid.gaps == (1, 3, 6, 6)
    assert [grid.nearest(p) for p in (0.0, 0.04, 0.06, 0.26, 0.71, 1.0)] == [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize("spacing", SPACINGS)
def test_grid_without_a_gap_is_refused(spacing: str) -> None:
    with pytest.raises(ValueError, match="grid"):
        Grid.of(0, spacing)


@pytest.mark.parametrize("numerators", [(), (0,), (0, 1), (1, 2), (0, 2, 2), (0, 3, 2)])
def test_points_must_increase_from_0_to_1(numerators: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="increase strictly"):
        Grid(numerators, 2)
