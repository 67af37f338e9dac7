"""A line in a score's log-odds and in the score itself, which starts at the log-odds and learns by proximal steps."""

from typing import Final

from state.calibrators.logistic import newton, proximal, sigmoid
from state.quick import tanh

#: Information that a share of 0 of the score itself counts as. Of 2, 5, 10 and 20, the least that costs nothing: with
#: 5, rare ones cost .12 ± .05 % log loss (docs/explanation/calibrators.md).
IN_SHARE: Final = 10.0


def itself(z: float) -> float:
    """Return the score t = 4 (p - 1/2) at log-odds z. At p = 1/2, t and z have the same value and the same slope."""
    return 2.0 * tanh(0.5 * z)


class TwoScales:
    """The map u = a z + d t + b, with z the log-odds of a score and t the score `itself`.

    ``low, high``: limits of a. d is between 0 and ``high``, so u rises strictly with z.
    ``in_slope, in_offset``: information that a = 1 and b = 0 count for; `IN_SHARE` is that of d = 0.
    ``far``: largest distance of b from 0.

    Notes
    -----
    Shares of votes are no log-odds: forests say 0 where a tenth of a per cent is meant, and 3 votes of 100 differ from
    1 by little more than chance. For such scores the log-odds of the risk are a straight line in the score itself. The
    step is that of `Line`, in three coordinates. It uses the gradient at its end, not at its beginning, so it does not
    overshoot (Toulis & Airoldi 2017, *Asymptotic and finite-sample properties of estimators based on stochastic
    gradients*). A parameter beyond its limit is projected back: d first, then a, each time to the nearest point in the
    norm of A.
    """

    __slots__ = ("_far", "_high", "_in_offset", "_in_slope", "_low", "a", "b", "d", "oo", "t1", "tt", "z1", "zt", "zz")

    def __init__(self, low: float, high: float, in_slope: float, in_offset: float, far: float) -> None:
        self._low, self._high, self._far = low, high, far
        self._in_slope, self._in_offset = in_slope, in_offset
        #: The parameters.
        self.a, self.d, self.b = 1.0, 0.0, 0.0
        #: Their curvature A.
        self.zz, self.zt, self.tt, self.z1, self.t1, self.oo = in_slope, 0.0, IN_SHARE, 0.0, 0.0, in_offset

    def at(self, z: float) -> float:
        """Return u of log-odds z."""
        return self.a * z + self.d * 2.0 * tanh(0.5 * z) + self.b

    def slope(self, z: float) -> float:
        """Return the slope of u at z."""
        t = itself(z)
        return self.a + self.d * (1.0 - 0.25 * t * t)

    def approach(self, z: float, y: float, part: float, known: float, fade: float) -> None:
        """Take the proximal step of an outcome, 0 or 1, that counts for a part.

        ``known``: the curvature of the outcome by the map before its batch. The step uses the mean of this and the
        curvature at its end. If zeros come first in a file, the latter is nearly 0, and the ones behind them would move
        the map too far.
        ``fade``: share of A that fades to the information of the start.
        """
        t, keep = itself(z), 1.0 - fade
        self.zz, self.zt, self.z1 = keep * self.zz + fade * self._in_slope, keep * self.zt, keep * self.z1
        self.tt, self.t1 = keep * self.tt + fade * IN_SHARE, keep * self.t1
        self.oo = keep * self.oo + fade * self._in_offset
        dz, dt, d1 = self._solved(z, t, 1.0)
        q = sigmoid(proximal(self.a * z + self.d * t + self.b, part * (dz * z + dt * t + d1), y))
        self._curve(z, t, part * 0.5 * (q * (1.0 - q) + known))
        pz, pt, p1 = self._solved(
            fade * self._in_slope * (self.a - 1.0), fade * IN_SHARE * self.d, fade * self._in_offset * self.b
        )
        g = part * (q - y)
        self._move(pz + dz * g, pt + dt * g, p1 + d1 * g)

    def step(self, z: float, g: float, more: float) -> None:
        """Take a Newton step for a gradient g at z, after adding to the curvature there."""
        t = itself(z)
        self._curve(z, t, more)
        self._move(*self._solved(g * z, g * t, g))

    def _curve(self, z: float, t: float, more: float) -> None:
        self.zz += more * z * z
        self.zt += more * z * t
        self.tt += more * t * t
        self.z1 += more * z
        self.t1 += more * t
        self.oo += more

    def _solved(self, gz: float, gt: float, g1: float) -> tuple[float, float, float]:
        """Return A^-1 g."""
        zz, zt, tt, z1, t1, oo = self.zz, self.zt, self.tt, self.z1, self.t1, self.oo
        czz, czt, cz1 = tt * oo - t1 * t1, z1 * t1 - zt * oo, zt * t1 - z1 * tt
        ctt, ct1, c11 = zz * oo - z1 * z1, z1 * zt - zz * t1, zz * tt - zt * zt
        scale = 1.0 / (zz * czz + zt * czt + z1 * cz1)
        return (
            (czz * gz + czt * gt + cz1 * g1) * scale,
            (czt * gz + ctt * gt + ct1 * g1) * scale,
            (cz1 * gz + ct1 * gt + c11 * g1) * scale,
        )

    def _move(self, da: float, dd: float, db: float) -> None:
        low, high, far = self._low, self._high, self._far
        a, d, b = self.a - da, self.d - dd, self.b - db
        if not 0.0 <= d <= high:
            back = -d if d < 0.0 else high - d
            da, db = newton(self.zz, self.z1, self.oo, self.zt * back, self.t1 * back)
            a, d, b = a - da, d + back, b - db
        if not low <= a <= high:
            away, a = a, low if a < low else high
            dd, db = newton(self.tt, self.t1, self.oo, self.zt * (a - away), self.z1 * (a - away))
            d, b = d - dd, b - db
        self.a, self.d = a, 0.0 if d < 0.0 else high if d > high else d  # noqa: FURB136 - calls are dear
        b -= self.t1 / self.oo * (self.d - d)
        self.b = -far if b < -far else far if b > far else b  # noqa: FURB136 - as above
