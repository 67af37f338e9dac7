"""Where scores of exactly 0 and 1 are placed: their own outcomes decide, and scores keep their order."""

from typing import Final

from state.calibrators.logistic import Z_CLIP

#: Log-odds of a score of 0, plus a margin, because the log-odds of a score of 1 are not exactly as far from 0.
CERTAIN: Final = Z_CLIP + 1e-6
#: A place starts this far beyond the lowest or highest other score, in log-odds.
BEYOND: Final = 1.0
#: Information that resists the step of an outcome.
HELD: Final = 3.0
#: Slope of the read log-odds beyond a place.
FLAT: Final = 0.05


class Certainties:
    """How log-odds are read once a score of 0 or 1 was wrong.

    Notes
    -----
    Scores of 0 and 1 (beyond 1e-6) have log-odds of ∓13.8. Where scores are rounded, a 0 may mean little less than the
    lowest other score. A line through both is too flat everywhere else. So once a forecast of 0 has come true,
    log-odds z below a place, the floor, are read as floor + `FLAT` (z - floor). The floor begins `BEYOND` the
    lowest other score. Each outcome y of a score below it moves it by a step on the log loss of today's answer q,

        floor <- min(floor + a (y - q) / `HELD`, lowest),

    a the slope of the slow map. So a score of 0 is never read above another one, and all keep their order. Scores of 1
    are treated in the same way.
    """

    __slots__ = ("ceiling", "floor", "highest", "lowest")

    def __init__(self) -> None:
        #: The range of the other scores learnt so far, in log-odds.
        self.lowest, self.highest = 0.0, 0.0
        #: The places of scores of 0 and of 1, in log-odds; ∓13.8 while no such score was wrong.
        self.floor, self.ceiling = Z_CLIP, -Z_CLIP

    def read(self, z: float) -> float:
        """Return log-odds as the maps read them."""
        if z < self.floor:
            return self.floor + FLAT * (z - self.floor)
        if z > self.ceiling:
            return self.ceiling + FLAT * (z - self.ceiling)
        return z

    def noted(self, z: float, y: float) -> float:
        """Note the outcome of a score outside lowest and highest, and return its log-odds as the maps read them."""
        if z <= CERTAIN:
            if y > 0.5 and self.floor == Z_CLIP:
                self.floor = max(self.lowest - BEYOND, CERTAIN)
        elif z >= -CERTAIN:
            if y < 0.5 and self.ceiling == -Z_CLIP:
                self.ceiling = min(self.highest + BEYOND, -CERTAIN)
        elif z < self.lowest:
            self.lowest = z
            self.floor = min(self.floor, z)
        else:
            self.highest = z
            self.ceiling = max(self.ceiling, z)
        return self.read(z)

    def learn(self, z: float, g: float) -> None:
        """Move the place that z lies beyond. g is the gradient of the log loss with respect to the log-odds as read."""
        if z < self.floor:
            self.floor = min(max(self.floor - g / HELD, CERTAIN), self.lowest)
        elif z > self.ceiling:
            self.ceiling = max(min(self.ceiling - g / HELD, -CERTAIN), self.highest)
