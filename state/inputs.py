"""The inputs: which topics a partition's records came from, by the ids brokers gave them, and how wide they were."""

from struct import Struct
from typing import NamedTuple, Self

from state.frames import CorruptFrame
from state.kind import PLAIN, Kind, Moves

#: Length of an id, bytes.
_ID = 16
_WIDTHS = Struct("<2I")


class InputIds(NamedTuple):
    """The row that says which topics the offsets of the fence are of.

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
        """Return the row."""
        return INPUTS.seal(b"".join(map(bytes.fromhex, self)))

    @classmethod
    def decode(cls, row: bytes) -> Self:
        """Read a row.

        Raises
        ------
        CorruptFrame
            If it is not one.
        """
        payload = INPUTS.open(row, bytes)
        if len(payload) != 2 * _ID:
            raise CorruptFrame(f"ids of topics take {2 * _ID} bytes, these are {len(payload)}")
        return cls(payload[:_ID].hex(), payload[_ID:].hex())


class Widths(NamedTuple):
    """The row that says how many partitions the inputs had when the first record of a partition was applied.

    The key of a record says in which partition it stands, as long as there are so many.

    Attributes
    ----------
    forecasts, outcomes
        Partitions of the topics.
    """

    forecasts: int
    outcomes: int

    def encode(self) -> bytes:
        """Return the row."""
        return WIDTHS.seal(_WIDTHS.pack(*self))

    @classmethod
    def decode(cls, row: bytes) -> Self:
        """Read a row.

        Raises
        ------
        CorruptFrame
            If it is not one.
        """
        payload = WIDTHS.open(row, bytes)
        if len(payload) != _WIDTHS.size:
            raise CorruptFrame(f"widths of topics take {_WIDTHS.size} bytes, these are {len(payload)}")
        return cls(*_WIDTHS.unpack(payload))


INPUTS = Kind[InputIds](
    "I", "the inputs", (), {1: PLAIN}, Moves.OUTSIDE, "one a partition: which topics its records came from"
)
WIDTHS = Kind[Widths](
    "P", "the widths of inputs", (), {1: PLAIN}, Moves.OUTSIDE, "one a partition: how many partitions its inputs had"
)
