"""Grids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators.grid import Grid


@given(st.integers(1, 200), st.floats(0, 1))
def test_nearest_is_nearest(n: int, p: float) -> None:
    grid = Grid.uniform(n)
    found = abs(grid.points[grid.nearest(p)] - p)
    assert found <= min(abs(point - p) for point in grid.points) + 1e-15


def test_uneven_grid_knows_its_gaps() -> None:
    grid = Grid((0, 1, 4, 10), 10)
    assert grid.points == (0.0, 0.1, 0.4, 1.0)
    assert grid.gaps == (1, 3, 6, 6)
    assert [grid.nearest(p) for p in (0.0, 0.04, 0.06, 0.26, 0.71, 1.0)] == [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize("numerators", [(), (0,), (0, 1), (1, 2), (0, 2, 2), (0, 3, 2)])
def test_points_must_increase_from_0_to_1(numerators: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="increase strictly"):
        Grid(numerators, 2)
