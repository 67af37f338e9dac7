"""Tallies of a window of classes or numbers: few sums, which give the window's error and its alarm."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Self, cast

from state import counts
from state.forecasts import Classwise
from state.scoring import cells
from state.scoring.alarm import log_level_bet, log_sum, log_wealth
from state.scoring.cells import BINS, ROOT, SUMS, Bin, grain
from state.scoring.sums import Sums
from state.scoring.windows import KINDS, Alarmed


class LevelTally(Sums):
    """Where outcomes lie among the quantiles of their forecasts, over one stretch of events.

    ``levels``: p_1 < ... < p_m.

    Notes
    -----
    Two numbers say where an outcome lies: how many quantiles are below it, and how many are at or below it. Both are
    counted as whole numbers, for raw and for calibrated. So the tally is exact in any order, even after events are
    taken out again.

    Bytes, as `state.counts.encode` has them: n, then for raw and for calibrated the events with 0..m quantiles at or
    below the outcome, and those with 0..m quantiles below it.
    """

    __slots__ = ()

    def __init__(self, levels: Sequence[float]) -> None:
        super().__init__(tuple(levels), 1 + 4 * (len(levels) + 1))

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels."""
        return cast("tuple[float, ...]", self.shape)

    @property
    def n(self) -> int:
        """Events."""
        return int(self.sums[0])

    def observe(self, raw: Sequence[float], served: Sequence[float], y: float, sign: int = 1) -> None:
        """Add one event, or take it out again.

        ``raw, served``: their quantiles at the levels; they never decrease.
        ``sign``: 1 adds the event, -1 takes out one that was added.
        """
        sums, width = self.sums, len(self.shape) + 1
        sums[0] += sign
        sums[1 + bisect_right(raw, y)] += sign
        sums[1 + width + bisect_left(raw, y)] += sign
        sums[1 + 2 * width + bisect_right(served, y)] += sign
        sums[1 + 3 * width + bisect_left(served, y)] += sign

    def encode(self) -> bytes:
        """Return the counts; layout in the class's notes."""
        return counts.encode(list(map(int, self.sums)))

    def decode(self, payload: bytes, at: int) -> tuple[Self, int]:
        """Read what a tally of these levels encoded; return it and the offset after it."""
        read, end = counts.decode(payload, at, len(self.sums), "a tally")
        return self._with(list(map(float, read))), end

    def coverage(self, kind: Alarmed) -> list[tuple[float, float]]:
        """Return for each level how many outcomes lay below its quantile, and how many at or below."""
        width = len(self.levels) + 1
        start = 1 + 2 * width * KINDS.index(kind)
        below = list(accumulate(self.sums[start : start + width]))
        upto = list(accumulate(self.sums[start + width : start + 2 * width]))
        return list(zip(below[:-1], upto[:-1], strict=True))

    def error(self, kind: Alarmed) -> float:
        """Return the greatest distance of a level from its coverage, or from the range of it at an atom, in [0, 1]."""
        n = self.n
        found = zip(self.levels, self.coverage(kind), strict=True)
        return max(max(below / n - p, p - upto / n, 0.0) for p, (below, upto) in found) if n else math.nan

    def noise(self, kind: Alarmed) -> float:  # noqa: ARG002 - of raw and calibrated it is the same
        """Return the mean error that chance alone gives to the level that it moves most."""
        return ROOT * math.sqrt(max(p * (1.0 - p) for p in self.levels) / self.n) if self.n else math.nan

    def log_wealth(self, kind: Alarmed) -> float:
        """Return the log of the wealth of bets that levels are not calibrated, see `alarm.log_level_bet`.

        Levels share outcomes, so their wealths are averaged, not multiplied: m levels cost log m.
        """
        n = self.n
        if not n:
            return 0.0
        bets = [
            log_level_bet(below - n * p, upto - n * p, n * p * (1.0 - p))
            for p, (below, upto) in zip(self.levels, self.coverage(kind), strict=True)
        ]
        return log_sum(bets) - math.log(len(bets))


class TopTally(Sums):
    """How often the likeliest class occurred, by its probability, over one stretch of events.

    Notes
    -----
    For raw and for calibrated forecasts: ten bins of the highest probability p, each with n, the events in which that
    class occurred (hits), Σp and Σp². Probabilities are rounded as in `state.scoring.scores`, so the sums are exact.

    Bytes: those of `state.scoring.cells.encode`. At most 644.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, len(KINDS) * BINS * SUMS)

    def observe(self, raw: Classwise, served: Classwise, y: int, sign: int = 1) -> None:
        """Add one event of class ``y``, or with ``sign = -1`` take out one that was added."""
        sums, start = self.sums, 0
        for forecast in (raw, served):
            top = max(forecast)
            p = grain(top)
            i = start + (int(top * BINS) if top < 1.0 else BINS - 1) * SUMS
            sums[i] += sign
            sums[i + 1] += sign * (forecast.index(top) == y)
            sums[i + 2] += sign * p
            sums[i + 3] += sign * grain(p * p)
            start += BINS * SUMS

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        return cells.encode(self.sums)

    def decode(self, payload: bytes, at: int) -> tuple[Self, int]:
        """Read what `encode` wrote; return it and the offset after it; raises as `state.scoring.cells.decode`."""
        sums, at = cells.decode(payload, at, len(self.sums))
        return self._with(sums), at

    @property
    def n(self) -> int:
        """Events."""
        return int(sum(self.sums[: BINS * SUMS : SUMS]))

    def bins(self, kind: Alarmed) -> list[Bin]:
        """Return the ten bins of the highest probability, without Σpy."""
        return cells.bins(self.sums, KINDS.index(kind))

    def error(self, kind: Alarmed) -> float:
        """Return the expected calibration error of the highest probability, in [0, 1]."""
        return cells.total_off(self.bins(kind)) / self.n if self.n else math.nan

    def noise(self, kind: Alarmed) -> float:
        """Return the `error` to expect by chance if every highest probability were that of its class."""
        return cells.off_by_chance(self.bins(kind)) / self.n if self.n else math.nan

    def log_wealth(self, kind: Alarmed) -> float:
        """Return the log of the wealth of bets that the highest probability is not calibrated, see `alarm`."""
        return log_wealth(self.bins(kind)) if self.n else 0.0


#: The tally for each kind of forecast.
Tally = LevelTally | TopTally
