"""A whole law after its levels were recalibrated: every quantile, probability and mean, not only what is served."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from state.forecasts import Law


class Recalibrated:
    """A law whose levels a map R has moved: quantile function Q(R(p)), distribution function R^-1(F(y)).

    Parameters
    ----------
    raw
        The law before: Q and F.
    levels, play
        R takes ``levels[k]`` to ``play[k]``, cut to [0, 1], 0 to 0 and 1 to 1, and is linear between. Both in
        ascending order, the levels strictly.
    low, high
        The quantity is known to lie between: quantiles are cut to it.

    Notes
    -----
    R is not decreasing; where it is flat, R^-1 jumps and the law has an atom. Deshpande, Marx & Kuleshov write both
    Q∘R and R∘F; it is Q∘R and R^-1∘F.

    Examples
    --------
    >>> from state.forecasts import Normal
    >>> wider = Recalibrated(Normal(0.0, 1.0), levels=(0.1, 0.9), play=(0.05, 0.95))
    >>> [round(q, 2) for q in wider.interval(0.8)]
    [-1.64, 1.64]
    """

    def __init__(
        self,
        raw: Law,
        levels: Sequence[float],
        play: Sequence[float],
        low: float = float("-inf"),
        high: float = float("inf"),
    ) -> None:
        self._raw = raw
        self._p = (0.0, *levels, 1.0)
        self._r = (0.0, *(min(max(r, 0.0), 1.0) for r in play), 1.0)
        # Where the support ends at an atom, R that is flat at 0 or 1 puts its mass there.
        self._low = min(max(low, raw.ppf(0.0)), high)
        self._high = max(min(high, raw.ppf(1.0)), self._low)

    def ppf(self, level: float) -> float:
        """Return the quantile of a level in [0, 1]; infinite where R is 0 or 1 and nothing ends the support."""
        if not 0.0 <= level <= 1.0:
            raise ValueError(f"a level must be in [0, 1], got {level!r}")
        return self._cut(self._raw.ppf(_interpolate(self._p, self._r, bisect_left(self._p, level), level)))

    def cdf(self, y: float) -> tuple[float, float]:
        """Return P(Y < y) and P(Y <= y), which differ at an atom."""
        below, at = self._raw.cdf(y)
        p, r = self._p, self._r
        # The least level that R takes to `below` or beyond, and the greatest it takes to `at` or less.
        least = 0.0 if y <= self._low else 1.0 if y > self._high else _inverse(p, r, bisect_left(r, below), below)
        most = 0.0 if y < self._low else 1.0 if y >= self._high else _inverse(p, r, bisect_right(r, at), at)
        return min(least, most), most

    def interval(self, coverage: float) -> tuple[float, float]:
        """Return the central interval that holds this much of the mass, ``coverage`` in [0, 1]."""
        return self.ppf(0.5 - 0.5 * coverage), self.ppf(0.5 + 0.5 * coverage)

    def mean(self) -> float:
        """Return the mean, in closed form; infinite or NaN where R leaves mass at an infinite end of the support."""
        p, r = self._p, self._r
        # Cut quantiles are constant below R = cdf(low) and above R = cdf(high).
        first, last = self._raw.cdf(self._low)[0], self._raw.cdf(self._high)[1]
        total = 0.0
        for k in range(1, len(p)):
            width, a, b = p[k] - p[k - 1], r[k - 1], r[k]
            if a == b:
                total += width * self._cut(self._raw.ppf(a))
                continue
            start, end = min(max(a, first), b), max(min(b, last), a)
            area = 0.0
            if start > a:
                area += (start - a) * self._low
            if end > start:
                area += self._raw.integral(start, end)
            if b > end:
                area += (b - end) * self._high
            total += width * (area / (b - a))  # in this order: the least of floats must not vanish
        return total

    def _cut(self, value: float) -> float:
        return min(max(value, self._low), self._high)


def _interpolate(x: Sequence[float], y: Sequence[float], i: int, at: float) -> float:
    """Return the value at ``at``, x[i - 1] < at <= x[i]."""
    if i == 0:
        return y[0]
    left, right = y[i - 1], y[i]
    return min(left + (right - left) * ((at - x[i - 1]) / (x[i] - x[i - 1])), right)


def _inverse(p: Sequence[float], r: Sequence[float], i: int, at: float) -> float:
    """Return the level between p[i - 1] and p[i] that is taken to ``at``, r[i - 1] <= at <= r[i]."""
    if i == 0:
        return p[0]
    if i == len(r):
        return p[-1]
    return _interpolate(r, p, i, at)
