"""Functions of Python that run at least once an event; compiled modules find them here without a look-up."""

import math
from bisect import bisect_right
from typing import Final
from zlib import crc32

#: Builds a named tuple at half the cost of its own constructor: `new(Answer, (p, draw, ticket))`.
new: Final = tuple.__new__
#: The number of items of an increasing sequence that are at most a value.
search: Final = bisect_right
log1p: Final = math.log1p
tanh: Final = math.tanh
#: The CRC-32 of bytes.
checksum: Final = crc32
