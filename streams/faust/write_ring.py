"""The last writes of a database by their numbers: one that is missing tells of rows that RocksDB has lost.

RocksDB's checksums find what was changed or is missing, with one exception: a MANIFEST that lost its last records opens
without a word, and without the tables these records named, whose log may be gone (seen with RocksDB 10: 1,400 of 20,000
rows missing, the newest among those present). So every write leaves its number in a ring of `RING` slots, and opening
looks for a gap: what is younger than the lost table is in the log, which the ring outlives.
"""

from typing import cast

import rocksdict

#: Key of how many writes a database has had (u64), and slots that remember the last of them. RocksDB's log holds at
#: most three write buffers, 48 MB by default: more writes than slots only if they were smaller than a fence.
WRITES, RING = b"__trueup\0writes__", 1 << 16


def number(row: bytes | None) -> int:
    """Return how many writes a database has had, by its row `WRITES`."""
    return int.from_bytes(row or b"", "little")


def rows(write: int) -> list[tuple[bytes, bytes]]:
    """Return the rows that a write leaves, by its number."""
    said = write.to_bytes(8, "little")
    return [(WRITES, said), (_slot(write), said)]


def size(write: int) -> int:
    """Return how many rows there are of so many writes."""
    return min(write, RING) + (write > 0)


def gap(db: rocksdict.Rdict) -> int | None:
    """Return the number of a write that is missing among the last, or None."""
    last = number(db.get(WRITES))
    numbers = range(max(last - RING, 0) + 1, last + 1)
    found = cast("list[bytes | None]", db.get([_slot(each) for each in numbers]))
    return next((each for each, row in zip(numbers, found, strict=True) if row is None or number(row) != each), None)


def _slot(write: int) -> bytes:
    return WRITES + (write % RING).to_bytes(2, "big")
