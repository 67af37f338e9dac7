"""Recalibrated levels of quantile forecasts, for the experiments alone: many variants, on the transforms of outcomes.

`state.calibrators` has the calibrator that serves; this one also plays what the paper has and what must not be done,
levels that cross and levels that are sorted.
"""

from typing import Literal

import numpy as np

from state.arrays import Floats

#: ``crossing`` plays each level by itself, as printed; ``sorted`` sorts what it plays; ``chain`` keeps the order.
Way = Literal["crossing", "sorted", "chain"]


class Levels:
    """Online gradient descent on the quantile pinball loss, a level each.

    Parameters
    ----------
    p
        Levels, increasing, [m].
    rate
        η.

    Notes
    -----
    s = p + η (p n - k), k how often ``u <= play`` for u the probability integral transform of an outcome. Deshpande,
    Marx & Kuleshov 2024, equations 9 to 11, with the sign of the update put right.
    """

    def __init__(self, p: Floats, rate: float, way: Way = "chain") -> None:
        self._p, self._rate, self._way = p, rate, way
        self._anchor = int(np.argmin(np.abs(p - 0.5)))
        self.n = 0
        self.covered = np.zeros(len(p))

    def play(self) -> Floats:
        """Return the raw level served for each level, [m]; below 0 nothing is covered, above 1 everything."""
        s = self._p + self._rate * (self._p * self.n - self.covered)
        if self._way == "sorted":
            s.sort()
        elif self._way == "chain":
            a = self._anchor
            s[a:] = np.maximum.accumulate(s[a:])
            s[: a + 1] = np.minimum.accumulate(s[a::-1])[::-1]
        return s

    def update(self, play: Floats, u: float) -> None:
        """Count what was covered by levels that were played."""
        self.n += 1
        self.covered += u <= play

    def error(self) -> Floats:
        """Return |k / n - p|, [m]."""
        return np.abs(self.covered / self.n - self._p)

    def bound(self, outstanding: int = 0) -> Floats:
        """Return the bound on `error`, [m]: the paper's, times what the chain adds for h levels to the anchor."""
        h = np.abs(np.arange(len(self._p)) - self._anchor) if self._way == "chain" else 0
        bound: Floats = (1 / self._rate + 1 + h + outstanding) / self.n * np.ones(len(self._p))
        return bound
