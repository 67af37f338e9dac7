"""The numbers of a database's last writes. A missing number shows that RocksDB has lost rows.

RocksDB's checksums find changed and missing data, with one exception. If a MANIFEST has lost its last records, the
database opens without an error, but without the tables that these records named, whose log may be gone. (Seen with
RocksDB 10: 1,400 of 20,000 rows were missing, but the newest were there.) So every write leaves its number in a ring of
`RING` slots, and opening looks for a gap. Writes after the lost table are in the log, and the ring is longer than the
log.
"""

from typing import cast

import rocksdict

#: Key of the number of writes to a database (u64), and slots for the last of them. RocksDB's log holds at most three
#: write buffers, 48 MB by default. It would hold more writes than slots only if each write were smaller than a fence.
WRITES, RING = b"__trueup\0writes__", 1 << 16


def number(row: bytes | None) -> int:
    """Return how many writes a database has had, from its row `WRITES`."""
    return int.from_bytes(row or b"", "little")


def rows(write: int) -> list[tuple[bytes, bytes]]:
    """Return the rows that write number ``write`` adds."""
    said = write.to_bytes(8, "little")
    return [(WRITES, said), (_slot(write), said)]


def size(write: int) -> int:
    """Return how many rows of this kind there are after so many writes: the ring and the count."""
    return min(write, RING) + (write > 0)


def gap(db: rocksdict.Rdict) -> int | None:
    """Return the number of a missing write among the last ones, or None."""
    last = number(db.get(WRITES))
    numbers = range(max(last - RING, 0) + 1, last + 1)
    found = cast("list[bytes | None]", db.get([_slot(each) for each in numbers]))
    return next((each for each, row in zip(numbers, found, strict=True) if row is None or number(row) != each), None)


def _slot(write: int) -> bytes:
    return WRITES + (write % RING).to_bytes(2, "big")
