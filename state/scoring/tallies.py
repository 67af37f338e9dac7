"""Tallies of a window of classes or numbers: few sums, which give the window's error and its alarm."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import Final, Self, cast

from state import counts
from state.forecasts import Classwise
from state.scoring.alarm import log_level_bet, log_sum, log_wealth
from state.scoring.cells import BINS, Bin
from state.scoring.scores import grain
from state.scoring.sums import Sums
from state.scoring.windows import KINDS, Alarmed

_ROOT: Final = math.sqrt(2.0 / math.pi)
_MASK: Final = Struct("<I")
_BIN: Final = Struct("<QQdd")
_SUMS: Final = 4  # sums of a bin: n, hits, Σp, Σp²


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
        """Return the mean error that chance alone causes in the level that it moves most."""
        return _ROOT * math.sqrt(max(p * (1.0 - p) for p in self.levels) / self.n) if self.n else math.nan

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

    Bytes, little-endian: a mask (u32) of the bins that have events, bit b for bin b of raw, bit 10 + b for calibrated;
    then for each set bit, in ascending order, n and hits (u64 each), Σp and Σp² (f64 each). At most 644 bytes.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, len(KINDS) * BINS * _SUMS)

    def observe(self, raw: Classwise, served: Classwise, y: int, sign: int = 1) -> None:
        """Add one event of class ``y``, or with ``sign = -1`` take out one that was added."""
        sums, start = self.sums, 0
        for forecast in (raw, served):
            top = max(forecast)
            p = grain(top)
            i = start + (int(top * BINS) if top < 1.0 else BINS - 1) * _SUMS
            sums[i] += sign
            sums[i + 1] += sign * (forecast.index(top) == y)
            sums[i + 2] += sign * p
            sums[i + 3] += sign * grain(p * p)
            start += BINS * _SUMS

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        mask, parts = 0, b""
        for i in range(0, len(self.sums), _SUMS):
            n, hits, p, pp = self.sums[i : i + _SUMS]
            if n:
                mask |= 1 << i // _SUMS
                parts += _BIN.pack(int(n), int(hits), p, pp)
        return _MASK.pack(mask) + parts

    def decode(self, payload: bytes, at: int) -> tuple[Self, int]:
        """Read what `encode` wrote; return it and the offset after it; ValueError if it names impossible bins."""
        read = type(self)()
        (mask,) = _MASK.unpack_from(payload, at)
        at += _MASK.size
        if mask >> len(KINDS) * BINS:
            raise ValueError(f"a tally of mask {mask:#x} has bins that there are not")
        for i in range(len(KINDS) * BINS):
            if mask >> i & 1:
                read.sums[i * _SUMS : (i + 1) * _SUMS] = map(float, _BIN.unpack_from(payload, at))
                at += _BIN.size
        return read, at

    @property
    def n(self) -> int:
        """Events."""
        return int(sum(self.sums[: BINS * _SUMS : _SUMS]))

    def bins(self, kind: Alarmed) -> list[Bin]:
        """Return the ten bins of the highest probability, without Σpy."""
        start = BINS * _SUMS * KINDS.index(kind)
        made = []
        for i in range(start, start + BINS * _SUMS, _SUMS):
            n, hits, p, pp = self.sums[i : i + _SUMS]
            made.append(Bin(n, p, hits, pp, math.nan))
        return made

    def error(self, kind: Alarmed) -> float:
        """Return the expected calibration error of the highest probability, in [0, 1]."""
        return sum(abs(each.p - each.y) for each in self.bins(kind)) / self.n if self.n else math.nan

    def noise(self, kind: Alarmed) -> float:
        """Return the `error` to expect by chance if every highest probability were the chance of its class."""
        n = self.n
        return sum(_ROOT * math.sqrt(max(each.p - each.pp, 0.0)) for each in self.bins(kind)) / n if n else math.nan

    def log_wealth(self, kind: Alarmed) -> float:
        """Return the log of the wealth of bets that the highest probability is not calibrated, see `alarm`."""
        return log_wealth(self.bins(kind)) if self.n else 0.0


#: The tally for each kind of forecast.
Tally = LevelTally | TopTally
