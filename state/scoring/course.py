"""The course of a stream: sums of forecasts, served scores and outcomes, by hour and day of stream time."""

from struct import Struct
from typing import Final, Self

from state.scoring.ages import DAY_MS, HOUR_MS
from state.scoring.scores import grain

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


class Course:
    """Sums of the last hours and days of a stream on one partition.

    Notes
    -----
    An event counts when it is learnt; one of a warm-up that is over by then does not. A revision counts when it comes,
    and changes only the ones: it corrects a label of an earlier period in a later one, as in book-keeping. For classes
    and numbers only the first two sums are kept.

    Bytes, little-endian: ``forecast_ms``, ``label_ms`` (i64 each), how many hours and days follow (u8 each); then of
    each, in order, its number since 1970, forecasts, events (u32 each), ones (i32), Σ raw, Σ served, Σ p(1 - p) of what
    was served (f64 each). At most 2.3 kB.
    """

    __slots__ = ("_hour", "_now", "days", "forecast_ms", "hours", "label_ms")

    def __init__(self) -> None:
        #: Stream time of the last forecast; event time of the latest outcome that was reported. 0 without any.
        self.forecast_ms = 0
        self.label_ms = 0
        #: Sums by hour and by day since 1970, see `ISSUED` and those after it: [6] each.
        self.hours: dict[int, Sums] = {}
        self.days: dict[int, Sums] = {}
        #: The present hour; its sums and its day's are cached.
        self._hour = -1
        self._now: tuple[Sums, Sums] = ([], [])

    def issue(self, now_ms: int) -> None:
        """Count a forecast; ``now_ms`` is stream time, which never falls."""
        self.forecast_ms = now_ms
        for sums in self._at(now_ms):
            sums[ISSUED] = sums[ISSUED] + 1.0

    def resolve(self, raw: float, p: float, y: float, now_ms: int) -> None:
        """Count an event that is learnt: raw and served forecast, outcome."""
        rough, near = grain(raw), grain(p)
        spread = grain(p * (1.0 - p))
        for sums in self._at(now_ms):
            # Not `+=`: compiled, that adds objects, not numbers.
            sums[KNOWN] = sums[KNOWN] + 1.0
            sums[ONES] = sums[ONES] + y
            sums[RAW] = sums[RAW] + rough
            sums[SERVED] = sums[SERVED] + near
            sums[VARIANCE] = sums[VARIANCE] + spread

    def revise(self, by: float, now_ms: int) -> None:
        """Count a revision, which changes the ones by -1 or 1."""
        for sums in self._at(now_ms):
            sums[ONES] += by

    def _at(self, now_ms: int) -> tuple[Sums, Sums]:
        """Return the sums of the present hour and day; old periods are dropped."""
        hour = now_ms // HOUR_MS
        if hour != self._hour:
            self._hour = hour
            self._now = _begin(self.hours, hour, HOURS), _begin(self.days, now_ms // DAY_MS, DAYS)
        return self._now

    def __add__(self, other: Self) -> Self:
        """Return the course of both."""
        made = type(self)()
        made.forecast_ms = max(self.forecast_ms, other.forecast_ms)
        made.label_ms = max(self.label_ms, other.label_ms)
        for into, parts, most in (
            (made.hours, (self.hours, other.hours), HOURS),
            (made.days, (self.days, other.days), DAYS),
        ):
            for at in sorted({*parts[0], *parts[1]}):
                sums = _begin(into, at, most)
                for part in [part for part in parts if at in part]:
                    sums[:] = [a + b for a, b in zip(sums, part[at], strict=True)]
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Course) and self.encode() == other.encode()

    __hash__ = None  # type: ignore[assignment]  # sums change

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        parts = [_HEAD.pack(self.forecast_ms, self.label_ms, len(self.hours), len(self.days))]
        for periods in (self.hours, self.days):
            for at, sums in sorted(periods.items()):
                issued, known, ones, raw, served, variance = sums
                parts.append(_PERIOD.pack(at, int(issued), int(known), int(ones), raw, served, variance))
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises ValueError or struct.error if it is cut or too long."""
        course = cls()
        course.forecast_ms, course.label_ms, hours, days = _HEAD.unpack_from(payload)
        if len(payload) != _HEAD.size + (hours + days) * _PERIOD.size or hours > HOURS or days > DAYS:
            raise ValueError(f"a course of {len(payload)} bytes has {hours} hours and {days} days")
        for n, period in enumerate(_PERIOD.iter_unpack(payload[_HEAD.size :])):
            at, *sums = period
            (course.hours if n < hours else course.days)[at] = [float(each) for each in sums]
        return course


def _begin(periods: dict[int, Sums], at: int, most: int) -> Sums:
    """Return the sums of a period, usually the latest; at most ``most`` periods are kept."""
    sums = periods.get(at)
    if sums is None:
        sums = periods[at] = [0.0] * 6
        for old in [each for each in periods if each <= max(periods) - most]:
            del periods[old]
    return sums
