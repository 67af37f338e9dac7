"""Options of calibrators. A wrong value is refused with a message that says what is allowed."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

#: A value of an option: a plain value of TOML or JSON. A list becomes a tuple.
Value = int | float | str | tuple[float, ...]


class Option(NamedTuple):
    """One option of a calibrator."""

    #: The default value.
    default: Value
    #: The allowed values, in words that follow "must be".
    allowed: str
    #: What the option does, in one line.
    meaning: str
    #: Returns whether a value is allowed.
    takes: Callable[[object], bool]


def integer(default: int, low: int, high: int, meaning: str) -> Option:
    """Return an option that takes whole numbers from ``low`` to ``high``, but not True or False."""

    def takes(value: object) -> bool:
        return type(value) is int and low <= value <= high

    return Option(default, f"an integer from {low} to {high}", meaning, takes)


def number(default: float, low: float, high: float, meaning: str) -> Option:
    """Return an option that takes real numbers from ``low`` to ``high``, but not NaN, True or False."""

    def takes(value: object) -> bool:
        return type(value) in {int, float} and low <= value <= high  # type: ignore[operator]

    return Option(default, f"a number from {low:g} to {high:g}", meaning, takes)


def choice(default: str, choices: tuple[str, ...], meaning: str) -> Option:
    """Return an option that takes one of several names."""

    def takes(value: object) -> bool:
        return type(value) is str and value in choices

    return Option(default, "one of " + ", ".join(choices), meaning, takes)


def text(default: str, meaning: str) -> Option:
    """Return an option that takes any text; its reader checks it."""

    def takes(value: object) -> bool:
        return type(value) is str

    return Option(default, "a text", meaning, takes)


def increasing(most: int, meaning: str, least: int = 0) -> Option:
    """Return an option that takes numbers that increase strictly, all between 0 and 1.

    The default is an empty list; any other list has ``least`` to ``most`` numbers.
    """

    def takes(value: object) -> bool:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > most:
            return False
        if 0 < len(value) < least or not all(type(one) in {int, float} for one in value):
            return False
        return all(left < right for left, right in pairwise((0.0, *value, 1.0)))

    count = f"{least} to" if least else "at most"
    return Option((), f"{count} {most} increasing numbers between 0 and 1", meaning, takes)
