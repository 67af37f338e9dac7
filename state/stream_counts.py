"""The counts of a stream: several kinds of rows, stored together as the parts of one row."""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final, TypeVar, cast

from state.kind import KINDS, Get, Kind

Value = TypeVar("Value")
_PART: Final = Struct("<cI")


class StreamCounts:
    """The counts of a stream: one row of each kind that is a `Kind.part`.

    An event changes most of them. So they are read, kept and written as one row. A part stays packed until it is asked
    for.

    ``stream``: its name.
    ``get``: reads a stored row by key; a part may ask for one.

    Notes
    -----
    Bytes, little-endian: for each part that there is, in ascending order, the letter of its kind, length (u32) and
    payload.
    """

    __slots__ = ("_get", "_parts", "_stream")

    def __init__(self, stream: str, get: Get) -> None:
        self._stream = stream
        self._get = get
        #: By letter: the payloads of parts that nobody has asked for, and the values of the others.
        self._parts: dict[bytes, Any] = {}

    def has(self, kind: Kind[Any]) -> bool:
        """Whether there is a part of a kind."""
        return kind.letter in self._parts

    def part(self, kind: Kind[Value], new: Callable[[], Value]) -> Value:
        """Return the one live copy of a part; ``new`` makes it if there is none. Raises `CorruptFrame`."""
        part = self._parts.get(kind.letter)
        if part is None or isinstance(part, bytes):
            part = new() if part is None else kind.parse(kind.key(self._stream), part, self._get)
            self._parts[kind.letter] = part
        return cast("Value", part)

    def encode(self) -> bytes:
        """Return the parts; layout in the class's notes."""
        made, parts = b"", self._parts
        for letter in sorted(parts):
            part = parts[letter]
            payload = part if isinstance(part, bytes) else KINDS[letter].payload(part)
            made += _laid(letter, payload)
        return made

    @classmethod
    def decode(cls, payload: bytes, stream: str, get: Get) -> "StreamCounts":
        """Read what `encode` wrote; ValueError or struct.error if it is cut."""
        made = cls(stream, get)
        made._parts = payloads(payload)
        return made


def payloads(payload: bytes) -> dict[bytes, bytes]:
    """Return the payload of each part by its letter; ValueError or struct.error if they are cut."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(payload):
        letter, size = _PART.unpack_from(payload, at)
        at += _PART.size
        found[letter] = payload[at : at + size]
        at += size
    if at != len(payload):
        raise ValueError(f"counts of {len(payload)} bytes end at {at}")
    return found


def joined(found: Mapping[bytes, bytes]) -> bytes:
    """Return the payload of a row from its parts' payloads, by letter."""
    return b"".join([_laid(letter, each) for letter, each in sorted(found.items())])


def _laid(letter: bytes, payload: bytes) -> bytes:
    return _PART.pack(letter, len(payload)) + payload
