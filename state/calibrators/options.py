"""What an option of a calibrator may be, so that a wrong one is refused with a message that says what is allowed."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

#: What an option may be set to: TOML's and JSON's plain values. A list becomes a tuple.
Value = int | float | str | tuple[float, ...]


class Option(NamedTuple):
    """An option.

    Attributes
    ----------
    default
        Value if not set.
    allowed
        What may be set, to stand behind "must be".
    meaning
        What it does, in a line.
    takes
        Whether a value is allowed.
    """

    default: Value
    allowed: str
    meaning: str
    takes: Callable[[object], bool]


def integer(default: int, low: int, high: int, meaning: str) -> Option:
    """Return an option that is a whole number from ``low`` to ``high``; True and False are none."""

    def takes(value: object) -> bool:
        return type(value) is int and low <= value <= high

    return Option(default, f"an integer from {low} to {high}", meaning, takes)


def number(default: float, low: float, high: float, meaning: str) -> Option:
    """Return an option that is a real number from ``low`` to ``high``; NaN, True and False are none."""

    def takes(value: object) -> bool:
        return type(value) in {int, float} and low <= value <= high  # type: ignore[operator]

    return Option(default, f"a number from {low:g} to {high:g}", meaning, takes)


def choice(default: str, choices: tuple[str, ...], meaning: str) -> Option:
    """Return an option that is one of some names."""

    def takes(value: object) -> bool:
        return type(value) is str and value in choices

    return Option(default, "one of " + ", ".join(choices), meaning, takes)


def text(default: str, meaning: str) -> Option:
    """Return an option that only its reader can judge, who refuses it with a message of its own."""

    def takes(value: object) -> bool:
        return type(value) is str

    return Option(default, "a text", meaning, takes)


def increasing(low: float, high: float, most: int, meaning: str, least: int = 0) -> Option:
    """Return an option that is numbers which increase strictly between two ends that they do not touch.

    By default there are none; else there are from ``least`` to ``most``.
    """

    def takes(value: object) -> bool:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > most:
            return False
        if 0 < len(value) < least or not all(type(one) in {int, float} for one in value):
            return False
        return all(left < right for left, right in pairwise((low, *value, high)))

    count = f"{least} to" if least else "at most"
    return Option((), f"{count} {most} increasing numbers between {low:g} and {high:g}", meaning, takes)
