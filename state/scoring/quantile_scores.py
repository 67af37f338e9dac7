"""Scores of one stream of quantile forecasts, as sums: raw and recalibrated, over the same outcomes."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple, Self, cast

from state.draw import BITS, Draw
from state.forecasts import MAX_LEVELS, Law, Quantiles
from state.scoring.comparison import Difference, paired
from state.scoring.scores import Kind
from state.scoring.sums import Paired

#: Equal-width bins of the probability integral transform.
PIT_BINS = 20

_HEAD = Struct("<I")
_DRAW = Draw("pit")


class LevelCoverage(NamedTuple):
    """Shares of outcomes below a level's quantile, and at or below it. They differ if outcomes equal the quantile."""

    below: float
    upto: float


class QuantileScores(Paired):
    """Additive scores at fixed levels.

    ``levels``: p_1 < ... < p_m: the served levels.

    Notes
    -----
    Counts are integers stored as floats. They are exact up to 2**53, in any order and after events are taken out again.
    Pinball losses and widths are float sums with rounding errors.

    Bytes, little-endian: m (u32), the levels, n, then for raw and for calibrated: for each level the outcomes below its
    quantile, those at or below, and the pinball loss; 20 bins of the transform; for each central interval, outermost
    first, the width: levels k and m - 1 - k, k < m // 2; then Σd² of the mean pinball losses, calibrated minus raw. All
    f64: ``4 + 8 (m + 2 + 2 (3 m + 20 + m // 2))`` bytes. Views are NaN while nothing was observed.
    """

    __slots__ = ()

    def __init__(self, levels: Sequence[float]) -> None:
        m = len(levels)
        super().__init__(tuple(levels), 2 + 2 * (3 * m + PIT_BINS + m // 2))

    @property
    def levels(self) -> tuple[float, ...]:
        """The served levels."""
        return cast("tuple[float, ...]", self.shape)

    def observe(
        self,
        raw: Law,
        served: Quantiles,
        y: float,
        key: bytes = b"",
        sign: int = 1,
        values: Sequence[float] | None = None,
    ) -> None:
        """Add one event, or take it out again.

        Raises ValueError if ``served`` has other levels.

        ``raw, served``: the model's forecast, and the served quantiles at the levels of these scores.
        ``key``: the event id. It keys the random transform at an atom of a forecast.
        ``sign``: 1 adds the event, -1 takes out one that was added.
        ``values``: quantiles of ``raw`` at the levels of these scores, if they are known.
        """
        levels = self.shape
        if served.levels != levels:
            raise ValueError(f"scores of levels {levels} cannot take quantiles of {served.levels}")
        w = (_DRAW(key) + 0.5) / (1 << BITS)
        self.sums[0] += sign
        if values is None:
            values = tuple(map(raw.ppf, levels))
        before = self._observe(1, raw, values, y, w, sign)
        after = self._observe(len(self.sums) // 2, served, served.values, y, w, sign)
        self.sums[-1] += sign * ((after - before) / len(values)) ** 2

    def _observe(self, i: int, law: Law, values: Sequence[float], y: float, w: float, sign: int) -> float:
        """Add an event to the sums of a kind; return its pinball loss over all levels."""
        sums, total = self.sums, 0.0
        for p, q in zip(self.shape, values, strict=True):
            if y < q:
                sums[i] += sign
                sums[i + 1] += sign
                loss = (1.0 - p) * (q - y)
            else:
                if y == q:
                    sums[i + 1] += sign
                loss = p * (y - q)
            sums[i + 2] += sign * loss
            total += loss
            i += 3
        below, at = law.cdf(y)
        u = below + (at - below) * w
        sums[i + min(int(u * PIT_BINS), PIT_BINS - 1)] += sign
        i += PIT_BINS
        for k in range(len(values) // 2):
            sums[i + k] += sign * (values[-1 - k] - values[k])
        return total

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        numbers = (*self.levels, *self.sums)
        return _HEAD.pack(len(self.levels)) + Struct(f"<{len(numbers)}d").pack(*numbers)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read sums written by `encode`; ValueError if the payload's length does not fit its number of levels."""
        m = _HEAD.unpack_from(payload)[0] if len(payload) >= _HEAD.size else 0
        length = m + 2 + 2 * (3 * m + PIT_BINS + m // 2)
        if not 1 <= m <= MAX_LEVELS or len(payload) != _HEAD.size + 8 * length:
            raise ValueError(f"no quantile scores have {m} levels and {len(payload)} bytes")
        numbers = Struct(f"<{length}d").unpack_from(payload, _HEAD.size)
        scores = cls(numbers[:m])
        scores.sums = list(numbers[m:])
        return scores

    def coverage(self, kind: Kind) -> list[LevelCoverage]:
        """Return the coverage of each level."""
        i, m = self._start(kind), len(self.levels)
        return [LevelCoverage(self._mean(self.sums[j]), self._mean(self.sums[j + 1])) for j in range(i, i + 3 * m, 3)]

    def error(self, kind: Kind) -> float:
        """Return the greatest distance of a level from its coverage, in [0, 1].

        Where outcomes equal the quantile, coverage is a range, from those below to those at or below it.
        """
        off = [max(c.below - p, p - c.upto, 0.0) for p, c in zip(self.levels, self.coverage(kind), strict=True)]
        return max(off) if self.sums[0] else math.nan

    def pinball(self, kind: Kind) -> list[float]:
        """Return the mean pinball loss of each level, in units of the outcome; lower is better."""
        i, m = self._start(kind), len(self.levels)
        return [self._mean(loss) for loss in self.sums[i + 2 : i + 3 * m : 3]]

    def regret(self) -> float:
        """Return the cumulative pinball loss over all levels, calibrated minus raw; negative is better than raw."""
        m = len(self.levels)
        raw, calibrated = self._start("raw"), self._start("calibrated")
        return sum(self.sums[calibrated + 2 : calibrated + 3 * m : 3]) - sum(self.sums[raw + 2 : raw + 3 * m : 3])

    def crps(self, kind: Kind) -> float:
        """Return the continuous ranked probability score, computed from the served levels, in units of the outcome.

        It is twice the integral of the pinball loss over the levels (Gneiting & Ranjan 2011, eq. 6). The integral is a
        sum over the levels, each weighted by the part of [0, 1] that is nearest to it. With few levels it is coarse,
        for raw and calibrated alike.
        """
        edges = [0.0, *((a + b) / 2.0 for a, b in pairwise(self.levels)), 1.0]
        widths = (high - low for low, high in pairwise(edges))
        return 2.0 * sum(width * loss for width, loss in zip(widths, self.pinball(kind), strict=True))

    def difference(self) -> Difference:
        """Return the difference of the mean pinball loss, calibrated minus raw, with its standard error.

        Below 0, the served forecasts were better. The error assumes independent events.
        """
        return paired(self.sums[0], self.regret() / len(self.levels), self.sums[-1])

    def pit(self, kind: Kind) -> list[int]:
        """Return how many outcomes fell into each bin of the probability integral transform; uniform if calibrated."""
        i = self._start(kind) + 3 * len(self.levels)
        return list(map(int, self.sums[i : i + PIT_BINS]))

    def widths(self, kind: Kind) -> list[float]:
        """Return the mean width of each central interval, outermost first, in units of the outcome."""
        i, m = self._start(kind) + 3 * len(self.levels) + PIT_BINS, len(self.levels)
        return [self._mean(width) for width in self.sums[i : i + m // 2]]

    def width(self, kind: Kind, coverage: float) -> float:
        """Return the mean width of the narrowest central interval that promises at least this coverage."""
        k = len(self.levels) // 2 - 1
        halves = [self.levels[-1 - j] - self.levels[j] for j in range(k, -1, -1)]
        j = bisect_left(halves, coverage - 1e-12)
        if j > k:
            raise ValueError(f"levels {self.levels} have no central interval of {coverage!r}")
        return self.widths(kind)[k - j]
