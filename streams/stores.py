"""Where the state table keeps its rows: RocksDB, or memory for tests. Both keep partitions apart."""

from collections.abc import Iterable, Iterator
from typing import Any

import rocksdict
from faust.stores import memory, rocksdb
from faust.types import TP

#: Row key and value; None deletes.
Rows = Iterable[tuple[bytes, bytes | None]]


def _unlogged() -> rocksdict.WriteOptions:
    options = rocksdict.WriteOptions()
    options.disable_wal = True  # type: ignore[assignment,method-assign]  # a property, whatever its stub says
    return options


_UNLOGGED = _unlogged()


class RocksStore(rocksdb.Store):
    """Faust's RocksDB store, one database a partition, with writes that carry their changelog offset.

    Notes
    -----
    What is restored goes past RocksDB's log, which is a third of the cost of a write: the changelog is the log. A crash
    then loses the newest rows from memory, and their offset with them, because RocksDB writes its buffers to disk in
    the order in which they were filled; recovery goes on from the offset that is left. A logged write must not follow
    before the buffers are on disk, or its offset would hide the hole.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        #: Partitions with rows in memory that RocksDB's log does not hold.
        self._unlogged: set[int] = set()

    def read(self, partition: int, key: bytes) -> bytes | None:
        """Return a stored row."""
        value: bytes | None = self._db_for_partition(partition).get(key)
        return value

    def write(self, partition: int, rows: Rows, offset: int) -> None:
        """Write rows and the changelog offset they reach to, all or none."""
        self.settle(partition)
        self._db_for_partition(partition).write(self._batch(rows, offset))

    def restore(self, partition: int, rows: Rows, offset: int) -> None:
        """Write rows and offset as `write` does, but so that a crash may lose the newest of them; see `settle`."""
        self._unlogged.add(partition)
        self._db_for_partition(partition).write(self._batch(rows, offset), write_opt=_UNLOGGED)

    def settle(self, partition: int) -> None:
        """Return when everything restored is on disk."""
        if partition in self._unlogged:
            self._db_for_partition(partition).flush()
            self._unlogged.discard(partition)

    def _batch(self, rows: Rows, offset: int) -> rocksdict.WriteBatch:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(self.offset_key, str(offset).encode())
        return batch

    def apply_changelog_batch(self, batch: Iterable[Any], to_key: object, to_value: object) -> None:
        """Do nothing: Faust's recovery brings what `restore` has written, and would write its offset to the log."""

    def offset(self, partition: int) -> int | None:
        """Return the changelog offset of the last row written."""
        stored = self._db_for_partition(partition).get(self.offset_key)
        return None if stored is None else int(stored)

    def range(self, partition: int, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the rows whose key starts with ``prefix``. For views, never for what must be right."""
        for key, value in self._db_for_partition(partition).items(from_key=prefix):
            if not key.startswith(prefix):
                return
            yield key, value

    def size(self, partition: int) -> tuple[int, int]:
        """Return RocksDB's estimates of the number of rows and of the bytes they take."""
        db = self._db_for_partition(partition)
        rows = db.property_int_value("rocksdb.estimate-num-keys") or 0
        held = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
        return rows, sum(db.property_int_value(name) or 0 for name in held)


class MemoryStore(memory.Store[bytes, bytes]):
    """Rows in dictionaries, one a partition; recovered from the changelog at every start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._partitions: dict[int, dict[bytes, bytes]] = {}
        self._offsets: dict[int, int] = {}

    def read(self, partition: int, key: bytes) -> bytes | None:
        """Return a stored row."""
        return self._partitions.get(partition, {}).get(key)

    def write(self, partition: int, rows: Rows, offset: int) -> None:
        """Write rows and the changelog offset they reach to."""
        stored = self._partitions.setdefault(partition, {})
        for key, value in rows:
            if value is None:
                stored.pop(key, None)
            else:
                stored[key] = value
        self._offsets[partition] = offset

    def restore(self, partition: int, rows: Rows, offset: int) -> None:
        """Write rows and the changelog offset they reach to."""
        self.write(partition, rows, offset)

    def settle(self, partition: int) -> None:
        """Do nothing: memory has no disk to wait for."""

    def offset(self, partition: int) -> int | None:
        """Return the changelog offset of the last row written."""
        return self._offsets.get(partition)

    def range(self, partition: int, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the rows whose key starts with ``prefix``."""
        rows = self._partitions.get(partition, {})
        return ((key, rows[key]) for key in sorted(rows) if key.startswith(prefix))

    def size(self, partition: int) -> tuple[int, int]:
        """Return the number of rows and of the bytes they take."""
        rows = self._partitions.get(partition, {})
        return len(rows), sum(len(key) + len(value) for key, value in rows.items())

    def persisted_offset(self, tp: TP) -> int | None:
        """Return the changelog offset of the last row written, as Faust asks for it."""
        return self._offsets.get(tp.partition)

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Note a changelog offset, as Faust does after recovery."""
        self._offsets[tp.partition] = offset

    def apply_changelog_batch(self, batch: Iterable[Any], to_key: object, to_value: object) -> None:  # noqa: ARG002 - Faust's
        """Write changelog events, as Faust's recovery asks for it."""
        for event in batch:
            message = event.message
            self.write(message.tp.partition, [(message.key, message.value)], message.offset)

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Forget partitions that are not ours."""
        kept = {tp.partition for tp in active_tps | standby_tps}
        for partition in set(self._partitions) - kept:
            del self._partitions[partition]
            self._offsets.pop(partition, None)


Store = RocksStore | MemoryStore
