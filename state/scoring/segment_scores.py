"""Scores of one segment of a stream. They are few sums, so that every country and channel can have its own."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final, Self

from state.scoring.alarm import log_wealth
from state.scoring.cells import Bin
from state.scoring.equal import Encoded
from state.scoring.ranking import Estimate, Ranking
from state.scoring.recent import Recent
from state.scoring.warm_up import SegmentWarmUp
from state.scoring.wilson import Interval, wilson
from state.scoring.windows import Alarmed

#: Inner edges of the bands of a forecast: from rare events to even odds, then tenths.
EDGES: Final[tuple[float, ...]] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BANDS: Final = len(EDGES) + 1

#: See `state.scoring.scores.grain`.
_GRAIN: Final = 1.5 * 2.0**22
_SUMS: Final = 4  # sums a band: n, Σy, Σp, Σp²
_BOOK: Final = BANDS * _SUMS
_ROOT: Final = math.sqrt(2.0 / math.pi)
_HEAD: Final = Struct("<4QI")
_BAND: Final = Struct("<QQdd")
_LAST: Final = Struct("<2d")


class SegmentScores(Encoded):
    """Additive scores over the events of one segment.

    Notes
    -----
    A forecast falls into one of 14 bands, see `EDGES`; raw and served forecasts are counted apart. Numbers are rounded
    as in `state.scoring.scores`, so sums are exact: a revision leaves no trace of the old label. Draws are not counted.

    Bytes, little-endian: ``issued``, ``known``, ``expired``, ``age_ms`` (u64 each), a mask of the bands that have
    events (u32), bit b for band b of raw, bit 14 + b for band b of served; then for each set bit, in ascending order, n
    and Σy (u64 each), Σp and Σp² (f64 each); then Σpy of raw and of served (f64 each); then the warm-up, then `Recent`.
    69 bytes without events, and 1,217 at most.
    """

    __slots__ = ("_py", "_sums", "age_ms", "expired", "issued", "known", "recent", "warm_up")

    def __init__(self) -> None:
        #: Forecasts answered.
        self.issued = 0
        #: Events with an outcome, and the summed ages of their forecasts when the outcomes came.
        self.known = 0
        self.age_ms = 0
        #: Forecasts that expired without an outcome.
        self.expired = 0
        #: The last windows of served forecasts.
        self.recent = Recent()
        #: Decides which events count in the scores.
        self.warm_up = SegmentWarmUp()

        self._sums = [0.0] * (2 * _BOOK)
        self._py = [0.0, 0.0]

    def observe(self, raw: float, p: float, y: float, window: int = 0) -> None:
        """Add a resolved event. ``y`` is 0 or 1; for ``window`` see `state.scoring.recent.Recent.observe`."""
        observe([self], raw, p, y, window)

    def add(
        self, first: int, second: int, sign: int, raw: float, raw2: float, served: float, served2: float, y: float
    ) -> None:
        """Add an event to the sums of two bands, which begin at ``first`` and ``second``, see `observe`."""
        sums = self._sums
        sums[first] += sign
        sums[first + 2] += raw
        sums[first + 3] += raw2
        sums[second] += sign
        sums[second + 2] += served
        sums[second + 3] += served2
        if y:
            sums[first + 1] += sign
            sums[second + 1] += sign
            self._py[0] += raw
            self._py[1] += served

    def relabel(self, first: int, second: int, change: float, raw: float, served: float) -> None:
        """Add a revision (-1, 0 or 1) of an event whose forecasts are in these two bands, see `revise`."""
        self._sums[first + 1] += change
        self._sums[second + 1] += change
        self._py[0] += change * raw
        self._py[1] += change * served

    def tidy(self) -> None:
        """Set the sums of empty bands to 0, because sums above 2**23 leave rounding errors."""
        sums = self._sums
        for i in range(0, 2 * _BOOK, _SUMS):
            if not sums[i]:
                sums[i : i + _SUMS] = [0.0] * _SUMS
        if not any(sums):
            self._py = [0.0, 0.0]

    def count(self, kind: Alarmed, band: int, sums: Bin) -> None:
        """Add the sums of several events to a band, for one kind of forecast. The caller also adds the other kind."""
        book = 0 if kind == "raw" else 1
        i = book * _BOOK + band * _SUMS
        self._sums[i] += sums.n
        self._sums[i + 1] += sums.y
        self._sums[i + 2] += sums.p
        self._sums[i + 3] += sums.pp
        self._py[book] += sums.py

    def __add__(self, other: Self) -> Self:
        total = type(self)()
        total.issued = self.issued + other.issued
        total.known = self.known + other.known
        total.age_ms = self.age_ms + other.age_ms
        total.expired = self.expired + other.expired
        total._sums = [one + two for one, two in zip(self._sums, other._sums, strict=True)]
        total._py = [one + two for one, two in zip(self._py, other._py, strict=True)]
        total.recent = self.recent + other.recent
        total.warm_up = self.warm_up.joined(other.warm_up)
        return total

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        sums, mask = self._sums, 0
        parts: list[bytes] = []
        for band in range(2 * BANDS):
            n = sums[band * _SUMS]
            if n:
                mask |= 1 << band
                i = band * _SUMS
                parts.append(_BAND.pack(int(n), int(sums[i + 1]), sums[i + 2], sums[i + 3]))
        head = _HEAD.pack(self.issued, self.known, self.expired, self.age_ms, mask)
        return head + b"".join(parts) + _LAST.pack(*self._py) + self.warm_up.encode() + self.recent.encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote.

        Raises ValueError or struct.error if its length does not fit its mask and windows, or there is no such band.
        """
        if len(payload) < _HEAD.size:
            raise ValueError(f"scores of a segment of {len(payload)} bytes are shorter than their own header")
        scores = cls()
        scores.issued, scores.known, scores.expired, scores.age_ms, mask = _HEAD.unpack_from(payload)
        end = _HEAD.size + _BAND.size * mask.bit_count() + _LAST.size + SegmentWarmUp.SIZE
        if mask >> 2 * BANDS or len(payload) <= end:
            raise ValueError(f"scores of a segment of mask {mask:#x} have over {end} bytes, got {len(payload)}")
        at = _HEAD.size
        for band in range(2 * BANDS):
            if mask >> band & 1:
                scores._sums[band * _SUMS : (band + 1) * _SUMS] = map(float, _BAND.unpack_from(payload, at))
                at += _BAND.size
        scores._py = list(_LAST.unpack_from(payload, at))
        scores.warm_up = SegmentWarmUp.decode(payload, at + _LAST.size)
        at = scores.recent.decode(payload, end)
        if at != len(payload):
            raise ValueError(f"scores of a segment of {len(payload)} bytes end after {at}")
        return scores

    @property
    def n(self) -> int:
        """Number of resolved events, except those of a warm-up."""
        return int(sum(self._sums[:_BOOK:_SUMS]))

    def bands(self, kind: Alarmed) -> list[Bin]:
        """Return the 14 bands of raw or of served forecasts, without Σpy."""
        start = 0 if kind == "raw" else _BOOK
        made = []
        for i in range(start, start + _BOOK, _SUMS):
            n, y, p, pp = self._sums[i : i + _SUMS]
            made.append(Bin(n, p, y, pp, math.nan))
        return made

    def mean(self, kind: Alarmed) -> float:
        """Return the mean forecast; NaN without events."""
        return self._mean(sum([each.p for each in self.bands(kind)]))

    @property
    def observed(self) -> float:
        """The share of events that happened; NaN without events."""
        return self._mean(sum(self._sums[1:_BOOK:_SUMS]))

    def error(self, kind: Alarmed) -> float:
        """Return the expected calibration error over the bands, Σ |Σp - Σy| / n, in [0, 1]; NaN without events."""
        return self._mean(sum([abs(each.p - each.y) for each in self.bands(kind)]))

    def noise(self, kind: Alarmed) -> float:
        """Return the `error` to expect by chance if every forecast were the probability of its outcome."""
        return self._mean(sum([_ROOT * math.sqrt(max(each.p - each.pp, 0.0)) for each in self.bands(kind)]))

    def excess(self, kind: Alarmed) -> float:
        """Return how far `error` exceeds twice its `noise`, at least 0: an error that chance does not explain.

        Segments are ranked by it, because with few events any error is possible.
        """
        return max(self.error(kind) - 2.0 * self.noise(kind), 0.0) if self.n else 0.0

    def brier(self, kind: Alarmed) -> float:
        """Return the mean Brier score; NaN without events."""
        bands = self.bands(kind)
        crossed = self._py[0 if kind == "raw" else 1]
        return self._mean(sum([each.pp + each.y for each in bands]) - 2.0 * crossed)

    def auc(self, kind: Alarmed) -> Estimate:
        """Return the area under the ROC curve over bands. Forecasts of one band are tied, so it is a little low."""
        bands = self.bands(kind)
        return Ranking([int(each.n - each.y) for each in bands], [int(each.y) for each in bands]).auc()

    def log_alarm(self, kind: Alarmed) -> float:
        """Return the log of the evidence that forecasts are not calibrated in this segment, see `state.scoring.alarm`.

        It is the wealth of bets on all its events, an e-value. So at any one time, the probability that one of K
        segments reaches K/α by chance is at most α.
        """
        return log_wealth(self.bands(kind))

    def off(self, kind: Alarmed) -> Interval:
        """Return the mean of forecast minus outcome with its 95 % interval; NaN without events.

        The interval is Wilson's for the observed share, and assumes independent events. An interval from the observed
        variance would be too short for few ones: with one expected, it held the truth in 6 of 10 cases.
        """
        n = self.n
        if not n:
            return Interval(math.nan, math.nan, math.nan)
        mean = self.mean(kind)
        low, high = wilson(self.observed, n)
        return Interval(mean - self.observed, mean - high, mean - low)

    def _mean(self, total: float) -> float:
        n = self.n
        return total / n if n else math.nan


def observe(segments: Sequence[SegmentScores], raw: float, p: float, y: float, window: int = 0, sign: int = 1) -> None:
    """Add a resolved event to each of its segments.

    ``raw, p, y``: the model's forecast, what was served, and 0 or 1.
    ``window``: the window of the stream, see `state.scoring.recent.Recent.observe`.
    ``sign``: 1, or -1 to take an event out of the sums of all events; recent windows keep it.
    """
    # `grain` is written out, because calls would double the time.
    first = bisect_right(EDGES, raw) * _SUMS
    second = _BOOK + bisect_right(EDGES, p) * _SUMS
    near, served = sign * (raw + _GRAIN - _GRAIN), sign * (p + _GRAIN - _GRAIN)
    near2, served2 = sign * (near * near + _GRAIN - _GRAIN), sign * (served * served + _GRAIN - _GRAIN)
    for each in segments:
        each.add(first, second, sign, near, near2, served, served2, y)
        if sign > 0:
            each.recent.observe(served, served2, y, window)
        else:
            each.tidy()


def revise(segments: Sequence[SegmentScores], raw: float, p: float, was: float, y: float, window: int) -> None:
    """Change the label of an event that was observed in a window of the stream."""
    first = bisect_right(EDGES, raw) * _SUMS
    second = _BOOK + bisect_right(EDGES, p) * _SUMS
    change, near, served = y - was, raw + _GRAIN - _GRAIN, p + _GRAIN - _GRAIN
    for each in segments:
        each.relabel(first, second, change, near, served)
        each.recent.change((0.0, change), window)
