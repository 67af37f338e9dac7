"""Axes. They map values to positions in a picture, and place the ticks."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from agents.status.number_format import MONTHS, moment
from state.odds import log_odds

#: A tick: its value and its text.
Tick = tuple[float, str]

_S, _M, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
#: Steps of an axis of times, up to days, ms.
_STEPS: Final = (
    *(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _M for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 5, 7, 14)),
)


@dataclass(frozen=True)
class Scale(ABC):
    """An axis from ``first`` to ``last`` in units of the picture. If values grow upwards, ``last`` is the smaller one.

    ``low, high``: the values at its ends.
    """

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """Return the position of a value; for one beyond the axis, that of the axis's end."""
        return self.first + (self.last - self.first) * min(max(self.part(value), 0.0), 1.0)

    @abstractmethod
    def part(self, value: float) -> float:
        """Return the part of the axis below a value; less than 0 or more than 1 if the value is beyond the ends."""

    @abstractmethod
    def ticks(self, most: int = 6) -> list[Tick]:
        """Return about this many ticks, in order."""


@dataclass(frozen=True)
class Linear(Scale):
    """An axis of numbers, with ticks at round numbers. ``say`` makes the text of ticks; None: plain numbers."""

    say: Callable[[float], str] | None = None

    def part(self, value: float) -> float:
        """Return the part below a value."""
        span = self.high - self.low
        return (value - self.low) / span if span > 0 else 0.5

    def ticks(self, most: int = 6) -> list[Tick]:
        """Return ticks at round numbers."""
        step = round_step((self.high - self.low) / most)
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [n * step for n in range(first, last + 1)]
        return [(v, self.say(v) if self.say else f"{v:,.{decimals}f}".replace("-", "−")) for v in values]


@dataclass(frozen=True)
class Log(Scale):
    """A logarithmic axis with ticks at powers of ten. 0 and negative numbers are at its low end."""

    def part(self, value: float) -> float:
        """Return the part below a value."""
        return math.log(value / self.low) / math.log(self.high / self.low) if value > self.low else 0.0

    def ticks(self, most: int = 6) -> list[Tick]:
        """Return ticks at powers of ten. On a long axis only every second or third power has a tick."""
        low, high = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        step = max(1, math.ceil((high - low + 1) / most))
        return [(10.0**n, f"{10.0**n:.{max(0, -n)}f}") for n in range(low, high + 1, step)]


@dataclass(frozen=True)
class LogOdds(Scale):
    """An axis of probabilities in (0, 1), linear in log-odds: rare events have as much room as others."""

    @classmethod
    def of(cls, values: Iterable[float], first: float, last: float) -> "LogOdds":
        """Return an axis that covers all values within [1e-5, 1 - 1e-5]. It ends at ticks."""
        known = [min(max(each, _LEAST), 1.0 - _LEAST) for each in values]
        low, high = min(known, default=_LEAST), max(known, default=1.0 - _LEAST)
        first_tick = max((n for n, each in enumerate(_ODDS) if each <= low * (1.0 + 1e-9)), default=0)
        last_tick = min((n for n, each in enumerate(_ODDS) if each >= high * (1.0 - 1e-9)), default=len(_ODDS) - 1)
        if first_tick >= last_tick:
            first_tick, last_tick = max(first_tick - 1, 0), min(last_tick + 1, len(_ODDS) - 1)
        return cls(_ODDS[first_tick], _ODDS[last_tick], first, last)

    def part(self, value: float) -> float:
        """Return the part below a probability."""
        low, high = log_odds(self.low), log_odds(self.high)
        return (log_odds(min(max(value, self.low), self.high)) - low) / (high - low)

    def ticks(self, most: int = 6) -> list[Tick]:
        """Return ticks at probabilities that people name, in percent."""
        inside = [each for each in _ODDS if self.low <= each <= self.high]
        decades = [each for each in inside if each in _DECADES]
        shown = inside if len(inside) <= most else decades if len(decades) > 2 else inside
        step = max(1, -(-len(shown) // most))
        return [(each, f"{100 * each:.6g} %") for each in shown[::step]]


#: Probabilities at which axes of log-odds end and have ticks.
_DECADES: Final = (0.00001, 0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_ODDS: Final = tuple(
    sorted(
        {*_DECADES, 0.00003, 0.0003, 0.003, 0.03, 0.0002, 0.0005, 0.002, 0.005, 0.02, 0.05, 0.2, 0.3, 0.7, 0.8, 0.95}
    )
)
_LEAST: Final = 1e-5


@dataclass(frozen=True)
class TimeAxis(Linear):
    """An axis of times in ms since the epoch, with ticks at round calendar times, UTC."""

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
                named = "" if found and month else f" {year}"
                found.append((at, f"{MONTHS[month]}{named}" if step < 12 else f"{year}"))
        return found


def round_step(least: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is at least ``least``; 1 if that is 0.

    Examples
    --------
    >>> round_step(0.03), round_step(7), round_step(0)
    (0.05, 10.0, 1.0)
    """
    if not least > 0:
        return 1.0
    power = math.floor(math.log10(least))
    steps = (times * 10.0**power if power >= 0 else times / 10.0**-power for times in (1, 2, 5, 10))
    return next(step for step in steps if step >= least * (1 - 1e-9))


def _said(ms: int, step: int) -> str:
    at = moment(ms)
    if step >= _D or not ms % _D:
        return f"{at.day} {MONTHS[at.month - 1]}"
    if step >= _M:
        return f"{at:%H:%M}"
    if step >= _S:
        return f"{at:%H:%M:%S}"
    return f"{at:%S}.{ms % 1000:03}"
