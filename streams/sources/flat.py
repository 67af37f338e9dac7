"""Reads, without fastavro, Avro records whose fields are primitive types or unions of them.

Most records are like this. When compiled, this takes a third of fastavro's time. This module refuses all other schemas
and all values that are not whole. fastavro reads those and says what is wrong. Both read a record alike.
"""

from collections.abc import Mapping
from struct import Struct, error
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mypy_extensions import i64  # machine integers in compiled code, otherwise int

#: Kinds of primitive types.
_NULL: Final = 0
_BOOLEAN: Final = 1
_WHOLE: Final = 2
_FLOAT: Final = 3
_DOUBLE: Final = 4
_BYTES: Final = 5
_STRING: Final = 6
_NAMES: Final = ("null", "boolean", "long", "float", "double", "bytes", "string")
_KINDS: Final = {"int": _WHOLE, **{name: kind for kind, name in enumerate(_NAMES)}}
_float_at: Final = Struct("<f").unpack_from
_double_at: Final = Struct("<d").unpack_from
#: A number with more bits is left to fastavro.
_MOST_BITS: Final = 63

#: The name of each field, with its kind or the kinds of its union.
Flat = list[tuple[str, list[int]]]


def flat(schema: Any) -> Flat | None:  # noqa: ANN401 - as fastavro parsed it
    """Return the fields of a schema; None if its values have to be read by fastavro."""
    if not isinstance(schema, Mapping) or schema["type"] != "record":
        return None
    fields = [(field["name"], _kinds(field["type"])) for field in schema["fields"]]
    return fields if all(kinds for _, kinds in fields) else None


def _kinds(schema: Any) -> list[int]:  # noqa: ANN401 - as above
    """Return the kind of a primitive type, or the kinds of a union; empty for any other type."""
    each = schema if isinstance(schema, list) else [schema]
    named = [of["type"] if isinstance(of, Mapping) and "logicalType" not in of else of for of in each]
    found = [_KINDS.get(str(name), -1) for name in named]
    return [] if -1 in found or (each is schema and len(found) < 2) else found


def read(fields: Flat, value: bytes) -> dict[str, Any] | None:
    """Return what a value means; None unless all of it is one value of the schema."""
    made: dict[str, Any] = {}
    at: i64 = 0
    try:
        for name, kinds in fields:
            n: i64 = 0
            if len(kinds) > 1:
                n, at = _whole(value, at)
            kind: i64 = kinds[n] if n >= 0 else -1
            if kind in (_WHOLE, _STRING, _BYTES):
                n, at = _whole(value, at)
            if kind == _WHOLE:
                made[name] = n
            elif kind in (_STRING, _BYTES):
                if n < 0 or n > len(value) - at:
                    return None
                made[name] = value[at : at + n].decode() if kind == _STRING else value[at : at + n]
                at += n
            elif kind == _DOUBLE:
                made[name] = _double_at(value, at)[0]
                at += 8
            elif kind == _FLOAT:
                made[name] = _float_at(value, at)[0]
                at += 4
            elif kind == _NULL:
                made[name] = None
            elif kind < 0 or value[at] > 1:
                return None
            else:
                made[name] = value[at] == 1
                at += 1
    except (IndexError, error, UnicodeDecodeError):
        return None
    return made if at == len(value) else None


def _whole(value: bytes, at: "i64") -> tuple["i64", "i64"]:
    """Return a number of 7 bits a byte, the lowest first, and the position after it. Its lowest bit is the sign."""
    n: i64 = 0
    bits: i64 = 0
    while value[at] > 127:
        n |= (value[at] & 127) << bits
        at += 1
        bits += 7
        if bits == _MOST_BITS:
            raise IndexError
    n |= value[at] << bits
    return n >> 1 ^ -(n & 1), at + 1


#: Whether this module is compiled. Interpreted, it takes longer than fastavro.
COMPILED: Final = not isinstance(read, FunctionType)
