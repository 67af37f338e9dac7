"""Weighted sums: an event counts by its weight, such as an amount, and by the number of forecasts it stands for."""

import math
from bisect import bisect_right
from struct import Struct
from typing import Final, NamedTuple, Self

from state.scoring.equal import Encoded
from state.scoring.segment_scores import BANDS, EDGES
from state.scoring.wilson import Interval
from state.scoring.windows import KINDS, Alarmed

#: Largest weight of a forecast. It keeps the sum of squares finite when a label stands for many forecasts.
LARGEST: Final = 1e9
#: Standard errors on either side of a bias.
_WIDE: Final = 1.96

_SUMS: Final = 4  # sums of a band: n, Σ w, Σ w p, Σ w y
_BOOK: Final = BANDS * _SUMS
_HEAD: Final = Struct("<5dI")
_BAND: Final = Struct("<Q3d")


class WeightedBand(NamedTuple):
    """One band of a forecast: its ends, events, weight, weighted forecast and weighted outcome."""

    low: float
    high: float
    n: int
    weight: float
    forecast: float
    outcome: float


class Weighted(Encoded):
    """Weighted sums over the events of a stream or segment that have a label, of raw and of served forecasts.

    Notes
    -----
    An event has the weight w = a min(1 / q, 50). a is its ``weight``, 1 if the stream has none; q is the chance of
    its label, 1 if unknown (`state.chances.weight`). So Σ w p and Σ w y estimate what was expected and what came
    true over all forecasts, unlabelled ones included, in the unit of a. Except for chances below .02 this is Horvitz
    & Thompson's estimate.

    All events count, also those of the warm-up and those that teach nothing. A forecast falls into one of 14 bands, see
    `state.scoring.segment_scores.EDGES`. A revision leaves no trace of the old label, except for rounding.

    *Variance.* The variance of Σ w (p - y) is taken as the larger of Σ (w (p - y))² and Σ w² p (1 - p), its value if
    forecasts are right. The first alone is too small while few ones have come: for 2,000 forecasts at a rate of .02,
    with amounts as weights, its interval held the truth in .82 to .92 of the cases.

    Bytes, little-endian: Σ w², Σ (w (p - y))² of raw and of served, Σ w² p (1 - p) of raw and of served (f64 each), a
    mask (u32) of the bands that have events, bit b for band b of raw, bit 14 + b of served; then for each set bit, in
    ascending order, n (u64), Σ w, Σ w p, Σ w y (f64 each). At most 940 bytes.

    References
    ----------
    Horvitz & Thompson 1952, *A Generalization of Sampling Without Replacement from a Finite Universe*; Kish 1965,
    *Survey Sampling*, section 11.7 (`effective`).
    """

    __slots__ = ("_squares", "_sums")

    def __init__(self) -> None:
        self._sums = [0.0] * (2 * _BOOK)
        #: Σ w², Σ (w (p - y))² of raw and of served, Σ w² p (1 - p) of raw and of served.
        self._squares = [0.0] * 5

    def observe(self, raw: float, p: float, y: float, w: float) -> None:
        """Add an event: raw and served forecast, its label, 0 or 1, and its weight, at least 0."""
        sums = self._sums
        self._squares[0] += w * w
        for book, forecast in enumerate((raw, p)):
            i = book * _BOOK + bisect_right(EDGES, forecast) * _SUMS
            sums[i] += 1.0
            sums[i + 1] += w
            sums[i + 2] += w * forecast
            sums[i + 3] += w * y
            self._squares[1 + book] += (w * (forecast - y)) ** 2
            self._squares[3 + book] += w * w * forecast * (1.0 - forecast)

    def revise(self, raw: float, p: float, was: float, y: float, w: float) -> None:
        """Change the label of an event that was observed."""
        for book, forecast in enumerate((raw, p)):
            self._sums[book * _BOOK + bisect_right(EDGES, forecast) * _SUMS + 3] += w * (y - was)
            change = (w * (forecast - y)) ** 2 - (w * (forecast - was)) ** 2
            self._squares[1 + book] += change

    def __add__(self, other: Self) -> Self:
        made = type(self)()
        made._sums = [one + two for one, two in zip(self._sums, other._sums, strict=True)]
        made._squares = [one + two for one, two in zip(self._squares, other._squares, strict=True)]
        return made

    @property
    def n(self) -> int:
        """Events."""
        return int(sum(self._sums[:_BOOK:_SUMS]))

    @property
    def weight(self) -> float:
        """Σ w."""
        return sum(self._sums[1:_BOOK:_SUMS])

    @property
    def happened(self) -> float:
        """Σ w y."""
        return sum(self._sums[3:_BOOK:_SUMS])

    @property
    def observed(self) -> float:
        """Σ w y / Σ w: the weighted share of events that happened; NaN without weight."""
        return self._share(self.happened)

    @property
    def effective(self) -> float:
        """(Σ w)² / Σ w², Kish's effective number of events, at most `n`; 0 without weight."""
        return self.weight**2 / self._squares[0] if self._squares[0] else 0.0

    def expected(self, kind: Alarmed) -> float:
        """Return Σ w p."""
        start = KINDS.index(kind) * _BOOK
        return sum(self._sums[start + 2 : start + _BOOK : _SUMS])

    def mean(self, kind: Alarmed) -> float:
        """Return Σ w p / Σ w; NaN without weight."""
        return self._share(self.expected(kind))

    def off(self, kind: Alarmed) -> float:
        """Return Σ w (p - y): above 0 more was expected than came true."""
        return self.expected(kind) - self.happened

    def bias(self, kind: Alarmed) -> Interval:
        """Return Σ w (p - y) / Σ w with its interval, as if events were independent; NaN without weight."""
        value, book = self._share(self.off(kind)), KINDS.index(kind)
        half = _WIDE * self._share(math.sqrt(max(self._squares[1 + book], self._squares[3 + book], 0.0)))
        return Interval(value, value - half, value + half)

    def error(self, kind: Alarmed) -> float:
        """Return the weighted calibration error over bands, Σ |Σ w (p - y)| / Σ w, in [0, 1]; NaN without weight."""
        start = KINDS.index(kind) * _BOOK
        sums = self._sums[start : start + _BOOK]
        return self._share(sum([abs(wp - wy) for wp, wy in zip(sums[2::_SUMS], sums[3::_SUMS], strict=True)]))

    def bands(self, kind: Alarmed) -> list[WeightedBand]:
        """Return the bands that have weight, from the lowest."""
        edges, start = (0.0, *EDGES, 1.0), KINDS.index(kind) * _BOOK
        made = []
        for band in range(BANDS):
            n, w, wp, wy = self._sums[start + band * _SUMS : start + (band + 1) * _SUMS]
            if w:
                made.append(WeightedBand(edges[band], edges[band + 1], int(n), w, wp / w, wy / w))
        return made

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        mask, parts = 0, b""
        for band in range(2 * BANDS):
            n, w, wp, wy = self._sums[band * _SUMS : (band + 1) * _SUMS]
            if n or w or wp or wy:  # after a rescale an event's sums may be elsewhere than its revision
                mask |= 1 << band
                parts += _BAND.pack(int(n), w, wp, wy)
        return _HEAD.pack(*self._squares, mask) + parts

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises ValueError or struct.error if length, mask and counts do not fit."""
        made = cls()
        *squares, mask = _HEAD.unpack_from(payload)
        if mask >> 2 * BANDS or len(payload) != _HEAD.size + _BAND.size * mask.bit_count():
            raise ValueError(f"weighted sums of mask {mask:#x} have {len(payload)} bytes")
        made._squares = list(squares)
        at = _HEAD.size
        for band in range(2 * BANDS):
            if mask >> band & 1:
                n, *sums = _BAND.unpack_from(payload, at)
                if n >> 53:  # a float holds smaller counts alone
                    raise ValueError(f"weighted sums of {n} events in band {band}")
                made._sums[band * _SUMS : (band + 1) * _SUMS] = [float(n), *sums]
                at += _BAND.size
        return made

    def _share(self, total: float) -> float:
        weight = self.weight
        return total / weight if weight else math.nan
