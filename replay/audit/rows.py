"""What an audit stores: derived rows, in memory or on disk, and sorted entries.

Records made from one source partition are spread over all partitions of the next topics. Bringing them together takes
sorting, and millions of records need a disk. So each record becomes a short entry, and entries are sorted by key.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from hashlib import blake2b
from heapq import merge
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, Protocol

import rocksdict

from state import kinds
from state.fence import Fence

#: Number of entries written at once.
_AT_ONCE: Final = 5000
_WRITE_BUFFER: Final = 32 << 20
_LENGTHS: Final = Struct("<Iqii")
_PLACE: Final = Struct(">BIQ")
#: Length of a digest.
DIGEST: Final = 16


class FoundRecord(NamedTuple):
    """A record that intake or router has written: the label of its topic, its place, its `digest`, its name."""

    label: int
    partition: int
    offset: int
    digest: bytes
    name: str = ""

    def entry(self, prefix: bytes) -> tuple[bytes, bytes]:
        """Return the entry of a record. Entries are ordered by a prefix, then by place."""
        return prefix + _PLACE.pack(self.label, self.partition, self.offset), self.digest + self.name.encode()


def read_entry(entry: tuple[bytes, bytes]) -> FoundRecord:
    """Return the record of an entry."""
    key, value = entry
    label, partition, offset = _PLACE.unpack(key[-_PLACE.size :])
    return FoundRecord(label, partition, offset, value[:DIGEST], value[DIGEST:].decode())


def digest(
    partition: int, key: bytes | None, value: bytes, stamp: int | None, headers: Iterable[tuple[str, bytes | None]]
) -> bytes:
    """Return a hash of a record's place and content, 16 bytes. ``stamp`` is None if timestamps are not compared."""
    hashed = blake2b(
        _LENGTHS.pack(partition, -1 if stamp is None else stamp, -1 if key is None else len(key), len(value)),
        digest_size=DIGEST,
    )
    hashed.update(key or b"")
    hashed.update(value)
    for name, said in headers:
        hashed.update(repr((name, said)).encode())
    return hashed.digest()


class RowStore(Protocol):
    """Where the derived state is kept."""

    def get(self, key: bytes, /) -> bytes | None:
        """Return a row."""

    def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows; None deletes."""

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all rows."""


class Memory(dict[bytes, bytes]):
    """Rows in a dictionary."""

    def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows; None deletes."""
        for key, value in rows.items():
            if value is None:
                self.pop(key, None)
            else:
                self[key] = value


def fence_of(rows: RowStore) -> Fence:
    """Return the fence, which has the inputs' next offsets."""
    row = rows.get(kinds.FENCE.key())
    return Fence() if row is None else Fence.decode(row)


class Disk:
    """Rows in a RocksDB database that lasts as long as the audit."""

    def __init__(self, directory: Path) -> None:
        options = rocksdict.Options(raw_mode=True)
        options.set_write_buffer_size(_WRITE_BUFFER)
        self._how = rocksdict.WriteOptions()
        self._how.disable_wal = True  # type: ignore[method-assign,assignment]  # a property that its stubs call a method
        self._db = rocksdict.Rdict(str(directory), options)

    def get(self, key: bytes, /) -> bytes | None:
        """Return a row."""
        row: bytes | None = self._db.get(key)
        return row

    def write(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows; None deletes."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self._db.write(batch, self._how)

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all rows."""
        return self._db.items()  # type: ignore[return-value]  # its iterator says it is none

    def close(self) -> None:
        """Close the database. Its directory remains."""
        self._db.close()


def row_store(stack: ExitStack, *, disk: bool) -> RowStore:
    """Return where derived rows are kept: in memory, or on disk while the stack lasts."""
    return Disk(Path(stack.enter_context(TemporaryDirectory(prefix="trueup-audit-")))) if disk else Memory()


def write_entries(directory: Path, entries: Iterable[tuple[bytes, bytes]]) -> None:
    """Write entries to a directory that must not exist. Any process may read them afterwards."""
    disk, waiting = Disk(directory), dict[bytes, bytes]()
    for key, value in entries:
        waiting[key] = value
        if len(waiting) == _AT_ONCE:
            disk.write(waiting)
            waiting.clear()
    disk.write(waiting)
    disk.close()


def read_entries(
    directories: Iterable[Path], prefix: bytes, more: Iterable[tuple[bytes, bytes]] = ()
) -> Iterator[tuple[bytes, bytes]]:
    """Yield those entries of directories and of ``more`` whose keys have the prefix, in the order of keys."""
    kept = sorted(each for each in more if each[0].startswith(prefix))
    return merge(kept, *(_of(directory, prefix) for directory in directories))


def _of(directory: Path, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    db = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True), access_type=rocksdict.AccessType.read_only())
    try:
        for key, value in db.items(from_key=prefix):
            if not key.startswith(prefix):  # type: ignore[union-attr,arg-type]  # its stubs do not know raw mode
                return
            yield key, value  # type: ignore[misc]
    finally:
        db.close()
