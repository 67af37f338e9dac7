"""How old forecasts were when their outcomes came, by label."""

import math
from itertools import accumulate
from struct import Struct
from typing import Final, Self

from state.counts import EMPTY, Counts, decode_cells, encode_cells, packed, raised, together
from state.quick import search
from state.scoring.equal import Encoded

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

#: Inner edges of the cells of ages, ms: from a minute to 11 years. Each is the one before times the root of 2.
EDGES: Final[tuple[float, ...]] = tuple(float(round(MINUTE_MS * 2.0 ** (k / 2))) for k in range(46))
CELLS: Final = len(EDGES) + 1
#: Class numbers above this one count as this one.
LABELS: Final = 16

#: Labels of one record time that count as one fact in `state.calibrators.guard`. Fewer flights land in one minute.
BATCH: Final = 20
#: Among labels that share a record time, an earlier label counts half after so many further ones.
FADE: Final = 10_000
#: Fewest outcomes of each label before labels are compared.
FEWEST_EACH: Final = 20
_HEAD: Final = Struct("<Qq5I")
_UNITS: Final = (("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS))
_EXACT: Final = (*_UNITS, ("s", 1000), ("ms", 1))


class Ages(Encoded):
    """Counts of outcomes by age and label, and of forecasts that expired without an outcome.

    Notes
    -----
    An age falls into one of 47 cells: below a minute, then 45 cells, each wider than the one before by the root of 2,
    and above 11 years. So a quantile has an error of at most 20 %. Counts of partitions may be added.

    It also counts labels that follow another of the same record time, and how many of them differ from it.

    Bytes, little-endian: forecasts that expired (u64), the last record time (i64, ms), the label that came last, labels
    that followed another of their record time, how many of them differed from it, how many of them were ones, and
    labels since these three were halved, at most `FADE` (u32 each). Then for each label that has come, in ascending
    order: the label (u8), its counts as `state.counts.encode_cells` has them. With two labels usually about 130 bytes;
    at most 6.3 kB.
    """

    __slots__ = ("_at", "_counts", "_differed", "_followed", "_last", "_ones", "_seen", "expired")

    def __init__(self) -> None:
        self.expired = 0
        self._at, self._last, self._seen = 0, 0, 0
        #: Labels that followed another one of the same record time; how many of them differed from it; and how many
        #: were ones.
        self._followed, self._differed, self._ones = 0, 0, 0
        #: Counts of the labels from 0 on, as many as have come: `CELLS` each.
        self._counts: Counts = bytearray()

    def observe(self, age_ms: int, label: int, at: int = 0) -> None:
        """Count the first outcome of an event.

        ``age_ms``: age of its forecast, at least 0.
        ``label``: 0 or 1, or the number of a class; 0 for outcomes that are numbers.
        ``at``: record time of the outcome, ms; 0 if its forecast names an entity.
        """
        label = min(label, LABELS - 1)
        self._seen += 1
        if self._seen == FADE:
            self._seen = 0
            self._followed, self._differed, self._ones = self._followed // 2, self._differed // 2, self._ones // 2
        if at:
            if at == self._at:
                self._followed += 1
                self._differed += label != self._last
                self._ones += label > 0
            self._at, self._last = at, label
        first = label * CELLS
        if len(self._counts) <= first:
            self._counts.extend(bytes(first + CELLS - len(self._counts)))
        self._counts = raised(self._counts, first + search(EDGES, age_ms))

    def expire(self) -> None:
        """Count a forecast that expired without an outcome."""
        self.expired += 1

    def __add__(self, other: Self) -> Self:
        total = type(self)()
        total.expired = self.expired + other.expired
        total._seen = (self._seen + other._seen) % FADE
        total._followed = self._followed + other._followed
        total._differed = self._differed + other._differed
        total._ones = self._ones + other._ones
        total._counts = together(self._counts, other._counts)
        return total

    def encode(self) -> bytes:
        """Return the counts; layout in the class's notes."""
        made = _HEAD.pack(self.expired, self._at, self._last, self._followed, self._differed, self._ones, self._seen)
        for label in range(len(self._counts) // CELLS):
            counts = encode_cells(self._of(label))
            if counts != EMPTY:
                made += bytes((label,)) + counts
        return made

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; ValueError if it is cut, or names labels or cells that do not exist."""
        if len(payload) < _HEAD.size:
            raise ValueError(f"ages of {len(payload)} bytes are shorter than their own header")
        ages = cls()
        ages.expired, ages._at, ages._last, ages._followed, ages._differed, ages._ones, ages._seen = _HEAD.unpack_from(
            payload
        )
        at, before, found = _HEAD.size, -1, list[int]()
        while at < len(payload):
            label = payload[at]
            counts, end = decode_cells(payload, at + 1, CELLS, "ages")
            if not before < label < LABELS or not any(counts):
                raise ValueError(f"ages of {len(payload)} bytes have counts of labels there are not, at {at}")
            found.extend(bytes((label - before - 1) * CELLS))
            found.extend(counts)
            at, before = end, label
        ages._counts = packed(found)
        return ages

    @property
    def labels(self) -> list[int]:
        """The labels that have come, in ascending order."""
        return [label for label in range(LABELS) if any(self._of(label))]

    def n(self, label: int) -> int:
        """Return how many outcomes of a label have come."""
        return sum(self._of(label))

    @property
    def total(self) -> int:
        """The number of outcomes of all labels."""
        return sum(self._counts)

    def quantile(self, label: int | None, level: float) -> float:
        """Return the quantile of the ages of a label's outcomes, or of all outcomes, ms; NaN without outcomes."""
        counts = self._all() if label is None else self._of(label)
        left = level * sum(counts)
        if not any(counts):
            return math.nan
        for cell, count in enumerate(counts):
            if count and left <= count:
                low, high = _bounds(cell)
                return low + (high - low) * left / count
            left -= count
        return EDGES[-1]  # rounding errors may end here

    def after(self, age_ms: float, until_ms: float = math.inf) -> float:
        """Return the share of the outcomes that came after an age; NaN without outcomes.

        No outcome can be older than ``until_ms``. Ages are assumed to spread evenly over a cell, up to ``until_ms``.
        """
        counts, total = self._all(), self.total
        if not total:
            return math.nan
        late = 0.0
        for cell, count in enumerate(counts):
            low, high = _bounds(cell)
            high = max(min(high, until_ms), low)
            late += count * (min(max((high - age_ms) / (high - low), 0.0), 1.0) if high > low else low >= age_ms)
        return late / total

    def apart(self) -> float:
        """Return the largest difference between the age distributions of one label and of all others, in [0, 1].

        NaN if there is no label such that it and the others each have `FEWEST_EACH` outcomes. 0 if the difference is
        not significant at 1 % (Kolmogorov-Smirnov test).
        """
        everything, total = self._all(), self.total
        most = math.nan
        for label in self.labels:
            counts = self._of(label)
            n, m = sum(counts), total - sum(counts)
            if min(n, m) >= FEWEST_EACH:
                pairs = zip(accumulate(counts), accumulate(everything), strict=True)
                off = max(abs(a / n - (b - a) / m) for a, b in pairs)
                off = off if off > 1.63 * math.sqrt(total / (n * m)) else 0.0
                most = off if math.isnan(most) else max(most, off)
        return most

    def turns(self) -> tuple[int, int, float]:
        """Return how many labels followed another of their record time, how many differed from it, and how many should.

        Of n independent labels in any order, 2 n π (1 - π) differ from the one before, with π the share of ones.
        """
        n, turns, ones = self._followed, self._differed, self._ones
        return n, turns, 2.0 * ones * (n - ones) / n if n else 0.0

    def _of(self, label: int) -> Counts:
        return self._counts[label * CELLS : (label + 1) * CELLS] or bytearray(CELLS)

    def _all(self) -> list[int]:
        return [sum(self._counts[cell::CELLS]) for cell in range(CELLS)]


def _bounds(cell: int) -> tuple[float, float]:
    """Return where a cell begins and ends, ms. The last cell is assumed to be as long as the one before."""
    low = EDGES[cell - 1] if cell else 0.0
    return low, EDGES[cell] if cell < len(EDGES) else low * math.sqrt(2.0)


def words(ms: float) -> str:
    """Return a duration as in a configuration file, rounded up to whole days, or to hours or minutes if it is short.

    Examples
    --------
    >>> words(45 * DAY_MS), words(2 * DAY_MS), words(2 * DAY_MS + 1), words(1.6 * DAY_MS), words(90_000), words(0)
    ('45d', '48h', '3d', '39h', '2m', '1m')
    """
    for unit, size in _UNITS:
        if ms > 2 * size:
            return f"{math.ceil(ms / size)}{unit}"
    return f"{max(math.ceil(ms / MINUTE_MS), 1)}m"


def exact(ms: int) -> str:
    """Return a duration as in a configuration file, in the largest unit of which it is a whole number.

    Examples
    --------
    >>> exact(20 * DAY_MS), exact(36 * HOUR_MS), exact(90_000), exact(1500), exact(0)
    ('20d', '36h', '90s', '1500ms', '0d')
    """
    return next(f"{ms // size}{unit}" for unit, size in _EXACT if ms % size == 0)
