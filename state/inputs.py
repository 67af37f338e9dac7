"""The identity of a partition's inputs: topic ids from the brokers, and numbers of partitions."""

from struct import Struct
from typing import NamedTuple, Self

from state.kind import Kind, Moves, form

_IDS = Struct("<16s16s")
_WIDTHS = Struct("<2I")


class InputIds(NamedTuple):
    """The topics to which the offsets of the fence belong.

    A topic that is deleted and created again has the same name and a new id; its offsets start at 0.
    """

    #: Ids of the topics, 32 hexadecimal digits.
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
    """Number of partitions of each input when a partition's first record was applied.

    A record's key decides its partition only while this number stays the same.
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
