"""What an option of a calibrator may be, so that a wrong one is refused with a message that says what is allowed."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

#: What an option may be set to: TOML's and JSON's plain values. A list becomes a tuple.
Value = int | float | str | tuple[float, ...]


class Option(Protocol):
    """An option: what it means, what it is if not set, and which values it takes."""

    @property
    def default(self) -> Value:
        """Value if not set."""

    @property
    def meaning(self) -> str:
        """What it does, in a line."""

    @property
    def allowed(self) -> str:
        """What may be set, to stand behind "must be"."""

    def takes(self, value: object) -> bool:
        """Whether the value is allowed."""


class Integer(NamedTuple):
    """A whole number; both ends of the range are allowed."""

    default: int
    low: int
    high: int
    meaning: str

    @property
    def allowed(self) -> str:
        """The range."""
        return f"an integer from {self.low} to {self.high}"

    def takes(self, value: object) -> bool:
        """Whether it is an integer in the range; True and False are not."""
        return type(value) is int and self.low <= value <= self.high


class Number(NamedTuple):
    """A real number; both ends of the range are allowed."""

    default: float
    low: float
    high: float
    meaning: str

    @property
    def allowed(self) -> str:
        """The range."""
        return f"a number from {self.low:g} to {self.high:g}"

    def takes(self, value: object) -> bool:
        """Whether it is a number in the range; NaN, True and False are not."""
        return type(value) in {int, float} and self.low <= value <= self.high  # type: ignore[operator]


class Choice(NamedTuple):
    """One of some names."""

    default: str
    choices: tuple[str, ...]
    meaning: str

    @property
    def allowed(self) -> str:
        """The names."""
        return "one of " + ", ".join(self.choices)

    def takes(self, value: object) -> bool:
        """Whether it is one of the names."""
        return type(value) is str and value in self.choices


class Text(NamedTuple):
    """A name that only its reader can judge; the reader refuses it with a message of its own."""

    default: str
    meaning: str

    @property
    def allowed(self) -> str:
        """Any text."""
        return "a text"

    def takes(self, value: object) -> bool:
        """Whether it is a text."""
        return type(value) is str


class Points(NamedTuple):
    """Numbers that increase strictly between two ends, which they do not touch; none if not set, else ``least``."""

    low: float
    high: float
    most: int
    meaning: str
    least: int = 0

    @property
    def default(self) -> tuple[float, ...]:
        """No points."""
        return ()

    @property
    def allowed(self) -> str:
        """The range."""
        count = f"{self.least} to" if self.least else "at most"
        return f"{count} {self.most} increasing numbers between {self.low:g} and {self.high:g}"

    def takes(self, value: object) -> bool:
        """Whether they are numbers, increase, and lie between the ends."""
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > self.most:
            return False
        if 0 < len(value) < self.least:
            return False
        if not all(type(one) in {int, float} for one in value):
            return False
        return all(left < right for left, right in pairwise((self.low, *value, self.high)))
