"""The distribution of a stream's raw forecasts, in the last week and before that. It needs no outcomes."""

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import add
from struct import Struct
from typing import Final, Self

from state.counts import Counts, decode_cells, encode_cells, raised, together
from state.odds import probability
from state.quick import search
from state.scoring.ages import DAY_MS
from state.scoring.equal import Encoded

#: Inner edges of the cells: the smallest positive float, log-odds from -14 to 14 in steps of one half, and 1. So
#: forecasts of exactly 0 and exactly 1 have cells of their own.
EDGES: Final[tuple[float, ...]] = (
    5e-324,
    *(probability(k / 2) for k in range(-28, 29)),
    1.0,
)
CELLS: Final = len(EDGES) + 1

#: Length of a period, a day of stream time; and how many past days count as recent. A week holds a weekend, and so
#: does the past. Single days differ too much: of the flights of 2013, with nothing broken, 39 % of days shift by
#: more than .25.
RECENT: Final = 7
#: Memory in days with forecasts: with each new one, a day's weight is multiplied by 1 - 1/MEMORY.
MEMORY: Final = 32
#: Earlier days, and recent forecasts, needed for a comparison.
ENOUGH: Final = 7
FEWEST: Final = 100
#: Shift from which people are alerted: see `Distribution.shift`.
SHIFTED: Final = 0.25
#: Shift from which recent forecasts are broken: they are kept out of the past until the shift is small again. After so
#: many days they replace the past.
BROKEN: Final = 1.0
SETTLED: Final = 28
#: Days that may pass after a break before the shift reaches `BROKEN`.
_UNSEEN: Final = 2

_HEAD: Final = Struct("<QIH")
#: Bytes of past and recent days if none has forecasts.
_YOUNG: Final = encode_cells([0]) * (1 + RECENT)

#: Counts of a day without forecasts; and all recent days without any. Shared to save memory, they never change.
_NONE: Final[Counts] = bytearray(CELLS)
_NO_DAYS: Final = [_NONE] * RECENT


class Distribution(Encoded):
    """Counts of raw forecasts by cell of log-odds: recent ones by day, and a fading sum of those before.

    Notes
    -----
    The present day and the `RECENT` days before it are recent. Older days are added to the past, which fades by the
    share 1/`MEMORY` with each added day that has a forecast. The past is in whole units of 1/`MEMORY` forecast, so its
    bytes are the same on every machine. Days are of stream time, so counts of partitions may be added.

    **Breaks.** From a shift above `BROKEN` until one below `SHIFTED`, new days are not added to the past. So scores
    that were broken for some days are compared with those before the break. After `SETTLED` days recent forecasts
    become the new past: the model has changed for good.

    Bytes, little-endian: the present day since 1970 (u64), days in the past (u32), the last days at whose end the
    forecasts were broken (u16); then the counts of the present day, of the past, and of the recent days, the oldest
    first, as `state.counts.encode_cells` has them. Usually about 350 bytes, at most 5 kB.
    """

    __slots__ = ("_broken", "_day", "_days", "_filled", "_kept", "_past", "_present")

    def __init__(self) -> None:
        self._day = 0
        self._present: Counts = bytearray(CELLS)
        #: Recent days, the oldest first; replaced, never changed.
        self._days: list[Counts] = _NO_DAYS
        self._past: Counts = _NONE
        self._filled = 0
        #: Days since the forecasts broke; 0 if they are not broken.
        self._broken = 0
        #: Cached bytes of `encode`, without the present day; empty if they changed.
        self._kept = _YOUNG

    def observe(self, raw: float, now_ms: int) -> None:
        """Count a forecast.

        ``raw``: in [0, 1].
        ``now_ms``: stream time, which never falls, ms.
        """
        day = now_ms // DAY_MS
        if day != self._day:
            self._advance(day)
        self._present = raised(self._present, search(EDGES, raw))

    def _advance(self, day: int) -> None:
        """Go on to a later day. The days between have no forecast. Stream time 0 belongs to the first known day."""
        if self._day and (self._kept != _YOUNG or any(self._present)):
            for _ in range(min(day - self._day, RECENT + 1)):
                self._end()
        self._day = day

    def _end(self) -> None:
        oldest = self._days[0]
        self._days = [*self._days[1:], self._present]
        self._present = bytearray(CELLS)
        self._kept = b""
        if not any(oldest):
            return
        self._filled += 1
        before = self._broken
        self._broken = self._broken + 1 if self.shift() > (SHIFTED if self._broken else BROKEN) else 0
        if self._broken == SETTLED:
            self._past, self._broken = [MEMORY * n for n in self.recent], 0
        elif max(before, self._broken) <= RECENT - _UNSEEN:
            self._past = [n - n // MEMORY + MEMORY * new for n, new in zip(self._past, oldest, strict=True)]

    def __add__(self, other: Self) -> Self:
        """Return the counts of both, as of the later day of the two."""
        pair = [type(self).decode(each.encode()) for each in (self, other)]
        for each in pair:
            each._advance(max(self._day, other._day))
        made, beside = pair
        made._filled, made._broken = max(made._filled, beside._filled), max(made._broken, beside._broken)
        made._present = together(made._present, beside._present)
        made._past = together(made._past, beside._past)
        made._days = [together(*each) for each in zip(made._days, beside._days, strict=True)]
        made._kept = b""
        return made

    @property
    def recent(self) -> list[int]:
        """Recent forecasts by cell."""
        return [sum(each) for each in zip(self._present, *self._days, strict=True)]

    @property
    def latest(self) -> list[int]:
        """Forecasts since yesterday by cell."""
        return list(map(add, self._present, self._days[-1]))

    @property
    def before(self) -> list[float]:
        """Earlier forecasts by cell; older ones count less."""
        return [n / MEMORY for n in self._past]

    @property
    def comparable(self) -> bool:
        """Whether there are enough forecasts to compare recent ones with earlier ones."""
        return self._filled >= ENOUGH and sum(self.recent) >= FEWEST

    def shift(self) -> float:
        """Return the shift of recent forecasts against earlier ones, at least 0; NaN if there are too few.

        Notes
        -----
        This is the population stability index over the cells that have a forecast, Σ (a - b) ln(a / b) with a and b the
        shares of a cell among recent and earlier forecasts, or the sum of both Kullback-Leibler divergences. One half
        is added to every count, so that no term is infinite. What chance alone adds is subtracted: (K - 1)(1/n + 1/m)
        of K cells, n recent and m earlier forecasts (half of the index is χ² / 2 of two samples). By custom, below .1
        nothing has changed, and from .25 on the population is a different one. For normal log-odds, .25 is a move by
        half their deviation.

        References
        ----------
        Jeffreys 1946; Lewis 1994, *An Introduction to Credit Scoring*; Yurdakul & Naranjo 2020, *Statistical
        properties of the population stability index*.
        """
        return psi(self.recent, self.before) if self.comparable else math.nan

    def median(self) -> float:
        """Return the median of forecasts since yesterday, to a step of the cells; NaN without any."""
        return _median(self.latest)

    def median_before(self) -> float:
        """Return the median of earlier forecasts, to a step of the cells; NaN without any."""
        return _median(self.before)

    def encode(self) -> bytes:
        """Return the counts; layout in the class's notes."""
        if not self._kept:
            self._kept = b"".join(map(encode_cells, (self._past, *self._days)))
        return _HEAD.pack(self._day, self._filled, self._broken) + encode_cells(self._present) + self._kept

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; ValueError if it is cut, or names cells that do not exist."""
        if len(payload) < _HEAD.size:
            raise ValueError(f"a distribution of {len(payload)} bytes is shorter than its own header")
        made = cls()
        made._day, made._filled, made._broken = _HEAD.unpack_from(payload)
        made._present, at = decode_cells(payload, _HEAD.size, CELLS, "a distribution")
        made._kept = payload[at:]
        if made._kept == _YOUNG:
            return made
        made._past, at = decode_cells(payload, at, CELLS, "a distribution")
        made._days = []
        for _ in range(RECENT):
            day, at = decode_cells(payload, at, CELLS, "a distribution")
            made._days.append(day)
        if at != len(payload):
            raise ValueError(f"a distribution has {at} bytes, got {len(payload)}")
        return made


def psi(recent: Sequence[float], before: Sequence[float]) -> float:
    """Return the population stability index of two samples by cell, see `Distribution.shift`; NaN if one is empty."""
    pairs = [(a, b) for a, b in zip(recent, before, strict=True) if a or b]
    n, m = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    if not n or not m:
        return math.nan
    added = len(pairs) / 2
    found = 0.0
    for a, b in pairs:
        here, there = (a + 0.5) / (n + added), (b + 0.5) / (m + added)
        found += (here - there) * math.log(here / there)
    return max(found - (len(pairs) - 1) * (1.0 / n + 1.0 / m), 0.0)


def _median(counts: Sequence[float]) -> float:
    total = sum(counts)
    if not total:
        return math.nan
    cell = next(k for k, n in enumerate(accumulate(counts)) if 2 * n >= total)
    if cell == 0:
        return 0.0
    low, high = EDGES[cell - 1], (*EDGES, 1.0)[cell]
    return low + (high - low) * (total / 2 - sum(counts[:cell])) / counts[cell]
