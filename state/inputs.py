"""The inputs: which topics a partition's records came from, by the ids brokers gave them, and how wide they were."""

from struct import Struct
from typing import NamedTuple, Self

from state.kind import Kind, Moves, form

_IDS = Struct("<16s16s")
_WIDTHS = Struct("<2I")


class InputIds(NamedTuple):
    """Which topics the offsets of the fence are of.

    A topic that is deleted and made anew has the same name and other records, and its offsets begin at 0 again. Its id
    is another one.

    Attributes
    ----------
    forecasts, outcomes
        Ids of the topics, 32 hexadecimal digits.
    """

    forecasts: str
    outcomes: str

    def encode(self) -> bytes:
        """Return the payload."""
        return _IDS.pack(*map(bytes.fromhex, self))

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a payload."""
        return cls(*(each.hex() for each in _IDS.unpack(payload)))


class Widths(NamedTuple):
    """How many partitions the inputs had when the first record of a partition was applied.

    The key of a record says in which partition it stands, as long as there are so many.
    """

    forecasts: int
    outcomes: int

    def encode(self) -> bytes:
        """Return the payload."""
        return _WIDTHS.pack(*self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a payload."""
        return cls(*_WIDTHS.unpack(payload))


INPUTS = Kind[InputIds](
    "I", "the inputs", (), {1: form(InputIds)}, Moves.OUTSIDE, "one a partition: which topics its records came from"
)
WIDTHS = Kind[Widths](
    "P",
    "the widths of inputs",
    (),
    {1: form(Widths)},
    Moves.OUTSIDE,
    "one a partition: how many partitions its inputs had",
)
