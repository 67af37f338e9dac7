"""The points a bucketed calibrator may play, as exact fractions."""

from bisect import bisect_left
from itertools import pairwise
from typing import Self


class Grid:
    """Points 0 = g_0 < ... < g_N = 1 over one denominator.

    Fractions, because counts times integer numerators commute exactly, where sums of floats would not.

    Parameters
    ----------
    numerators
        Strictly increasing, from 0 to ``denominator``.
    denominator
        Positive.

    Attributes
    ----------
    last
        N, the index of the last point.
    points
        The points as floats, shape (N + 1,).
    gaps
        For each point, the wider of the gaps beside it, as a numerator.
    widest
        The widest gap, as a float.

    Examples
    --------
    >>> grid = Grid.uniform(4)
    >>> grid.points
    (0.0, 0.25, 0.5, 0.75, 1.0)
    >>> grid.nearest(0.3)
    1
    """

    __slots__ = ("_midpoints", "denominator", "gaps", "last", "numerators", "points", "widest")

    def __init__(self, numerators: tuple[int, ...], denominator: int) -> None:
        steps = [right - left for left, right in pairwise(numerators)]
        if not steps or numerators[0] != 0 or numerators[-1] != denominator or min(steps) <= 0:
            raise ValueError("grid points must increase strictly from 0 to 1")
        self.numerators = numerators
        self.denominator = denominator
        self.last = len(steps)
        self.points = tuple(k / denominator for k in numerators)
        self.gaps = tuple(map(max, [0, *steps], [*steps, 0]))
        self.widest = max(steps) / denominator
        self._midpoints = [(left + right) / 2 for left, right in pairwise(self.points)]

    @classmethod
    def uniform(cls, n: int) -> Self:
        """Return the grid of the points i/n for i = 0..n; n at least 1."""
        return cls(tuple(range(n + 1)), n)

    def nearest(self, p: float) -> int:
        """Return the index of the point nearest to ``p``, the lower one of two; p in [0, 1]. O(log N)."""
        return bisect_left(self._midpoints, p)
