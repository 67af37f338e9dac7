"""Where the state table keeps its rows: RocksDB, or memory for tests. Both keep partitions apart."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import rocksdict
from faust.stores import memory, rocksdb
from faust.types import TP

#: Row key and value; None deletes.
Rows = Iterable[tuple[bytes, bytes | None]]

#: Key of how many writes a database has had (u64), and slots that remember the last of them. RocksDB's log holds at
#: most three write buffers, 48 MB by default: more writes than slots only if they were smaller than a fence.
WRITES, RING = b"__trueup\0writes__", 1 << 16


class DamagedStoreError(RuntimeError):
    """A partition's database is damaged. It has been set aside: after a restart its rows come from the changelog."""


class RocksOptions(rocksdb.RocksDBOptions):
    """Faust's options with filters that work: for the tables, 10 bits a key in one filter each; for what is in memory.

    Every forecast asks for a row that is not there. Without a filter over the write buffers that costs .65 µs, with it
    .2; Faust's filters of 3 bits a key let a quarter of such reads through to the tables.
    """

    def as_options(self) -> rocksdict.Options:
        """Return RocksDB's own options."""
        options: rocksdict.Options = super().as_options()
        tables = rocksdict.BlockBasedOptions()
        tables.set_bloom_filter(10, block_based=False)
        tables.set_block_cache(rocksdict.Cache(self.block_cache_size))
        options.set_block_based_table_factory(tables)
        options.set_memtable_prefix_bloom_ratio(0.1)
        options.set_memtable_whole_key_filtering(True)
        return options


class RocksStore(rocksdb.Store):
    """Faust's RocksDB store, one database a partition, with writes that carry their changelog offset.

    A damaged database is never read on. Found when it is opened, it is set aside, beside itself under the name
    ``….damaged``, and an empty one takes its place, which recovery fills from the changelog. Found later, it is set
    aside too, and the process must end.

    Notes
    -----
    RocksDB's checksums find what was changed or is missing, with one exception: a MANIFEST that lost its last records
    opens without a word, and without the tables these records named, whose log may be gone (seen with RocksDB 10:
    1,400 of 20,000 rows missing, the newest among those present). So every write leaves its number in a ring of
    `RING` slots, and opening looks for a gap: what is younger than the lost table is in the log, which the ring
    outlives.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Faust calls it
        super().__init__(*args, **kwargs)
        self.rocksdb_options = RocksOptions(**(self.options or {}))

    def read(self, partition: int, key: bytes) -> bytes | None:
        """Return a stored row.

        Raises
        ------
        DamagedStoreError
            If RocksDB finds it damaged.
        """
        return self.reader(partition)(key)

    def reader(self, partition: int) -> Callable[[bytes], bytes | None]:
        """Return `read` of one partition: it runs once an event, so it is one call. It holds no database open."""
        dbs = self._dbs

        def read(key: bytes) -> bytes | None:
            try:
                # No name for the database: the traceback of an error would hold it open.
                value: bytes | None = (dbs.get(partition) or self._db_for_partition(partition)).get(key)
            except Exception as exc:
                self._give_up(partition, exc)
                raise
            return value

        return read

    def write(self, partition: int, rows: Rows, offset: int) -> None:
        """Write rows and the changelog offset they reach to, all or none.

        Raises
        ------
        DamagedStoreError
            If RocksDB has found damage, be it in the background.
        """
        number = self._writes(partition) + 1
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(self.offset_key, str(offset).encode())
        batch.put(WRITES, number.to_bytes(8, "little"))
        batch.put(_slot(number), number.to_bytes(8, "little"))
        try:
            self._db_for_partition(partition).write(batch)
        except Exception as exc:
            self._give_up(partition, exc)
            raise

    def offset(self, partition: int) -> int | None:
        """Return the changelog offset of the last row written."""
        stored = self.read(partition, self.offset_key)
        return None if stored is None else int(stored)

    def persisted_offset(self, tp: TP) -> int | None:
        """Return the changelog offset of the last row written, as Faust asks for it."""
        return self.offset(tp.partition)

    def _writes(self, partition: int) -> int:
        return int.from_bytes(self.read(partition, WRITES) or b"", "little")

    def _open_for_partition(self, partition: int) -> rocksdict.Rdict:
        """Open a database that is whole, or an empty one in the place of one that is not."""
        try:
            db: rocksdict.Rdict = super()._open_for_partition(partition)
            gap = _gap(db)
        except Exception as exc:
            if not _is_damage(exc):
                raise
            reason = str(exc)
        else:
            if gap is None:
                return db
            reason = f"write {gap} is missing among the newest"
            db.close()
        aside = self._set_aside(partition)
        self.log.error(
            "the rows of partition %d are damaged on disk; they come from the changelog now, the damaged files are in "
            "%s: %s",
            partition,
            aside,
            reason,
        )
        fresh: rocksdict.Rdict = super()._open_for_partition(partition)
        return fresh

    def _give_up(self, partition: int, exc: Exception) -> None:
        if _is_damage(exc):
            aside = self._set_aside(partition)
            raise DamagedStoreError(
                f"the rows of partition {partition} are damaged on disk; the next start restores them from the "
                f"changelog, the damaged files are in {aside}: {exc}"
            ) from exc

    def _set_aside(self, partition: int) -> Path:
        """Move a partition's directory away, in the place of what was set aside before."""
        path = Path(self.partition_path(partition))
        aside = path.with_name(f"{path.name}.damaged")
        if path.exists():  # else another read found the damage first
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
        return aside

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
        rows = max(rows - min(self._writes(partition), RING) - 2, 0)  # the slots, and two keys of the store's own
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

    def reader(self, partition: int) -> Callable[[bytes], bytes | None]:
        """Return `read` of one partition."""
        return partial(self.read, partition)

    def write(self, partition: int, rows: Rows, offset: int) -> None:
        """Write rows and the changelog offset they reach to."""
        stored = self._partitions.setdefault(partition, {})
        for key, value in rows:
            if value is None:
                stored.pop(key, None)
            else:
                stored[key] = value
        self._offsets[partition] = offset

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

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Forget partitions that are not ours."""
        kept = {tp.partition for tp in active_tps | standby_tps}
        for partition in set(self._partitions) - kept:
            del self._partitions[partition]
            self._offsets.pop(partition, None)


def _slot(number: int) -> bytes:
    return WRITES + (number % RING).to_bytes(2, "big")


def _gap(db: rocksdict.Rdict) -> int | None:
    """Return the number of a write that is missing among the last, or None."""
    last = int.from_bytes(db.get(WRITES) or b"", "little")
    numbers = range(max(last - RING, 0) + 1, last + 1)
    found = cast("list[bytes | None]", db.get([_slot(number) for number in numbers]))
    for number, stored in zip(numbers, found, strict=True):
        if stored is None or int.from_bytes(stored, "little") != number:
            return number
    return None


def _is_damage(exc: Exception) -> bool:
    """Whether files are damaged or missing: RocksDB's binding has one class for all errors, and tells them in words."""
    text = str(exc)
    return text.startswith("Corruption") or "No such file or directory" in text


Store = RocksStore | MemoryStore
