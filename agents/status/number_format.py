"""Numbers for people: significant digits, true minus signs, units."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from agents.status.markup import Markup, tag

#: Stands for a missing number.
NONE: Final = "–"
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def cell(value: float | None, said: str) -> Markup:
    """Return a number with its full value in an attribute, so that programs can also read the page."""
    if value is None or not math.isfinite(value):
        return tag("span", NONE)
    return tag("data", said, value=repr(value))


def valued(said: Callable[..., str]) -> Callable[..., Markup]:
    """Return a format that also writes the full value into an attribute."""
    return lambda value, *more: cell(value, "" if value is None else said(value, *more))


def score(value: float | None) -> str:
    """Return a probability, an error or a loss: four decimals."""
    return NONE if value is None or not math.isfinite(value) else f"{value:.4f}".replace("-", "−")


def signed(value: float | None, decimals: int = 4) -> str:
    """Return a difference with its sign, or without a sign if it rounds to 0.

    Examples
    --------
    >>> signed(-0.0339), signed(0.00001), signed(1234.5, 0)
    ('−0.0339', '0.0000', '+1,234')
    """
    if value is None or not math.isfinite(value):
        return NONE
    said = f"{value:+,.{decimals}f}"
    return said[1:] if not float(said.replace(",", "")) else said.replace("-", "−")


def difference(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Return a difference and its interval with equally many decimals: four, more if an end would look like 0.

    An end that looks like 0 would leave open whether the interval contains 0.

    Examples
    --------
    >>> difference(-0.0006, -0.0014, -0.00002)
    ('−0.00060', '−0.00140', '−0.00002')
    """
    nearest = min(abs(low), abs(high)) if low * high > 0 else math.inf
    decimals = next((n for n in range(4, 8) if nearest >= 0.5 * 10**-n), 8)
    return signed(value, decimals), signed(low, decimals), signed(high, decimals)


def count(value: int | None) -> str:
    """Return a count with its thousands separated."""
    return NONE if value is None else f"{value:,}".replace("-", "−")


def share(value: float | None) -> str:
    """Return a share in percent with one decimal; <0.1% or >99.9% if less than .0005 from 0 or 1, but not there.

    Examples
    --------
    >>> share(0.9995), share(0.99999), share(0.0), share(0.00001)
    ('100.0%', '>99.9%', '0.0%', '<0.1%')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if 0.0 < value < 0.0005:
        return "<0.1%"
    if 0.9995 < value < 1.0:
        return ">99.9%"
    return f"{100.0 * value:.1f}%".replace("-", "−")


def points(value: float | None) -> str:
    """Return a rate in percentage points, without a percent sign."""
    return percent(value).removesuffix("\N{NO-BREAK SPACE}%")


def percent(value: float | None) -> str:
    r"""Return a rate in percent, with at least two significant digits.

    Examples
    --------
    >>> percent(0.104), percent(0.011), percent(0.00234), percent(0.00001), percent(0.0), percent(0.9994)
    ('10.4\xa0%', '1.1\xa0%', '0.23\xa0%', '0.001\xa0%', '0\xa0%', '99.94\xa0%')
    """
    if value is None or not math.isfinite(value):
        return NONE
    near = min(abs(value), abs(1.0 - value)) if value <= 1.0 else 1.0
    if not near:
        return f"{100.0 * value:.0f}\N{NO-BREAK SPACE}%"
    decimals = min(max(1, -math.floor(math.log10(100.0 * near) + 1e-9) + 1), 6)
    said = f"{100.0 * value:.{decimals}f}"
    return f"{said.rstrip('0').rstrip('.') if near < 0.01 else said}\N{NO-BREAK SPACE}%".replace("-", "−")


def duration(ms: float | None) -> str:
    """Return a time span in the largest unit that it fills.

    Examples
    --------
    >>> duration(10_440_000.0), duration(0.0), duration(-90_000), duration(86_400_000)
    ('2.9 h', '0', '−1.5 min', '1 d')
    """
    if ms is None:
        return NONE
    if not ms:
        return "0"
    size, unit = next((each for each in _UNITS if abs(ms) >= each[0]), _UNITS[-1])
    said = f"{abs(ms) / size:.1f}".removesuffix(".0")
    return f"{'−' if ms < 0 else ''}{said} {unit}"


def moment(ms: int) -> datetime:
    """Return a time in UTC. Times beyond the calendar become its first or last time."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if ms > 0 else datetime.min.replace(tzinfo=UTC)


def day(ms: int) -> str:
    """Return a date, such as 1 Feb 2013."""
    at = moment(ms)
    return f"{at.day} {MONTHS[at.month - 1]} {at.year}"


def date(ms: int) -> str:
    """Return a date, such as 31 July, with the time of day unless it is midnight; UTC."""
    at = moment(ms)
    return f"{at.day} {at:%B}" + ("" if f"{at:%H:%M}" == "00:00" else f", {at:%H:%M}")


def minute(ms: int) -> str:
    """Return date and time of day, UTC."""
    return f"{moment(ms):%Y-%m-%d %H:%M}"


def period(start_ms: int, end_ms: int) -> str:
    """Return two times as one span: with days, or with minutes if they are within two days."""
    if end_ms - start_ms > 2 * 86_400_000:
        return f"{day(start_ms)} – {day(end_ms)}"
    first, last = minute(start_ms), minute(end_ms)
    return f"{first} – {last.removeprefix(first[:11])}"
