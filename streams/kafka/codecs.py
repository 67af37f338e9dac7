"""Kafka's codecs: names, numbers, and unpacking that never exceeds a bound.

Unpacking releases the interpreter's lock.
"""

import gzip
import io
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import cramjam
import numpy as np
from aiokafka.codec import zstd_encode
from aiokafka.record.default_records import DefaultRecordBatchBuilder

#: The key is the name in ``compression.type``; the value is the number in the attributes of a record batch.
NUMBERS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
#: Level of zstd. It takes two thirds of the time of level 3, aiokafka's default, and packs records and rows 3 to 7 %
#: smaller, because they are short and much alike.
LEVEL: Final = 1
Packed = bytes | memoryview
_NAMES: Final = {number: name for name, number in NUMBERS.items()}
#: First bytes of snappy as Java writes it: blocks, each after its length.
_XERIAL: Final = b"\x82SNAPPY\x00"
#: Functions that unpack a codec's frames into a buffer and return the number of bytes written.
_INTO: Final[dict[str, Callable[[Packed, Any], int]]] = {
    "gzip": cramjam.gzip.decompress_into,
    "lz4": cramjam.lz4.decompress_into,
    "zstd": cramjam.zstd.decompress_into,
}


class ExpandsError(ValueError):
    """The data cannot be unpacked within the bound."""


def unpacked(codec: int, data: Packed, limit: int, before: int = 0) -> memoryview:
    """Unpack what a codec has packed.

    Raises ExpandsError if the result exceeds ``limit``, or the codec did not pack ``data``.

    ``codec``: number of the codec, see `NUMBERS`.
    ``limit``: the most bytes to unpack; memory never holds more.
    ``before``: bytes to leave in front for the caller to write; their content is arbitrary.
    """
    name = _NAMES.get(codec)
    try:
        if name == "snappy":
            return _unsnapped(data, limit, before)
        if name in _INTO:
            return _unframed(name, data, limit, before)
    except (cramjam.DecompressionError, gzip.BadGzipFile, EOFError, zlib.error, struct.error) as exc:
        raise ExpandsError(f"{name} that cannot be unpacked: {exc}") from None
    raise ExpandsError(f"codec {codec} is not one of {', '.join(NUMBERS)}")


def _unframed(name: str, data: Packed, limit: int, before: int) -> memoryview:
    """Unpack frames that do not tell their length.

    A first, small buffer is mostly enough, and allocating all of ``limit`` takes time. The small buffer is skipped if
    it is a large part of ``limit``, because data that does not fit is unpacked twice.
    """
    guess = max(32 * len(data), 1 << 16)
    for size in (guess, limit) if 8 * guess <= limit else (limit,):
        room = np.empty(before + size, np.uint8)
        try:
            return room[: before + _INTO[name](data, room[before:])].data
        except cramjam.DecompressionError as exc:
            if "whole buffer" not in str(exc):  # cramjam's message for a full buffer
                if name != "gzip":
                    raise
                return _gunzipped(data, limit, before)
    raise _expands(name, limit)


def _expands(name: str, limit: int) -> ExpandsError:
    return ExpandsError(f"{name} that expands beyond {limit} bytes")


def _gunzipped(data: Packed, limit: int, before: int) -> memoryview:
    """Unpack gzip that cramjam refuses: it does not accept padding, and gives no reason for errors."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        found = file.read(limit + 1)
    if len(found) > limit:
        raise _expands("gzip", limit)
    return memoryview(bytearray(before) + found)


def _unsnapped(data: Packed, limit: int, before: int) -> memoryview:
    """Unpack snappy, in blocks or as one."""
    blocks = list(_blocks(data)) if bytes(data[: len(_XERIAL)]) == _XERIAL else [data]
    size = 0
    for block in blocks:
        size += cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise _expands("snappy", limit)
    room: Any = np.empty(before + size, np.uint8)
    at = before
    for block in blocks:
        at += cramjam.snappy.decompress_raw_into(block, room[at:])
    return memoryview(room[:at])


def _blocks(data: Packed) -> Iterator[Packed]:
    at = 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < size <= len(data) - at:
            raise ExpandsError("snappy with a block of no length, or cut")
        yield data[at : at + size]
        at += size


# This affects the whole process: aiokafka has no setting for the level, and its compiled builders look the function up
# in their module.
vars(sys.modules[DefaultRecordBatchBuilder.__module__])["zstd_encode"] = partial(zstd_encode, level=LEVEL)
