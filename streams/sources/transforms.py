"""Conversions of a mapping: values to numbers, probabilities, times, labels and features.

Each function returns a converter, which takes a value that is not None and returns the field's, or raises `Unfit`.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

from streams.records.limits import LATEST
from streams.sources.references import KafkaTime, text
from streams.sources.refusal import PASSED, Unfit, short

Transform = Callable[[Any], Any]

#: Scales of a score by name. A pair of numbers is a range: the values for 0 and for 1.
SCALES: Final[Mapping[str, tuple[float, float]]] = {"probability": (0, 1), "percent": (0, 100)}
LOG_ODDS: Final = "log-odds"
#: Ms in each unit of time.
UNITS: Final[Mapping[str, float]] = {"s": 1000.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
#: Words in a table of labels: *skip the record*, and *any other value*.
SKIP, OTHER = "skip", "*"
#: Times that a number in an unknown unit probably means: from 1990 to 2100, in ms.
_PLAUSIBLE: Final = (631_152_000_000, 4_102_444_800_000)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_DIGITS: Final = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,9})?")


def texts(reason: str, field: str) -> Transform:
    """Return a converter to text."""

    def transform(value: Any) -> str:  # noqa: ANN401 - whatever stands there
        if type(value) is str:
            return value
        found = text(value)
        if found is None:
            raise Unfit(reason, f"{field} is {short(value)}, which has no unique text")
        return found

    return transform


def numbers(reason: str, field: str) -> Transform:
    """Return a function that reads a number, or a text with a number."""

    def transform(value: Any) -> float:  # noqa: ANN401 - whatever stands there
        if type(value) is int or (type(value) is float and math.isfinite(value)):
            return value
        if isinstance(value, str | Decimal):
            try:
                found = float(value)
            except (ValueError, OverflowError):
                found = math.nan
            if math.isfinite(found):
                return found
        raise Unfit(reason, f"{field} is {short(value)}, which is not a number")

    return transform


def probabilities(scale: str | Sequence[float], reason: str, field: str) -> Transform:
    """Return a converter from scores to probabilities. The decoder refuses a score beyond the scale."""
    number = numbers(reason, field)
    if scale == "probability":
        return number
    if scale == LOG_ODDS:

        def logistic(value: Any) -> float:  # noqa: ANN401 - whatever stands there
            z = float(number(value))
            return 1 / (1 + math.exp(-z)) if z > -700 else 0.0

        return logistic
    low, high = SCALES[scale] if isinstance(scale, str) else scale
    return lambda value: float((number(value) - low) / (high - low))


def times(unit: str | None, form: str | None, zone: str, field: str) -> Transform:
    """Return a converter from times to ms since 1970.

    ``unit``: unit of numbers, one of `UNITS`; None: ms, and text is never a number.
    ``form``: format of text for strptime; None: ISO 8601, which includes RFC 3339.
    ``zone``: time zone of times without an offset.
    """
    factor = UNITS[unit or "ms"]
    there: tzinfo = UTC if zone == "UTC" else ZoneInfo(zone)

    def ms(value: Any) -> int | None:  # noqa: ANN401 - whatever stands there
        if isinstance(value, KafkaTime):
            return int(value)
        if isinstance(value, date):
            return _ms(value if isinstance(value, datetime) else datetime.combine(value, time()), there)
        if type(value) is str and (unit is None or not _DIGITS.fullmatch(value)):
            return _ms(datetime.strptime(value, form) if form else datetime.fromisoformat(value), there)  # noqa: DTZ007 - `_ms` gives it one
        return round(float(value) * factor) if type(value) in (int, float, str, Decimal) else None

    def transform(value: Any) -> int:  # noqa: ANN401 - whatever stands there
        try:
            found = ms(value)
        except (ValueError, OverflowError):
            found = None
        if found is None or not 0 <= found <= LATEST:
            how = f" as {form}" if form else ""
            why = f"{field} is {short(value)}, which is not a time{how} from 1970 to 9999{_hint(value, unit)}"
            raise Unfit("timestamp", why)
        return found

    return transform


def _hint(value: Any, unit: str | None) -> str:  # noqa: ANN401 - whatever stands there
    """Return a hint about the unit that a wrong time seems to have; empty if no unit fits."""
    if type(value) in (int, float, Decimal) or (type(value) is str and _DIGITS.fullmatch(value)):
        number = abs(float(value))
        for each, factor in UNITS.items():
            if each != unit and _PLAUSIBLE[0] <= number * factor <= _PLAUSIBLE[1]:
                return f'; it seems to be in {each}: set unit = "{each}" for ts'
    return ""


def _ms(at: datetime, zone: tzinfo) -> int:
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone)
    return (at - _EPOCH) // _MS


def labels(table: Mapping[str, float | None] | None, field: str) -> Transform:
    """Return a converter to labels.

    ``table``: the label for each text of a value; None: skip the record. Without a table the label is a number or a
    truth value.
    """
    if table is None:
        number = numbers("label", field)
        return lambda value: int(value) if type(value) is bool else number(value)

    def transform(value: Any) -> float:  # noqa: ANN401 - whatever stands there
        said = text(value)
        if said is None and type(value) is float:
            said = f"{value:g}"
        if said is None or said not in table:
            if OTHER not in table:
                raise Unfit("label", f"{field} is {short(value)}, which labels does not name: {', '.join(table)}")
            said = OTHER
        label = table[said]
        if label is None:
            raise Unfit(PASSED, f"{field} is {short(value)}, which labels says to skip")
        return label

    return transform


def ranged(low: float, high: float, field: str) -> Transform:
    """Return a function that scales a number from a range to a feature in [-1, 1]. Values outside count as its ends."""
    number, middle, half = numbers("features", field), (low + high) / 2, (high - low) / 2
    return lambda value: min(1.0, max(-1.0, (number(value) - middle) / half))
