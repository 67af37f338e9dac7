"""Why a source record became no record, and the exception that carries it there."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

#: The reason of a record that the mapping says to pass over.
PASSED: Final = "passed"
#: Most characters of a value in a message.
_SHORT: Final = 60


class Refusal(NamedTuple):
    """A source record that becomes nothing.

    Attributes
    ----------
    reason
        One of `streams.records.decoding.REASONS`, or `PASSED`.
    why
        The same for people, with the field and what stands there.
    fields
        The fields of a forecast that could be read.
    """

    reason: str
    why: str
    fields: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether the mapping says to pass the record over. It is counted and is no dead letter."""
        return self.reason == PASSED


class Unfit(Exception):  # noqa: N818 - carries a reason from the mapping's parts to its door
    """A source record cannot be read; the arguments are those of a `Refusal`."""


def short(value: object) -> str:
    """Return a value as it is shown in a message, cut at 60 characters; what is cut is not looked at."""
    text = ""
    for part in _parts(value):
        text += part
        if len(text) > _SHORT:
            return text[: _SHORT - 3] + "..."
    return text


def _parts(value: object) -> Iterator[str]:
    """Yield the parts of a value's repr: what nests a thousand levels has none that ends."""
    if isinstance(value, dict):
        yield "{"
        for n, (name, each) in enumerate(value.items()):
            yield ", " if n else ""
            yield from _parts(name)
            yield ": "
            yield from _parts(each)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for n, each in enumerate(value):
            yield ", " if n else ""
            yield from _parts(each)
        yield "]"
    else:
        yield repr(value[: _SHORT + 1] if isinstance(value, str | bytes) else value)
