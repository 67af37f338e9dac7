"""Refusals of source records, and the exception that carries them."""

from reprlib import Repr
from typing import Any, Final, NamedTuple

#: The reason of a record that the mapping says to skip.
PASSED: Final = "passed"
#: The most characters of a value in a message.
_SHORT: Final = 60
#: Shows only the beginning of a value, which may be long or nest a thousand levels.
_SHOWN: Final = Repr()
_SHOWN.maxstring = _SHOWN.maxlong = _SHOWN.maxother = 4 * _SHORT
_SHOWN.maxdict = _SHOWN.maxlist = _SHORT
_SHOWN.maxlevel = _SHORT


class Refusal(NamedTuple):
    """Why a source record becomes nothing."""

    #: One of `streams.records.decoding.REASONS`, or `PASSED`.
    reason: str
    #: The reason in words, with the field and its value.
    why: str
    #: The readable fields of a forecast.
    fields: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether the mapping says to skip the record. It is counted, but is no dead letter."""
        return self.reason == PASSED


class Unfit(Exception):  # noqa: N818 - carries a reason out of the mapping
    """A source record cannot be read. The arguments are those of a `Refusal`."""


def short(value: object) -> str:
    """Return a value for a message, cut at 60 characters."""
    text = _SHOWN.repr(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."
