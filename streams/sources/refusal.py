"""Why a source record became no record, and the exception that carries it there."""

from reprlib import Repr
from typing import Any, Final, NamedTuple

#: The reason of a record that the mapping says to pass over.
PASSED: Final = "passed"
#: Most characters of a value in a message.
_SHORT: Final = 60
#: Looks at no more of a value than is shown of it: it may be long, or nest a thousand levels.
_SHOWN: Final = Repr()
_SHOWN.maxstring = _SHOWN.maxlong = _SHOWN.maxother = 4 * _SHORT
_SHOWN.maxdict = _SHOWN.maxlist = _SHORT
_SHOWN.maxlevel = _SHORT


class Refusal(NamedTuple):
    """A source record that becomes nothing."""

    #: One of `streams.records.decoding.REASONS`, or `PASSED`.
    reason: str
    #: The same for people, with the field and what stands there.
    why: str
    #: The fields of a forecast that could be read.
    fields: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether the mapping says to pass the record over. It is counted and is no dead letter."""
        return self.reason == PASSED


class Unfit(Exception):  # noqa: N818 - carries a reason from the mapping's parts to its door
    """A source record cannot be read; the arguments are those of a `Refusal`."""


def short(value: object) -> str:
    """Return a value as it is shown in a message, cut at 60 characters."""
    text = _SHOWN.repr(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."
