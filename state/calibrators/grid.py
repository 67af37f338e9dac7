"""Grids that cut [0, 1]: the points a bucketed calibrator may play, as exact fractions, and the edges of buckets."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, Self

from state.odds import log_odds

#: How points may be spaced: in log-odds below `KNEE` and above 1 - `KNEE`, and evenly between, without a step; in
#: log-odds from `TAIL` to 1 - `TAIL`; evenly.
SPACINGS: Final = ("hybrid", "logit", "uniform")
#: Least and greatest interior point of a grid spaced in log-odds: one event in 10,000.
TAIL: Final = 1e-4
#: Where `hybrid` changes from log-odds to even spacing.
KNEE: Final = 0.05
#: Points made with `exp` are rounded to multiples of 2**-30, so that every machine's libm gives the same points.
_DENOMINATOR: Final = 1 << 30


class Grid:
    """Points 0 = g_0 < ... < g_N = 1 over one denominator.

    The points are fractions, because sums of counts times whole numerators commute exactly and sums of floats do not.

    ``numerators``: strictly increasing, from 0 to ``denominator``.
    ``denominator``: positive.

    Examples
    --------
    >>> grid = Grid.of(4, "uniform")
    >>> grid.points
    (0.0, 0.25, 0.5, 0.75, 1.0)
    >>> grid.nearest(0.3)
    1
    >>> [round(point, 4) for point in Grid.of(6, "logit").points]
    [0.0, 0.0001, 0.0099, 0.5, 0.9901, 0.9999, 1.0]
    """

    __slots__ = ("_midpoints", "denominator", "gaps", "last", "numerators", "points")

    def __init__(self, numerators: tuple[int, ...], denominator: int) -> None:
        steps = [right - left for left, right in pairwise(numerators)]
        if not steps or numerators[0] != 0 or numerators[-1] != denominator or min(steps) <= 0:
            raise ValueError("grid points must increase strictly from 0 to 1")
        self.numerators = numerators
        self.denominator = denominator
        #: N, the index of the last point.
        self.last = len(steps)
        #: The points as floats, shape (N + 1,).
        self.points = tuple(k / denominator for k in numerators)
        #: For each point, the wider of its two gaps, as a numerator.
        self.gaps = tuple(map(max, [0, *steps], [*steps, 0]))

        self._midpoints = [(left + right) / 2 for left, right in pairwise(self.points)]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, n: int, spacing: str, points: Sequence[float] = ()) -> Self:
        """Return the grid of 0, exactly these points, and 1; or of n gaps (at least one) in one of the `SPACINGS`.

        ``points``: strictly increasing between 0 and 1. If empty, n and ``spacing`` decide.
        """
        if points:
            ratios = [float(point).as_integer_ratio() for point in points]
            denominator = max(power for _, power in ratios)  # a float's denominator is a power of two
            return cls((0, *(k * (denominator // power) for k, power in ratios), denominator), denominator)
        if spacing == "uniform":
            return cls(tuple(range(n + 1)), n)
        return cls._tailed(n, KNEE if spacing == "hybrid" else 0.5)

    @classmethod
    def _tailed(cls, n: int, knee: float) -> Self:
        """Return a grid symmetric about 1/2: even steps around it up to the knee, then even steps in log-odds."""
        if n < 1:
            raise ValueError(f"a grid has at least one gap, got {n}")
        slope = knee * (1.0 - knee)  # dp / d log-odds at the knee
        even = (0.5 - knee) / slope
        bend = log_odds(knee)
        farthest = even + bend - log_odds(TAIL)
        lower = []
        for i in range((n - 1) // 2):
            distance = farthest * (1.0 - 2.0 * i / (n - 2))
            point = 0.5 - distance * slope if distance < even else 1.0 / (1.0 + math.exp(distance - even - bend))
            lower.append(round(point * _DENOMINATOR))
        middle = [] if n % 2 else [_DENOMINATOR // 2]
        upper = [_DENOMINATOR - k for k in reversed(lower)]
        return cls((0, *lower, *middle, *upper, _DENOMINATOR), _DENOMINATOR)

    def nearest(self, p: float) -> int:
        """Return the index of the point nearest to ``p`` in [0, 1]; of two, the lower. O(log N)."""
        return bisect_left(self._midpoints, p)

    @property
    def breaks(self) -> list[float]:
        """Return the N midpoints between neighbours, where `nearest` changes."""
        return list(self._midpoints)

    def below(self, p: float) -> int:
        """Return the index i < N of the bucket [g_i, g_{i+1}) that holds ``p``; O(log N)."""
        return bisect_right(self.points, p, 1, self.last) - 1
