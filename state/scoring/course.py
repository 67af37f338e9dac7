"""The course of a stream: sums of forecasts, served scores and outcomes, by hour and day of stream time."""

from struct import Struct
from typing import Final, Self

from state.scoring.ages import DAY_MS, HOUR_MS
from state.scoring.cells import grain
from state.scoring.equal import Encoded

#: Hours and days that are kept, the present ones included.
HOURS: Final = 25
DAYS: Final = 31

#: Sums of a period: forecasts answered, events learnt, ones, raw and served forecasts, and their variance.
ISSUED: Final = 0
KNOWN: Final = 1
ONES: Final = 2
RAW: Final = 3
SERVED: Final = 4
VARIANCE: Final = 5
_HEAD: Final = Struct("<qqBB")
_PERIOD: Final = Struct("<IIIiddd")

Sums = list[float]


class _Period:
    """The sums of an hour or a day, and its number since 1970."""

    __slots__ = ("at", "issued", "known", "ones", "raw", "served", "variance")

    def __init__(
        self,
        at: int,
        issued: float = 0.0,
        known: float = 0.0,
        ones: float = 0.0,
        raw: float = 0.0,
        served: float = 0.0,
        variance: float = 0.0,
    ) -> None:
        self.at = at
        self.issued, self.known, self.ones = issued, known, ones
        self.raw, self.served, self.variance = raw, served, variance

    def resolve(self, raw: float, p: float, y: float, variance: float) -> None:
        self.known += 1.0
        self.ones += y
        self.raw += raw
        self.served += p
        self.variance += variance

    def sums(self) -> Sums:
        return [self.issued, self.known, self.ones, self.raw, self.served, self.variance]

    def add(self, other: "_Period") -> None:
        self.issued += other.issued
        self.known += other.known
        self.ones += other.ones
        self.raw += other.raw
        self.served += other.served
        self.variance += other.variance

    def encode(self) -> bytes:
        counts = int(self.issued), int(self.known), int(self.ones)
        return _PERIOD.pack(self.at, *counts, self.raw, self.served, self.variance)


#: The period of a course without any. It never changes.
_NEVER: Final = _Period(-1)


class Course(Encoded):
    """Sums of the last hours and days of a stream on one partition.

    Notes
    -----
    An event counts when it is learnt, but not if it is from a warm-up that has ended by then. A revision counts when it
    comes, and changes only the ones: as in book-keeping, a later period corrects a label of an earlier one. For classes
    and numbers only the first two sums are kept.

    Bytes, little-endian: ``forecast_ms``, ``label_ms`` (i64 each), how many hours and days follow (u8 each); then of
    each, in order, its number since 1970, forecasts, events (u32 each), ones (i32), Σ raw, Σ served, Σ p(1 - p) of what
    was served (f64 each). At most 2.3 kB.
    """

    __slots__ = ("_days", "_hour", "_hours", "_this_day", "_this_hour", "forecast_ms", "label_ms")

    def __init__(self) -> None:
        #: Stream time of the last forecast; and event time of the latest reported outcome. 0 if there is none.
        self.forecast_ms = 0
        self.label_ms = 0
        self._hours: list[_Period] = []
        self._days: list[_Period] = []
        #: The present hour; its sums and those of its day.
        self._hour = -1
        self._this_hour = self._this_day = _NEVER

    @property
    def hours(self) -> dict[int, Sums]:
        """Sums by hour since 1970, see `ISSUED` and those after it: [6] each."""
        return {each.at: each.sums() for each in self._hours}

    @property
    def days(self) -> dict[int, Sums]:
        """Sums by day since 1970, as `hours`."""
        return {each.at: each.sums() for each in self._days}

    def issue(self, now_ms: int) -> None:
        """Count a forecast; ``now_ms`` is stream time, which never falls."""
        self._go_to(now_ms)
        self.forecast_ms = now_ms
        self._this_hour.issued += 1.0
        self._this_day.issued += 1.0

    def resolve(self, raw: float, p: float, y: float, now_ms: int) -> None:
        """Count an event that is learnt: raw and served forecast, outcome."""
        rough, near = grain(raw), grain(p)
        spread = grain(p * (1.0 - p))
        self._go_to(now_ms)
        self._this_hour.resolve(rough, near, y, spread)
        self._this_day.resolve(rough, near, y, spread)

    def revise(self, by: float, now_ms: int) -> None:
        """Count a revision, which changes the ones by -1 or 1."""
        self._go_to(now_ms)
        self._this_hour.ones += by
        self._this_day.ones += by

    def _go_to(self, now_ms: int) -> None:
        """Go to the hour and the day of a time; drop old periods."""
        hour = now_ms // HOUR_MS
        if hour != self._hour:
            if not self.forecast_ms and self._hours and not self._hours[0].at:
                # Stream time is 0 until several records agree (`state.witnesses`): what came before belongs here.
                self._hours[0].at, self._days[0].at = hour, now_ms // DAY_MS
            self._hour = hour
            self._this_hour = _begin(self._hours, hour, HOURS)
            self._this_day = _begin(self._days, now_ms // DAY_MS, DAYS)

    def __add__(self, other: Self) -> Self:
        """Return the course of both."""
        made = type(self)()
        made.forecast_ms = max(self.forecast_ms, other.forecast_ms)
        made.label_ms = max(self.label_ms, other.label_ms)
        for into, parts, most in (
            (made._hours, (*self._hours, *other._hours), HOURS),
            (made._days, (*self._days, *other._days), DAYS),
        ):
            for each in sorted(parts, key=lambda each: each.at):
                _begin(into, each.at, most).add(each)
        return made

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        made = _HEAD.pack(self.forecast_ms, self.label_ms, len(self._hours), len(self._days))
        for periods in (self._hours, self._days):
            for each in periods:
                made += each.encode()
        return made

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises ValueError or struct.error if it is cut or too long."""
        course = cls()
        course.forecast_ms, course.label_ms, hours, days = _HEAD.unpack_from(payload)
        if len(payload) != _HEAD.size + (hours + days) * _PERIOD.size or hours > HOURS or days > DAYS:
            raise ValueError(f"a course of {len(payload)} bytes has {hours} hours and {days} days")
        for n, period in enumerate(_PERIOD.iter_unpack(payload[_HEAD.size :])):
            at, issued, known, ones, *sums = period
            made = _Period(at, float(issued), float(known), float(ones), *sums)
            (course._hours if n < hours else course._days).append(made)
        return course


def _begin(periods: list[_Period], at: int, most: int) -> _Period:
    """Return the period for ``at`` from some in order; usually it is the latest. At most ``most`` are kept."""
    if periods and periods[-1].at >= at:  # usually it is later than the last one
        for each in periods:
            if each.at == at:
                return each
        periods.append(made := _Period(at))
        periods.sort(key=lambda each: each.at)
    else:
        periods.append(made := _Period(at))
    while periods[0].at <= periods[-1].at - most:
        del periods[0]
    return made
