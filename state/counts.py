"""Counts as bytes: all of one width, the smallest that holds the largest count."""

from collections.abc import Sequence
from struct import Struct, pack, unpack_from
from typing import Final

_WIDTHS: Final = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_CODES: Final = dict(_WIDTHS)
_ZERO: Final = b"\0"
_CELLS: Final = Struct("<3B")
#: Cells without a count.
_EMPTY: Final = _CELLS.pack(1, 0, 0)


def encode(numbers: Sequence[int]) -> bytes:
    """Return the width (u8: 1, 2, 4 or 8), then the numbers, at least 0, little-endian."""
    width, packed = _packed(numbers)
    return bytes((width,)) + packed


def decode(payload: bytes, at: int, n: int, what: str) -> tuple[list[int], int]:
    """Return the n numbers at an offset and the offset after them; raises as `decode_cells`."""
    if at >= len(payload):
        raise ValueError(f"{what} of {len(payload)} bytes ends before its counts do")
    return _unpacked(payload, at + 1, payload[at], n, what)


def encode_cells(counts: Sequence[int]) -> bytes:
    """Return the width, the first cell with a count, how many cells follow to the last (u8 each), and these counts."""
    most = max(counts)
    if not most:
        return _EMPTY
    if most <= 0xFF:  # much faster than a layout of its own
        cut = bytes(counts).rstrip(_ZERO)
        kept = cut.lstrip(_ZERO)
        return _CELLS.pack(1, len(cut) - len(kept), len(kept)) + kept
    first, end = 0, len(counts)
    while not counts[first]:
        first += 1
    while not counts[end - 1]:
        end -= 1
    width, packed = _packed(counts[first:end])
    return _CELLS.pack(width, first, end - first) + packed


def decode_cells(payload: bytes, at: int, cells: int, what: str) -> tuple[list[int], int]:
    """Return ``cells`` counts at an offset, and the offset after them; ``what`` names the payload in errors.

    Raises ValueError if they are cut, or name cells that do not exist.
    """
    if len(payload) < at + _CELLS.size:
        raise ValueError(f"{what} of {len(payload)} bytes ends before its counts do")
    width, first, n = _CELLS.unpack_from(payload, at)
    if first + n > cells:
        raise ValueError(f"{what} of {len(payload)} bytes has counts of cells there are not, at {at}")
    counts = [0] * cells
    counts[first : first + n], at = _unpacked(payload, at + _CELLS.size, width, n, what)
    return counts, at


def _packed(numbers: Sequence[int]) -> tuple[int, bytes]:
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
