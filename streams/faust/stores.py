"""The store of the state table: one RocksDB database for each partition."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from time import time
from typing import Any, Final

import rocksdict
from faust.stores import rocksdb
from faust.types import TP

from streams.faust import write_ring
from streams.faust.rocks_options import RocksOptions
from streams.kafka.provenance import Part
from streams.records.merge import KafkaRecord

#: Row key and value; None deletes the row.
RowItems = Iterable[tuple[bytes, bytes | None]]

#: Keys of a database's origin (`Described.origin`), and of the time up to which its rows are complete (i64, ms
#: since 1970).
ORIGIN, AS_OF = b"__trueup\0origin__", b"__trueup\0as-of__"
#: Key of the changelog offset that a write in slices should reach.
BEGUN: Final = b"__trueup\0begun__"

#: Reasons to set a database aside. Its new name ends with the reason.
SET_ASIDE: Final = ("foreign", "ahead", "old", "damaged")


class DamagedStoreError(RuntimeError):
    """A partition's database is damaged and was set aside. Its rows must come from a copy or from the changelog."""

    def __init__(self, partition: int, message: str) -> None:
        super().__init__(message)
        self.partition = partition


class RocksStore(rocksdb.Store):
    """Faust's RocksDB store. Each write also stores the changelog offset that the rows reach.

    A damaged database is set aside: it is renamed to ``….damaged``. If the damage is found at opening, an empty
    database takes its place and recovery fills it. If it is found later, the partition cannot be read or written until
    `anew`: otherwise a write in progress would begin an incomplete database.

    Damage often affects several databases of a disk. So after the first one, `vet` reads all rows of the others.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Faust calls it
        super().__init__(*args, **kwargs)
        self.rocksdb_options = RocksOptions(**(self.options or {}))
        #: Number of databases set aside since the process began, by the reason in their new name.
        self.set_aside_for: Counter[str] = Counter()
        #: Partitions whose database was found damaged in use and has not been replaced yet.
        self._lost: set[int] = set()
        #: Partitions whose rows on this disk have not been read since damage was found in others.
        self._suspects: set[int] = set()

    def read(self, partition: int, key: bytes) -> bytes | None:
        """Return a stored row.

        Raises DamagedStoreError if RocksDB finds damage, or the database was set aside and not replaced.
        """
        return self.reader(partition)(key)

    def reader(self, partition: int) -> Callable[[bytes], bytes | None]:
        """Return `read` for one partition, as a single call: it runs once an event. It holds no database open."""
        dbs = self._dbs

        def read(key: bytes) -> bytes | None:
            try:
                # The database is in no variable here: the traceback of an error would keep it open.
                value: bytes | None = (dbs.get(partition) or self._db_for_partition(partition)).get(key)
            except Exception as exc:
                self._give_up(partition, exc)
                raise
            return value

        return read

    def vet(self, partition: int, of: Part) -> bool:
        """Set a database aside if it is damaged or its changelog cannot bring it up to date; return whether it was.

        An empty database is marked with the changelog's origin.
        """
        aside = self._vetted(partition, of)
        if self.read(partition, ORIGIN) != of.origin:
            try:
                self._db_for_partition(partition).put(ORIGIN, of.origin)
            except Exception as exc:
                self._give_up(partition, exc)
                raise
        return aside

    def fit(self, partition: int, of: Part) -> bool:
        """Whether the changelog can bring the rows up to date. Only damaged rows are set aside."""
        try:
            return self.offset(partition) is not None and not self._unfit(partition, of)
        except DamagedStoreError as exc:
            self._begin_anew(exc)
            return False

    def _vetted(self, partition: int, of: Part) -> bool:
        """Set a damaged or unfit database aside; return whether it was."""
        try:
            if partition in self._suspects:
                self._read_all(partition)
            found = self._unfit(partition, of)
        except DamagedStoreError as exc:
            self._begin_anew(exc)
            return True
        if found is None:
            return False
        what, reason = found
        aside = self.set_aside(partition, what)
        self.log.error(
            "the rows of partition %d on this disk are not used: %s; they come from the changelog now, the old files "
            "are in %s",
            partition,
            reason,
            aside,
        )
        return True

    def _read_all(self, partition: int) -> None:
        """Read every row of a database; raises as `read`."""
        for _ in self.range(partition, b""):
            pass
        self._suspects.discard(partition)

    def _unfit(self, partition: int, of: Part) -> tuple[str, str] | None:
        """Return why the rows cannot be used, as one of `SET_ASIDE` and in words; None if they can be used."""
        offset, begun = self.offset(partition), self.read(partition, BEGUN)
        if offset is None and begun is None:
            return None  # there are no rows
        offset, reached = -1 if offset is None else offset, -1 if begun is None else int(begun)
        found, as_of = self.read(partition, ORIGIN), self.as_of(partition)
        if found != of.origin:
            shown = "unknown" if found is None else found.decode(errors="replace")
            return "foreign", f"they are of {shown}, and the changelog is {of.origin.decode()}"
        if (reached := max(offset, reached)) >= of.end:
            return "ahead", (
                f"they reach to offset {reached}, but the changelog ended at {of.end}: the brokers have lost "
                "acknowledged records, or its topic was emptied"
            )
        if offset + 1 < of.begin:
            return "old", f"they reach to offset {offset}, and the changelog has nothing before {of.begin} any more"
        if as_of is None or as_of < of.oldest:
            return "old", (
                "they are older than half of the changelog's delete.retention.ms, so deletions they do not know of may "
                "be gone from it"
            )
        return None

    def as_of(self, partition: int) -> int | None:
        """Return up to which time the rows are complete, ms since 1970: the changelog still has all later deletions."""
        stored = self.read(partition, AS_OF)
        return None if stored is None else int.from_bytes(stored, "little", signed=True)

    def write(self, partition: int, rows: RowItems, offset: int, as_of: int | None = None) -> None:
        """Write rows, their changelog offset, and the time up to which they are complete, in one atomic write.

        Raises DamagedStoreError if RocksDB finds damage now, found it in the background, or had found it before.

        ``rows``: keys and values; None deletes.
        ``offset``: offset of the last changelog record in the rows.
        ``as_of``: every deletion that the rows lack is later than this, ms since 1970; None does not change the time.
        """
        own = [(self.offset_key, str(offset).encode())]
        if as_of is not None:
            own.append((AS_OF, as_of.to_bytes(8, "little", signed=True)))
        self._put(partition, chain(rows, own))

    def begin(self, partition: int, rows: RowItems, offset: int) -> None:
        """Write a part of the rows up to an offset. `write` completes it. Until then the database keeps its old offset.

        After a crash in between, the rows come from the changelog again. If the changelog ends before ``offset``, the
        rows are set aside. Raises as `write`.
        """
        self._put(partition, chain(rows, [(BEGUN, str(offset).encode())]))

    def _put(self, partition: int, rows: RowItems) -> None:
        number = write_ring.number(self.read(partition, write_ring.WRITES)) + 1
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        for key, value in write_ring.rows(number):
            batch.put(key, value)
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
        """Return the changelog offset of the last row written; Faust asks for it when it takes a partition up."""
        try:
            return self.offset(tp.partition)
        except DamagedStoreError as exc:
            self._begin_anew(exc)
            return None

    def _begin_anew(self, exc: DamagedStoreError) -> None:
        """Log the damage, and go on with an empty database."""
        self.log.error("%s", exc)
        self.anew(exc.partition)

    def anew(self, partition: int) -> None:
        """Replace a damaged database by an empty one. Call it when no write is in progress."""
        self._lost.discard(partition)

    def _open_for_partition(self, partition: int) -> rocksdict.Rdict:
        """Open a database; if it is damaged, set it aside and open an empty one."""
        if partition in self._lost:
            raise _awaited(partition)
        path = Path(self.partition_path(partition))
        if _stray(path):
            what = "a link" if path.is_symlink() else "a file"
            self.log.error("%s", self._damaged(partition, f"{path.name} is {what} and no directory", "the changelog"))
        db: rocksdict.Rdict | None = None
        try:
            db = super()._open_for_partition(partition)
            gap = write_ring.gap(db)
        except Exception as exc:
            if not _is_damage(exc):
                raise
            reason = str(exc)
        else:
            if gap is None:
                return db
            reason = f"write {gap} is missing among the newest"
        if db is not None:
            _close_damaged(db)
        db = None
        self.log.error("%s", self._damaged(partition, reason, "the changelog"))
        fresh: rocksdict.Rdict = super()._open_for_partition(partition)
        return fresh

    def _give_up(self, partition: int, exc: Exception) -> None:
        """If the error is damage, set a database aside and raise DamagedStoreError."""
        if isinstance(exc, rocksdict.DbClosedError) and partition in self._lost:  # another thread has set it aside
            raise _awaited(partition) from exc
        if isinstance(exc, DamagedStoreError) or not _is_damage(exc):
            return
        reason = str(exc)
        self._lost.add(partition)
        raise DamagedStoreError(partition, self._damaged(partition, reason)) from exc

    def _damaged(self, partition: int, reason: str, source: str = "a copy or from the changelog") -> str:
        """Set a damaged database aside, suspect the others on this disk, and return the message."""
        self._suspects |= self.kept() - {partition}
        return (
            f"the rows of partition {partition} are damaged on disk; they come from {source} now, the damaged files "
            f"are in {self.set_aside(partition, 'damaged')}: {reason}"
        )

    def set_aside(self, partition: int, what: str) -> Path:
        """Close a database and rename it; return the new path. It replaces the last one with the same reason."""
        db = self._dbs.pop(partition, None)
        if db is not None:
            _close_damaged(db)
        path = Path(self.partition_path(partition))
        aside = path.with_name(f"{path.name}.{what}")
        if os.path.lexists(path):  # otherwise another read has found the damage first
            remove_directory(aside)
            path.rename(aside)
            self.set_aside_for[what] += 1
        self._suspects.discard(partition)
        return aside

    def close(self, partition: int) -> None:
        """Close a partition's database, if it is open. Call it when no write is in progress.

        When RocksDB closes, it reports damage that it found in the background. The database is then set aside.
        """
        self.anew(partition)
        db = self._dbs.pop(partition, None)
        if db is None:
            return
        try:
            db.close()
        except Exception as exc:
            if not _is_damage(exc):
                raise
            self.log.error("%s", self._damaged(partition, str(exc)))  # noqa: TRY400 - a message, not a fault

    def kept(self) -> set[int]:
        """Return the partitions that have a database on this disk, open or not."""
        one = Path(self.partition_path(0))
        before, after = one.name.split("0")
        names = (path.name.removeprefix(before).removesuffix(after) for path in one.parent.glob(f"{before}*{after}"))
        return {int(name) for name in names if name.isdigit()}

    def files(self, partition: int) -> list[os.stat_result]:
        """Return the ``stat`` of each file of a partition's database."""
        found = []
        for path in Path(self.partition_path(partition)).glob("*"):
            with suppress(FileNotFoundError):  # RocksDB removes some of them at any time
                found.append(path.stat())
        return found

    def range(self, partition: int, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the rows whose key starts with ``prefix``, in order; raises as `read`.

        At damage, RocksDB ends an iteration silently, so its status is checked afterwards.
        """
        rows: Any = None
        try:
            rows = self._db_for_partition(partition).iter()
            rows.seek(prefix)
            while rows.valid() and (key := rows.key()).startswith(prefix):
                yield key, rows.value()
                rows.next()
            rows.status()
        except Exception as exc:
            rows = None  # the iterator would keep the database open
            self._give_up(partition, exc)
            raise

    def size(self, partition: int) -> tuple[int, int]:
        """Return RocksDB's estimates of the number of rows and of their bytes; 0 if the database is closed or damaged.

        The metrics' thread calls it. It opens no database: that of a moving partition would stay open.
        """
        db = self._dbs.get(partition)
        if db is None:
            return 0, 0
        try:
            rows = db.property_int_value("rocksdb.estimate-num-keys") or 0
            own = (self.offset_key, ORIGIN, AS_OF, BEGUN)
            writes = write_ring.number(db.get(write_ring.WRITES))
            own_rows = write_ring.size(writes) + sum(db.get(key) is not None for key in own)
            held = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
            return max(rows - own_rows, 0), sum(db.property_int_value(name) or 0 for name in held)
        except Exception as exc:
            if isinstance(exc, rocksdict.DbClosedError) or _is_damage(exc):
                return 0, 0  # whoever serves the partition reports it
            raise


def restore(store: RocksStore, partition: int, records: Sequence[KafkaRecord], at: int) -> None:
    """Write changelog records in order, with the offset of the last.

    The time up to which present rows are complete does not change. An empty store gets the time when recovery began.

    ``at``: the time, ms since 1970.
    """
    rows = ((record.key, record.value) for record in records if record.key is not None)
    as_of = at if store.offset(partition) is None else None
    store.write(partition, rows, records[-1].offset, as_of)


def now() -> int:
    """Return ms since 1970, as record times are."""
    return int(time() * 1000)


def _awaited(partition: int) -> DamagedStoreError:
    return DamagedStoreError(partition, f"the rows of partition {partition} were set aside, and others are awaited")


def _close_damaged(db: rocksdict.Rdict) -> None:
    """Close a damaged database. RocksDB may report the damage again, but closes it."""
    with suppress(Exception):
        db.close()


def _is_damage(exc: Exception) -> bool:
    """Whether an error means damaged or missing files. The binding has one error class, so the message decides."""
    text = str(exc)
    return text.startswith("Corruption") or "No such file or directory" in text


def _stray(path: Path) -> bool:
    """Whether the path is not a directory. RocksDB would write through a link."""
    return path.is_symlink() or (path.exists() and not path.is_dir())


def remove_directory(path: Path) -> None:
    """Remove a directory, or a file or link in its place. Parts of a directory may remain.

    Raises OSError if a file or link cannot be removed.
    """
    if _stray(path):
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
