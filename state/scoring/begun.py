"""From when the alarms of a stream count, after somebody let them begin anew."""

from struct import Struct
from typing import Final, Self

_MS: Final = Struct("<q")


class Begun:
    """The time from which a partition's alarms of a stream count: ``ms``, stream time; 0: from its first event.

    The sum of two partitions has the earlier time. It is not written if another partition has none. So after a move,
    alarms begin anew unless they had begun anew everywhere.

    Bytes: ``ms`` (i64, little-endian).
    """

    __slots__ = ("ms",)

    def __init__(self, ms: int = 0) -> None:
        self.ms = ms

    def __add__(self, other: Self) -> Self:
        """Return the time that counts for both."""
        return type(self)(min(self.ms, other.ms))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Begun) and self.ms == other.ms

    __hash__ = None  # type: ignore[assignment]  # it changes

    def encode(self) -> bytes:
        """Return the payload."""
        return _MS.pack(self.ms)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read what `encode` wrote; raises struct.error if it is cut or too long."""
        return cls(*_MS.unpack(payload))
