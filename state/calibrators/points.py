"""Calibration errors of forecasts that take few values, from the counts at each value."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Point(NamedTuple):
    """A served value, the number of its outcomes, and how many of them were 1."""

    p: float
    n: int
    s: int


def debiased_l2(points: Sequence[Point]) -> float:
    """Return the squared ℓ2 calibration error without the part that noise adds; NaN if no point has two outcomes.

    Notes
    -----
    With q the chance at a point, E (s/n - p)² = (q - p)² + q(1 - q)/n, and s(n - s)/(n²(n - 1)) has the
    expectation of the last term for n >= 2. So the weighted mean of (s/n - p)² - s(n - s)/(n²(n - 1)) over the points
    with n >= 2 has the expectation of the true error there. It may be negative.

    References
    ----------
    Kumar, Liang & Ma 2019, *Verified Uncertainty Calibration*, section 5.

    Examples
    --------
    >>> debiased_l2([Point(0.5, 2, 1)])
    -0.25
    """
    known = [each for each in points if each.n >= 2]
    return _over(
        known,
        sum((s - n * p) ** 2 / n - s * (n - s) / (n * (n - 1)) for p, n, s in known),
    )


def noise(points: Sequence[Point]) -> float:
    """Return the ℓ1 error that chance alone would give if each value were the chance of its outcomes; NaN of no points.

    Σ sqrt(2 n p(1 - p) / π) / T: the mean absolute value of a normal error with that variance.
    """
    return _over(points, sum(math.sqrt(2.0 * n * p * (1.0 - p) / math.pi) for p, n, _ in points))


def _over(points: Sequence[Point], total: float) -> float:
    outcomes = sum(each.n for each in points)
    return total / outcomes if outcomes else math.nan
