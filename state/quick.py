"""Python functions that run at least once for each event; compiled modules find them here without a look-up."""

import math
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from mypy_extensions import i64  # machine integers in compiled code, otherwise int

#: Builds a named tuple at half the cost of its own constructor: `new(Answer, (p, draw, ticket))`.
new: Final = tuple.__new__
log1p: Final = math.log1p
tanh: Final = math.tanh
#: The CRC-32 of bytes.
checksum: Final = crc32
#: One byte, by its value.
BYTES: Final = [bytes((value,)) for value in range(256)]


@cache
def floats(n: int) -> Struct:
    """Return the layout of n floats, little-endian. There are more of them than the `struct` module remembers."""
    return Struct(f"<{n}d")


def search(items: tuple[float, ...], value: float) -> int:
    """Return how many of some increasing numbers are at most ``value``: as `bisect` does, which compares objects."""
    low: i64 = 0
    high: i64 = len(items)
    while low < high:
        middle = (low + high) >> 1
        if value < items[middle]:
            high = middle
        else:
            low = middle + 1
    return low
