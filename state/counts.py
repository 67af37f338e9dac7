"""Counts by cell: in memory in few bytes, and as bytes of rows."""

from array import array
from collections.abc import MutableSequence, Sequence
from operator import add, sub
from struct import Struct, pack, unpack_from
from typing import Final, cast

#: Counts by cell. They take a byte each until one passes 255, because most streams are small; then 4 bytes, or 8.
Counts = MutableSequence[int]

_WIDTHS: Final = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_CODES: Final = dict(_WIDTHS)
_ZERO: Final = b"\0"
_BYTES: Final = 8  # largest size of a count, bytes
_PLANE: Final = Struct("<BB")
_NO_PLANE: Final = bytes(_PLANE.size)  # a plane of zeros
#: Cells without a count.
EMPTY: Final = b"\0"


def packed(counts: Sequence[int]) -> Counts:
    """Return the counts in as few bytes as hold the largest: 1, 4 or 8 each."""
    most = max(counts, default=0)
    return bytearray(counts) if most <= 0xFF else array("I" if most <= 0xFFFF_FFFF else "Q", counts)


def raised(counts: Counts, cell: int, by: int = 1) -> Counts:
    """Add 1 or -1 to a count; return the counts, which are wider if the sum no longer fits."""
    try:
        counts[cell] += by
    except (OverflowError, ValueError):
        wider = list(counts)
        wider[cell] += by
        return packed(wider)
    return counts


def together(one: Sequence[int], two: Sequence[int]) -> Counts:
    """Return the sums of two sequences of counts; cells that the shorter one lacks count 0."""
    return packed([*map(add, one, two), *one[len(two) :], *two[len(one) :]])


def without(one: Sequence[int], two: Sequence[int]) -> Counts:
    """Return the first counts minus the second, which must be a part of them."""
    return packed(list(map(sub, one, two)))


def encode(numbers: Sequence[int]) -> bytes:
    """Return the width (u8: 1, 2, 4 or 8), then the numbers, at least 0, little-endian."""
    most = max(numbers, default=0)
    if most <= 0xFF:
        return b"\1" + bytes(numbers)
    width, code = _WIDTHS[1 + (most > 0xFFFF) + (most > 0xFFFF_FFFF)]
    return bytes((width,)) + pack(f"<{len(numbers)}{code}", *numbers)


def decode(payload: bytes, at: int, n: int, what: str) -> tuple[list[int], int]:
    """Return the n numbers at an offset, and the offset after them; raises as `decode_cells` does."""
    width = payload[at] if at < len(payload) else 0
    code, end = _CODES.get(width), at + 1 + n * width
    if code is None or end > len(payload):
        raise ValueError(f"{what} of {len(payload)} bytes has no {n} counts of {width} bytes at {at}")
    return list(unpack_from(f"<{n}{code}", payload, at + 1)), end


def encode_cells(counts: Sequence[int]) -> bytes:
    """Return counts of at most 255 cells as bytes: few bytes for few cells or small counts.

    How many of the eight bytes of a u64 follow (u8). Then for each of these bytes, from the lowest: the first cell
    where it is not 0 (u8), the number of cells from there to the last one (u8), and the byte of each cell. So a count
    below 256 is one byte. Equal counts have equal bytes.
    """
    held = counts if isinstance(counts, (bytearray, array)) else packed(counts)
    if isinstance(held, bytearray):
        plane = _laid(bytes(held))
        return EMPTY if plane == _NO_PLANE else b"\1" + plane
    wide = cast("array[int]", held)
    flat, width = wide.tobytes(), wide.itemsize
    planes = [_laid(flat[k::width]) for k in range(width)]
    while planes and planes[-1] == _NO_PLANE:
        planes.pop()
    return bytes((len(planes),)) + b"".join(planes)


def _laid(plane: bytes) -> bytes:
    """Return one byte of each cell, without zeros at the beginning and the end."""
    cut = plane.rstrip(_ZERO)
    kept = cut.lstrip(_ZERO)
    return _PLANE.pack(len(cut) - len(kept), len(kept)) + kept


def decode_cells(payload: bytes, at: int, cells: int, what: str) -> tuple[Counts, int]:
    """Return ``cells`` counts at an offset, and the offset after them; ``what`` names the payload in errors.

    Raises ValueError if the bytes are cut, or name cells that do not exist.
    """
    width = payload[at] if at < len(payload) else _BYTES + 1
    at += 1
    planes: list[tuple[int, bytes]] = []
    for _ in range(width):
        first, n = payload[at : at + _PLANE.size] if at + _PLANE.size <= len(payload) else (0, cells + 1)
        at += _PLANE.size
        if width > _BYTES or first + n > cells or at + n > len(payload):
            raise ValueError(f"{what} of {len(payload)} bytes has counts of cells there are not, at {at}")
        planes.append((first, payload[at : at + n]))
        at += n
    size = 1 if width <= 1 else 4 if width <= 4 else _BYTES
    flat = bytearray(cells * size)
    for k, (first, plane) in enumerate(planes):
        flat[first * size + k : (first + len(plane)) * size : size] = plane
    return (flat if size == 1 else array("I" if size == 4 else "Q", bytes(flat))), at
