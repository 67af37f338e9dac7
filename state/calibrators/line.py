"""A line in log-odds that starts at a given slope and learns by Newton steps on the log loss."""

import math

from state.calibrators.logistic import newton


class Line:
    """Slope a and offset b of the line a x + b.

    ``start``: the first slope. The first offset is 0.
    ``low, high``: limits of the slope.
    ``in_slope, in_offset``: weight of the start, as information, in slope and in offset.
    ``far``: largest distance of the offset from 0.

    Notes
    -----
    The step for a gradient g at x, with the outcome's curvature h and the share λ that is forgotten:

        A <- (1 - λ) A + λ P + h (x, 1)(x, 1)',   (a, b) <- (a, b) - A^-1 (g (x, 1) + λ P (a - start, b)),

    P is the diagonal matrix of the information that the start counts for. A slope beyond its limit is projected back,
    together with the offset: to the nearest point in the norm of A.
    """

    __slots__ = ("_far", "_high", "_in_offset", "_in_slope", "_low", "_start", "a", "aa", "ab", "b", "bb")

    def __init__(
        self, start: float, low: float, high: float, in_slope: float, in_offset: float, far: float = math.inf
    ) -> None:
        self._start, self._low, self._high, self._far = start, low, high, far
        self._in_slope, self._in_offset = in_slope, in_offset
        #: Slope and offset.
        self.a, self.b = start, 0.0
        #: Their curvature A.
        self.aa, self.ab, self.bb = in_slope, 0.0, in_offset

    def learn(self, x: float, g: float, curvature: float, fade: float) -> None:
        """Take the step of an outcome."""
        keep = 1.0 - fade
        aa = self.aa = keep * self.aa + fade * self._in_slope + curvature * x * x
        ab = self.ab = keep * self.ab + curvature * x
        bb = self.bb = keep * self.bb + fade * self._in_offset + curvature
        ga = g * x + fade * self._in_slope * (self.a - self._start)
        gb = g + fade * self._in_offset * self.b
        da, db = newton(aa, ab, bb, ga, gb)
        self.move(da, db)

    def curve(self, x: float, more: float) -> None:
        """Add ``more`` to the curvature at x."""
        self.aa += more * x * x
        self.ab += more * x
        self.bb += more

    def move(self, da: float, db: float) -> None:
        """Subtract these from slope and offset, then project both back within their limits."""
        low, high, far = self._low, self._high, self._far
        a, b = self.a - da, self.b - db
        self.a = low if a < low else high if a > high else a  # noqa: FURB136 - calls are dear
        b -= self.ab / self.bb * (self.a - a)
        self.b = -far if b < -far else far if b > far else b  # noqa: FURB136 - as above
