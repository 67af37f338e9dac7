"""Counts of forecasts and labels by band. They also say whether a band's share moved without evidence."""

import math
from collections.abc import Sequence
from operator import add, sub
from struct import Struct
from typing import Final, NamedTuple, Self

from state.counts import decode_cells, encode_cells
from state.scoring.equal import Encoded

#: Days that are kept, the present one included; earlier days that a comparison needs; and forecasts (or labels) that a
#: day needs to count.
DAYS: Final = 16
ENOUGH: Final = 7
FEWEST: Final = 100
#: How far a share must move to be reported: in standard deviations of chance, and as a factor that people would notice.
CHANCE: Final = 6.0
FACTOR: Final = 1.25
#: Standard deviations from which the rate of outcomes has moved, too, so that there is evidence.
EVIDENCE: Final = 2.0

#: Each forecast that a label stands for counts `UNIT` units: sums of integers are not rounded.
UNIT: Final = 1000

#: The counts of each band: forecasts, and in units of 1 / `UNIT` those with a label and those with label 1.
ISSUED: Final = 0
KNOWN: Final = 1
ONES: Final = 2
_SUMS: Final = 3
_HEAD: Final = Struct("<BB")
_DAY: Final = Struct("<I")


class BandCounts(Encoded):
    """Counts by band, of the raw and of the served forecasts; in all, and by day of stream time.

    Notes
    -----
    Counts may be added over partitions. A label counts in the partition where it came. So after a rescale one partition
    may have more labels than forecasts, or after revisions a negative number of ones. The sums over partitions are
    right. By day, a label counts on the day when it was learnt, and revisions do not count.

    A label whose chance is known counts for as many forecasts as it stands for (`state.chances.weight`). So precision,
    recall and cost are those of all forecasts, however labels were chosen (Horvitz & Thompson 1952).

    An event counts once: on its day, or among events without a day. When a day is no longer kept, its counts are added
    to those without a day.

    Bytes, little-endian: ``width``, and how many days follow (u8 each), ``sums`` (i64 each), then of each day, in
    order, its number since 1970 (u32) and the same counts as `state.counts.encode_cells` has them.

    Examples
    --------
    Of 1,000 forecasts a day 20 are for review, and on the last day 60; no more of them come true than before:

    >>> counts = BandCounts(2)
    >>> for day in range(1, 12):
    ...     for n in range(1000):
    ...         counts.issue(0, int(n < (60 if day == 10 else 20)), day)
    ...         counts.resolve(0, 0, 1, int(n < 10), day)
    >>> counts.moved(1, 1), counts.moved(0, 1)
    (3.0, 1.0)
    """

    __slots__ = ("_day", "_days", "_of_day", "_others", "width")

    def __init__(self, width: int, sums: list[int] | None = None) -> None:
        #: Number of bands.
        self.width = width
        #: `ISSUED`, `KNOWN` and `ONES` of each band of raw forecasts, then of served ones: [6 · width]. First for
        #: events whose day is not kept, then by day.
        self._others = [0] * (2 * _SUMS * width) if sums is None else sums
        self._days: dict[int, list[int]] = {}
        #: The present day (0 for none) and its counts.
        self._day = 0
        self._of_day = self._others

    @property
    def sums(self) -> list[int]:
        """The counts over all days: [6 · width]."""
        sums = [*self._others]
        for counts in self._days.values():
            sums = list(map(add, sums, counts))
        return sums

    def issue(self, before: int, now: int, day: int) -> None:
        """Count a forecast by its bands, raw and served; ``day`` is since 1970, 0 for counts without days."""
        counts = self._of_day if day == self._day else self._begin(day)
        now += _SUMS * self.width
        counts[before] += 1
        counts[now] += 1

    def resolve(self, before: int, now: int, known: int, ones: int, day: int, stands: int = UNIT) -> None:
        """Count a label of a forecast of these bands.

        ``known`` is 1. For a revision it is 0, and ``ones`` is 1 or -1. ``stands``: how many forecasts the label stands
        for, in units of 1 / `UNIT`.
        """
        w, day = self.width, day if known else 0
        before, now = w + before, (_SUMS + 1) * w + now
        counts = self._of_day if day == self._day else self._begin(day)
        if known:
            counts[before] += stands
            counts[now] += stands
        if ones:
            counts[before + w] += ones * stands
            counts[now + w] += ones * stands

    def _begin(self, day: int) -> list[int]:
        """Make a day the present one; return its counts."""
        counts = self._days.get(day)
        if counts is None and day and day > max(self._days, default=0) - DAYS:
            counts = self._days[day] = [0] * len(self._others)
            for old in [each for each in self._days if each <= day - DAYS]:
                self._others = list(map(add, self._others, self._days.pop(old)))
        self._day, self._of_day = day, self._others if counts is None else counts
        return self._of_day

    def _on(self, day: int) -> list[int]:
        return self._days.get(day, [0] * len(self._others))

    def of(self, kind: int, what: int) -> list[float]:
        """Return one count by band: `ISSUED`, `KNOWN` or `ONES`, of raw (0) or served (1) forecasts."""
        at = (kind * _SUMS + what) * self.width
        sums = self.sums[at : at + self.width]
        return [*sums] if what == ISSUED else [each / UNIT for each in sums]

    def days(self) -> dict[int, Self]:
        """Return the counts of each kept day since 1970, the earliest first."""
        return {day: type(self)(self.width, self._days[day]) for day in sorted(self._days)}

    def __add__(self, other: Self) -> Self:
        """Return the counts of both; ValueError if they are of other bands."""
        if self.width != other.width:
            raise ValueError(f"counts of {self.width} and of {other.width} bands have no sum")
        made = type(self)(self.width, list(map(add, self._others, other._others)))
        for day in sorted(self._days.keys() | other._days.keys()):
            made._begin(day)[:] = list(map(add, self._on(day), other._on(day)))
        return made

    def moved(self, kind: int, band: int) -> float:
        """Return the factor by which a band's share changed on the last whole day without evidence; 1.0 if it did not.

        Notes
        -----
        The last whole day is compared with those before it, at least `ENOUGH`. Chance is the larger of two deviations:
        between days, and of counts of independent forecasts. (With many forecasts, any difference exceeds the second
        one.) The share has moved if it is `CHANCE` standard deviations off, and by `FACTOR`. There is evidence if the
        share of ones among that day's labels is off by `EVIDENCE` standard deviations, in either direction: a band in
        the middle may lose to the one above. Late labels belong to older forecasts. The lowest band is not judged,
        because the others determine it.

        On 335 days of flights with two bands above the lowest, 12 shares moved, in storms, all with evidence. With 4
        standard deviations there are 20, two of them without evidence. Of 212 days of made payments one moved: the day
        when calibrated scores replaced raw ones, forty times as high. None moved where the volume was held.
        """
        if not band:
            return 1.0
        days = [self._days[day] for day in sorted(self._days)[:-1]]
        w = self.width
        at, known = kind * _SUMS * w, (kind * _SUMS + KNOWN) * w
        share = _off([(each[at + band], sum(each[at : at + w])) for each in days])
        if abs(share.deviations) < CHANCE or 1.0 / FACTOR < share.factor < FACTOR:
            return 1.0
        labels = [(sum(each[known + w : known + 2 * w]), sum(each[known : known + w])) for each in days]
        rate = _off([(ones / UNIT, told / UNIT) for ones, told in labels])
        return 1.0 if abs(rate.deviations) >= EVIDENCE else share.factor

    def encode(self) -> bytes:
        """Return the counts; layout in the class's notes."""
        sums = self.sums
        parts: list[bytes] = [_HEAD.pack(self.width, len(self._days)), Struct(f"<{len(sums)}q").pack(*sums)]
        for day in sorted(self._days):
            parts += [_DAY.pack(day), encode_cells(self._days[day])]
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; ValueError or struct.error if it is cut, or too long."""
        width, days = _HEAD.unpack_from(payload)
        layout = Struct(f"<{2 * _SUMS * width}q")
        sums = list(layout.unpack_from(payload, _HEAD.size))
        at = _HEAD.size + layout.size
        found: dict[int, list[int]] = {}
        for _ in range(days):
            (day,) = _DAY.unpack_from(payload, at)
            counts, at = decode_cells(payload, at + _DAY.size, len(sums), "counts of bands")
            found[day] = list(counts)
            sums = list(map(sub, sums, counts))
        if at != len(payload):
            raise ValueError(f"counts of bands have {at} bytes, got {len(payload)}")
        made = cls(width, sums)
        made._days = found
        return made


class _Off(NamedTuple):
    """How far a day's share is off the days before: a factor, and standard deviations; 1 and 0 if days are too few."""

    factor: float
    deviations: float


def _off(days: Sequence[tuple[float, float]]) -> _Off:
    """Return how the last day's share compares with the days before. Each day is a count and its total."""
    shares = [k / n for k, n in days if n >= FEWEST]
    if len(shares) <= ENOUGH or days[-1][1] < FEWEST:
        return _Off(1.0, 0.0)
    last, past, n = shares[-1], shares[:-1], days[-1][1]
    mean = sum(past) / len(past)
    between = sum([(each - mean) ** 2 for each in past]) / (len(past) - 1)
    alone = max(mean, 1.0 / n) / n
    off = (last - mean) / math.sqrt(max(between, alone) + between / len(past))
    return _Off(last / mean if mean else last * n, off)


class Worth(NamedTuple):
    """What looking at a band's forecasts is worth. None stands for unknown."""

    #: Share of ones among the labels of the band.
    precision: float | None
    #: Share of the ones that are in the band or above.
    recall: float | None
    #: How many zeros are in the band for each of its ones.
    false_alarms: float | None
    #: Cost of the ones missed below the band, plus cost of reviewing all labelled forecasts in the band or above; None
    #: if costs are unknown.
    cost: float | None


def worth(known: Sequence[float], ones: Sequence[float], band: int, costs: tuple[float, float] | None) -> Worth:
    """Return the worth of a band.

    ``known, ones``: for each band, the number of forecasts with a label, and with the label 1.
    ``costs``: cost of a missed one (an outcome of 1), and cost of reviewing a forecast.
    """
    looked, hits, caught, every = known[band], ones[band], sum(ones[band:]), sum(ones)
    return Worth(
        hits / looked if looked else None,
        caught / every if every else None,
        (looked - hits) / hits if hits else None,
        None if costs is None else costs[0] * (every - caught) + costs[1] * sum(known[band:]),
    )
