"""How a record names its schema: before the payload, or in a header.

- Before the value: the byte 0 and the schema's id, 4 bytes big-endian. For Protobuf, the place of the message follows.
- In the header ``__value_schema_id`` or ``__key_schema_id``: the byte 1 and the schema's GUID, 16 bytes, or the byte 0
  and its id. For Protobuf, the place of the message follows there.

The place of a message is its index in the file, then the index in that message, and so on. It is written as the number
of indices and the indices, all zigzag varints; the first message as a single 0. It is Confluent's wire format.
"""

from typing import NamedTuple
from uuid import UUID

from streams.sources.references import Headers
from streams.sources.refusal import Unfit
from streams.sources.registry import SchemaId

_BY_ID, _BY_GUID = b"\0", b"\1"
#: The most indices in the place of a message.
_DEEPEST = 64


class Framed(NamedTuple):
    """A payload, the id of its schema, and the place of its message (only for Protobuf)."""

    schema: SchemaId
    place: tuple[int, ...]
    payload: bytes


def schema_of(data: bytes, headers: Headers, name: str) -> SchemaId | None:
    """Return the id of a value's or key's schema; None if it names none."""
    return _found(data, headers, name)[0]


def _found(data: bytes, headers: Headers, name: str) -> tuple[SchemaId | None, bytes, int]:
    """Return the id of a schema, the header or value that holds it, and where it ends there; None if there is none."""
    for given, value in headers:
        if given == name and value and (found := _named(value)) is not None:
            return found, value, 17 if isinstance(found, str) else 5
    return _named(data[:5]), data, 5


def _named(head: bytes) -> SchemaId | None:
    """Return the id at the beginning of a header, or (without a GUID) of a value; None if there is none."""
    if head[:1] == _BY_GUID and len(head) >= 17:
        return str(UUID(bytes=bytes(head[1:17])))
    return int.from_bytes(head[1:5], "big") if head[:1] == _BY_ID and len(head) >= 5 else None


def split(data: bytes, headers: Headers, name: str, *, placed: bool) -> Framed:
    """Split a value or key into schema id and payload.

    Raises Unfit if no schema is named.

    ``placed``: whether the place of a message follows the id.
    """
    named, frame, at = _found(data, headers, name)
    if named is None:
        raise Unfit("format", "it names no schema: it does not begin with the byte 0 and an id, and no header has one")
    place, at = _place(frame, at) if placed else ((), at)
    return Framed(named, place, data[at:] if frame is data else data)


def _place(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Read the place of a message. Return it, and where it ends."""
    count, at = _varint(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise Unfit("format", "the place of the message cannot be read")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(index)
    return tuple(found), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise Unfit("format", "the place of the message cannot be read")
