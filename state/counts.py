"""Counts as bytes: all of one width, the smallest that holds the largest count."""

from collections.abc import MutableSequence, Sequence
from operator import add
from struct import Struct, pack, unpack_from
from typing import Final

#: Counts by cell. They take a byte each until one passes 255, because most streams are small: see `raised`.
Counts = MutableSequence[int]

_WIDTHS: Final = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_CODES: Final = dict(_WIDTHS)
_ZERO: Final = b"\0"
_CELLS: Final = Struct("<3B")
#: Cells without a count.
EMPTY: Final = _CELLS.pack(1, 0, 0)


def encode(numbers: Sequence[int]) -> bytes:
    """Return the width (u8: 1, 2, 4 or 8), then the numbers, at least 0, little-endian."""
    width, packed = _laid(numbers)
    return bytes((width,)) + packed


def decode(payload: bytes, at: int, n: int, what: str) -> tuple[list[int], int]:
    """Return the n numbers at an offset and the offset after them; raises as `decode_cells`."""
    if at >= len(payload):
        raise ValueError(f"{what} of {len(payload)} bytes ends before its counts do")
    return _unpacked(payload, at + 1, payload[at], n, what)


def raised(counts: Counts, cell: int) -> Counts:
    """Count one more in a cell; return the counts: a list if a byte array does not hold them any more."""
    if counts[cell] == 0xFF and isinstance(counts, bytearray):
        counts = list(counts)
    counts[cell] += 1
    return counts


def together(one: Sequence[int], two: Sequence[int]) -> Counts:
    """Return the sums of two counts; the shorter one has no counts in the other's last cells."""
    return packed([*map(add, one, two), *one[len(two) :], *two[len(one) :]])


def packed(counts: list[int]) -> Counts:
    """Return counts as a byte array if each fits into a byte; else unchanged."""
    return counts if max(counts, default=0) > 0xFF else bytearray(counts)


def encode_cells(counts: Sequence[int]) -> bytes:
    """Return the width, the first cell with a count, how many cells follow to the last (u8 each), and these counts."""
    if isinstance(counts, bytearray) or max(counts) <= 0xFF:  # much faster than a layout of its own
        cut = bytes(counts).rstrip(_ZERO)
        kept = cut.lstrip(_ZERO)
        return _CELLS.pack(1, len(cut) - len(kept), len(kept)) + kept if kept else EMPTY
    first, end = 0, len(counts)
    while not counts[first]:
        first += 1
    while not counts[end - 1]:
        end -= 1
    width, packed = _laid(counts[first:end])
    return _CELLS.pack(width, first, end - first) + packed


def decode_cells(payload: bytes, at: int, cells: int, what: str) -> tuple[Counts, int]:
    """Return ``cells`` counts at an offset, and the offset after them; ``what`` names the payload in errors.

    Raises ValueError if they are cut, or name cells that do not exist.
    """
    if len(payload) < at + _CELLS.size:
        raise ValueError(f"{what} of {len(payload)} bytes ends before its counts do")
    width, first, n = _CELLS.unpack_from(payload, at)
    if first + n > cells:
        raise ValueError(f"{what} of {len(payload)} bytes has counts of cells there are not, at {at}")
    at += _CELLS.size
    if width == 1 and at + n <= len(payload):
        end = at + n
        return bytearray(first) + payload[at:end] + bytes(cells - first - n), end
    counts = [0] * cells
    counts[first : first + n], at = _unpacked(payload, at, width, n, what)
    return counts, at


def _laid(numbers: Sequence[int]) -> tuple[int, bytes]:
    most = max(numbers, default=0)
    if most <= 0xFF:
        return 1, bytes(numbers)
    width, code = _WIDTHS[(most > 0xFF) + (most > 0xFFFF) + (most > 0xFFFF_FFFF)]
    return width, pack(f"<{len(numbers)}{code}", *numbers)


def _unpacked(payload: bytes, at: int, width: int, n: int, what: str) -> tuple[list[int], int]:
    end = at + n * width
    code = _CODES.get(width)
    if code is None or end > len(payload):
        raise ValueError(f"{what} of {len(payload)} bytes has no {n} counts of {width} bytes at {at}")
    return list(payload[at:end]) if width == 1 else list(unpack_from(f"<{n}{code}", payload, at)), end
