"""Recalibrated levels of quantile forecasts in several variants, only for the experiments.

`state.calibrators` has the calibrator for serving. This module also has the paper's variant, whose levels cross, and a
wrong one, which sorts levels. It works on the probability integral transforms of outcomes.
"""

from typing import Literal

import numpy as np

from state.arrays import Floats

#: ``crossing`` updates each level separately, as printed; ``sorted`` sorts the levels; ``chain`` keeps their order.
Way = Literal["crossing", "sorted", "chain"]


class Levels:
    """Online gradient descent on the pinball loss, separately for each level.

    ``p``: levels, increasing, [m].
    ``rate``: η.

    Notes
    -----
    s = p + η (p n - k). k counts how often ``u <= play``, with u the probability integral transform of an outcome.
    Deshpande, Marx & Kuleshov 2024, equations 9 to 11, with the sign of the update corrected.
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
        """Count which of the served levels covered an outcome."""
        self.n += 1
        self.covered += u <= play

    def error(self) -> Floats:
        """Return |k / n - p|, [m]."""
        return np.abs(self.covered / self.n - self._p)

    def bound(self, outstanding: int = 0) -> Floats:
        """Return the bound on `error`, [m]: that of the paper, plus h in the chain, for h levels to the anchor."""
        h = np.abs(np.arange(len(self._p)) - self._anchor) if self._way == "chain" else 0
        bound: Floats = (1 / self._rate + 1 + h + outstanding) / self.n * np.ones(len(self._p))
        return bound
