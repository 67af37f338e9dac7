"""Axes: from values to places in a picture, and where their ticks stand."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from replay.report.number_format import MONTHS, moment

#: A tick: its value and what it says.
Tick = tuple[float, str]

_S, _M, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
#: Steps of an axis of times up to days, ms.
_STEPS: Final = (
    *(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _M for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 5, 7, 14)),
)


class Scale(Protocol):
    """An axis from ``first`` to ``last`` in the picture's units."""

    @property
    def low(self) -> float:
        """The value at ``first``."""

    @property
    def high(self) -> float:
        """The value at ``last``."""

    @property
    def first(self) -> float:
        """Where the axis begins."""

    @property
    def last(self) -> float:
        """Where it ends; below ``first`` where values grow upwards."""

    def at(self, value: float) -> float:
        """Return the place of a value; of one beyond the axis, its end."""

    def ticks(self, most: int = 6) -> list[Tick]:
        """Return about so many ticks, in order."""


@dataclass(frozen=True)
class Linear:
    """An axis of numbers from ``low`` to ``high``; ``say`` words its ticks where plain numbers will not do."""

    low: float
    high: float
    first: float
    last: float
    say: Callable[[float], str] | None = None

    def at(self, value: float) -> float:
        """Return the place of a value."""
        span = self.high - self.low
        part = (value - self.low) / span if span > 0 else 0.5
        return self.first + (self.last - self.first) * min(max(part, 0.0), 1.0)

    def ticks(self, most: int = 6) -> list[Tick]:
        """Return ticks at round numbers."""
        step = round_step((self.high - self.low) / most)
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [n * step for n in range(first, last + 1)]
        return [(v, self.say(v) if self.say else f"{v:,.{decimals}f}".replace("-", "−")) for v in values]


@dataclass(frozen=True)
class Log:
    """An axis of positive numbers, whose ticks are powers of ten."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """Return the place of a value; 0 and below stand at the low end."""
        if value <= self.low:
            return self.first
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.first + (self.last - self.first) * min(part, 1.0)

    def ticks(self, most: int = 6) -> list[Tick]:
        """Return powers of ten, of a long axis every second or third."""
        low, high = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        step = max(1, math.ceil((high - low + 1) / most))
        return [(10.0**n, f"{10.0**n:.{max(0, -n)}f}") for n in range(low, high + 1, step)]


@dataclass(frozen=True)
class Times:
    """An axis of times in ms since the epoch, whose ticks are round in the calendar, UTC."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """Return the place of a time."""
        return Linear(self.low, self.high, self.first, self.last).at(value)

    def ticks(self, most: int = 6) -> list[Tick]:
        """Return ticks at whole months, days, hours and so on."""
        wanted = (self.high - self.low) / most
        if wanted > 14 * _D:
            return self._months(most)
        step = next((step for step in _STEPS if step >= wanted), _STEPS[-1])
        values = range(math.ceil(self.low / step) * step, math.floor(self.high) + 1, step)
        return [(float(v), _said(v, step)) for v in values]

    def _months(self, most: int) -> list[Tick]:
        start, end = moment(int(self.low)), moment(int(self.high))
        first, last = start.year * 12 + start.month - 1, end.year * 12 + end.month - 1
        step = next(
            step for step in (1, 2, 3, 6, 12, 24, 60, 120, 600, 1200, 12_000, 120_000) if (last - first) / step < most
        )
        found: list[Tick] = []
        for n in range(math.ceil(first / step) * step, last + 1, step):
            year, month = divmod(n, 12)
            if not 1 <= year <= 9999:
                continue
            at = datetime(year, month + 1, 1, tzinfo=UTC).timestamp() * 1000.0
            if self.low <= at <= self.high:
                named = not found or not month
                found.append(
                    (
                        at,
                        f"{MONTHS[month]} {year}" if named and step < 12 else MONTHS[month] if step < 12 else f"{year}",
                    )
                )
        return found


def round_step(least: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is at least so much; 1 for nothing.

    Examples
    --------
    >>> round_step(0.03), round_step(7), round_step(0)
    (0.05, 10.0, 1.0)
    """
    if not least > 0:
        return 1.0
    power = math.floor(math.log10(least))
    for times, exponent in ((1, power), (2, power), (5, power), (1, power + 1)):
        step = times * 10.0**exponent if exponent >= 0 else times / 10.0**-exponent
        if step >= least * (1 - 1e-9):
            return step
    return 10.0 ** (power + 1)


def _said(ms: int, step: int) -> str:
    at = moment(ms)
    if step >= _D or not ms % _D:
        return f"{at.day} {MONTHS[at.month - 1]}"
    if step >= _M:
        return f"{at:%H:%M}"
    if step >= _S:
        return f"{at:%H:%M:%S}"
    return f"{at:%S}.{ms % 1000:03}"
