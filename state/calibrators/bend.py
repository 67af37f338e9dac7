"""A piecewise linear correction of log-odds. It bends only where outcomes support it, and keeps the order of scores."""

import math
from typing import Final

from state.calibrators.base import require_length
from state.calibrators.logistic import lacking, sigmoid
from state.quick import floats

#: Least slope of v + r(v).
FLAT: Final = 0.05
_LN2: Final = math.log(2.0)


class Bend:
    """A function r of log-odds v, linear between knots and constant outside, with v + r(v) strictly increasing.

    ``low, step, knots``: the first knot, the distance between knots, and their number, at least 2.
    ``prior``: information that r = 0 counts for at every knot.

    Notes
    -----
    With x the position of v in units of knots, i = floor(x) and s = x - i, r(v) = (1 - s) r_i + s r_{i+1}. An outcome
    is one step of a Kalman filter whose covariance is kept diagonal: with q = sigmoid(v + r(v)), h = q (1 - q), weights
    g = (1 - s, s) and curvatures H,

        r_j <- r_j + (y - q) g_j / (H_j (1 + h Σ g²/H)) - λ prior r_j / H_j,   H_j <- (1 - λ) H_j + λ prior + h g_j²,

    λ = ln(2) h / halflife. Near a knot with few outcomes, r stays near 0. A step is cut where it would leave v + r(v)
    with a slope below `FLAT`, so r stays in a convex set.

    Bytes: r, then H, of every knot (f64 each), little-endian.

    Examples
    --------
    >>> bend = Bend(-3.0, 1.0, 7, 5.0)
    >>> for t in range(4000):
    ...     bend.learn(1.0, float(t % 2), 1e9)
    >>> round(1.0 + bend.at(1.0), 1), bend.at(-2.0)
    (0.1, 0.0)
    """

    __slots__ = ("_bytes", "_held", "_least", "_low", "_most", "_prior", "_r", "_step")

    def __init__(self, low: float, step: float, knots: int, prior: float) -> None:
        self._low, self._step, self._prior = low, step, prior
        self._most = float(knots - 1)
        self._least = (FLAT - 1.0) * step
        self._r = [0.0] * knots
        self._held = [prior] * knots
        self._bytes = floats(2 * knots)

    def at(self, v: float) -> float:
        """Return r(v)."""
        x = min(max((v - self._low) / self._step, 0.0), self._most)
        i = min(int(x), len(self._r) - 2)
        left = self._r[i]
        return left + (x - i) * (self._r[i + 1] - left)

    def learn(self, v: float, y: float, halflife: float) -> None:
        """Take the step of an outcome, 0 or 1, at log-odds v. ``halflife`` is in units of information."""
        x = min(max((v - self._low) / self._step, 0.0), self._most)
        i = min(int(x), len(self._r) - 2)
        right = x - i
        q = 1.0 / (1.0 + math.exp(-min(max(v + (1.0 - right) * self._r[i] + right * self._r[i + 1], -30.0), 30.0)))
        information = q * (1.0 - q)
        self._take(i, right, y - q, information, information * _LN2 / halflife)

    def step(self, v: float, g: float) -> None:
        """Take the step of a revision: g is the old label minus the new one, with the curvature of `lacking`."""
        x = min(max((v - self._low) / self._step, 0.0), self._most)
        i = min(int(x), len(self._r) - 2)
        self._take(i, x - i, -g, lacking(sigmoid(v + self.at(v)), 1.0 if g < 0.0 else 0.0), 0.0)

    def _take(self, i: int, right: float, g: float, curvature: float, fade: float) -> None:
        """Take the step of an error g at the knots i and i + 1. The knot i + 1 has weight ``right``."""
        left = 1.0 - right
        h0, h1 = self._held[i], self._held[i + 1]
        g /= 1.0 + curvature * (left * left / h0 + right * right / h1)
        pull = fade * self._prior
        self._move(i, (g * left - pull * self._r[i]) / h0, (g * right - pull * self._r[i + 1]) / h1)
        self._held[i] = h0 + fade * (self._prior - h0) + curvature * left * left
        self._held[i + 1] = h1 + fade * (self._prior - h1) + curvature * right * right

    def _move(self, i: int, one: float, other: float) -> None:
        """Move the knots i and i + 1, as far as v + r(v) keeps rising."""
        r, least = self._r, self._least
        a, b = r[i], r[i + 1]
        part = 1.0
        if other < one and b - a + other - one < least:
            part = min(part, max((least - (b - a)) / (other - one), 0.0))
        if i > 0 and one < 0.0 and a + one - r[i - 1] < least:
            part = min(part, max((least - (a - r[i - 1])) / one, 0.0))
        if i + 2 < len(r) and other > 0.0 and r[i + 2] - b - other < least:
            part = min(part, max((r[i + 2] - b - least) / other, 0.0))
        r[i], r[i + 1] = a + part * one, b + part * other

    def encode(self) -> bytes:
        return self._bytes.pack(*self._r, *self._held)

    def decode(self, payload: bytes) -> None:
        require_length(payload, self._bytes.size)
        values = list(self._bytes.unpack(payload))
        knots = len(self._r)
        self._r, self._held = values[:knots], values[knots:]
