"""Where the state table keeps its rows: RocksDB, a database for each partition."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import rocksdict
from faust.stores import rocksdb
from faust.types import TP

from streams.faust import write_ring
from streams.faust.directories import remove_directory, stray
from streams.faust.rocks_options import RocksOptions
from streams.records.merge import KafkaRecord

#: Row key and value; None deletes.
RowItems = Iterable[tuple[bytes, bytes | None]]

#: Keys of what a database's rows are of (`streams.kafka.provenance.Origin`), and of the time they are as of (i64, ms
#: since 1970).
ORIGIN, AS_OF = b"__trueup\0origin__", b"__trueup\0as-of__"

#: Why databases are set aside; each is the end of their new name.
SET_ASIDE: Final = ("foreign", "ahead", "old", "damaged")


class DamagedStoreError(RuntimeError):
    """A partition's database is damaged. It has been set aside: its rows come from a copy or from the changelog.

    Attributes
    ----------
    partition
        Number of the partition.
    """

    def __init__(self, partition: int, message: str) -> None:
        super().__init__(message)
        self.partition = partition


class RocksStore(rocksdb.Store):
    """Faust's RocksDB store, one database a partition, with writes that carry their changelog offset.

    A damaged database is never read on. Found when it is opened, it is set aside, beside itself under the name
    ``….damaged``, and an empty one takes its place, which recovery fills from the changelog. Found later, it is set
    aside too, and nothing can be read or written in its place until `anew`: what was under way would leave rows there
    that are not all. A database that the changelog cannot bring up to date is set aside by `vet`.

    Damage seldom comes alone. So `vet` reads all rows of what the disk held when some were found damaged.

    Attributes
    ----------
    set_aside_for
        How many databases were set aside since the process began, by the reason in their new name.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Faust calls it
        super().__init__(*args, **kwargs)
        self.rocksdb_options = RocksOptions(**(self.options or {}))
        self.set_aside_for: Counter[str] = Counter()
        #: Partitions that were in use when their rows were found damaged, and have not been begun anew.
        self._lost: set[int] = set()
        #: Partitions whose rows lay on this disk when others were found damaged, and have not been read since.
        self._suspects: set[int] = set()

    def read(self, partition: int, key: bytes) -> bytes | None:
        """Return a stored row.

        Raises
        ------
        DamagedStoreError
            If RocksDB finds it damaged, or has found others, and nothing has taken their place.
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

    def vet(self, partition: int, origin: bytes, end: int, oldest: int, begin: int = 0) -> bool:
        """Set a database aside that is damaged or that its changelog cannot bring up to date; return whether it was.

        Parameters
        ----------
        partition
            Number of the partition.
        origin
            What its rows must be of; an empty database is marked with it.
        end
            Offset at which the changelog ended.
        oldest
            The time its rows must be as of at least, ms since 1970: a tombstone from before may be gone.
        begin
            Offset of the first record that the changelog still has.
        """
        aside = self._vetted(partition, origin, end, oldest, begin)
        if self.read(partition, ORIGIN) != origin:
            try:
                self._db_for_partition(partition).put(ORIGIN, origin)
            except Exception as exc:
                self._give_up(partition, exc)
                raise
        return aside

    def fit(self, partition: int, origin: bytes, end: int, oldest: int, begin: int = 0) -> bool:
        """Whether there are rows that the changelog can bring up to date; parameters as of `vet`.

        Nothing is set aside but what is found damaged.
        """
        try:
            return self.offset(partition) is not None and not self._unfit(partition, origin, end, oldest, begin)
        except DamagedStoreError as exc:
            self.anew(partition)
            self.log.error("%s", exc)  # noqa: TRY400 - a message, not a fault
            return False

    def _vetted(self, partition: int, origin: bytes, end: int, oldest: int, begin: int) -> bool:
        """Set a database aside that is damaged or unfit, and return whether it was."""
        try:
            if partition in self._suspects:
                self._read_all(partition)
            found = self._unfit(partition, origin, end, oldest, begin)
        except DamagedStoreError as exc:
            self.anew(partition)
            self.log.error("%s", exc)  # noqa: TRY400 - a message, not a fault
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

    def _unfit(self, partition: int, origin: bytes, end: int, oldest: int, begin: int) -> tuple[str, str] | None:
        offset = self.offset(partition)
        if offset is None:
            return None  # there are no rows
        found, as_of = self.read(partition, ORIGIN), self.as_of(partition)
        if found != origin:
            shown = "unknown" if found is None else found.decode(errors="replace")
            return "foreign", f"they are of {shown}, and the changelog is {origin.decode()}"
        if offset >= end:
            return "ahead", (
                f"they reach to offset {offset}, but the changelog ended at {end}: the brokers have lost acknowledged "
                "records, or its topic was emptied"
            )
        if offset + 1 < begin:
            return "old", f"they reach to offset {offset}, and the changelog has nothing before {begin} any more"
        if as_of is None or as_of < oldest:
            return "old", (
                "they are older than half of the changelog's delete.retention.ms, so deletions they do not know of may "
                "be gone from it"
            )
        return None

    def as_of(self, partition: int) -> int | None:
        """Return the time the rows are as of, ms since 1970: later deletions are still in the changelog."""
        stored = self.read(partition, AS_OF)
        return None if stored is None else int.from_bytes(stored, "little", signed=True)

    def write(self, partition: int, rows: RowItems, offset: int, as_of: int | None = None) -> None:
        """Write rows, the changelog offset they reach to and the time they are as of, all or none.

        Parameters
        ----------
        partition
            Number of the partition.
        rows
            Keys and values; None deletes.
        offset
            Of the last record of the changelog that is in the rows.
        as_of
            All deletions that the rows do not have are younger, ms since 1970; None leaves the time as it was.

        Raises
        ------
        DamagedStoreError
            If RocksDB has found damage, be it in the background, or had found it before.
        """
        number = write_ring.number(self.read(partition, write_ring.WRITES)) + 1
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(self.offset_key, str(offset).encode())
        for key, value in write_ring.rows(number):
            batch.put(key, value)
        if as_of is not None:
            batch.put(AS_OF, as_of.to_bytes(8, "little", signed=True))
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
        """Return the changelog offset of the last row written, as Faust asks for it when a partition is taken up."""
        try:
            return self.offset(tp.partition)
        except DamagedStoreError as exc:
            self.anew(tp.partition)
            self.log.error("%s", exc)  # noqa: TRY400 - a message, not a fault
            return None

    def anew(self, partition: int) -> None:
        """Let an empty database take the place of one that was found damaged; nothing of it is under way any more."""
        self._lost.discard(partition)

    def _open_for_partition(self, partition: int) -> rocksdict.Rdict:
        """Open a database that is whole, or an empty one in the place of one that is not."""
        if partition in self._lost:
            raise _awaited(partition)
        path = Path(self.partition_path(partition))
        if stray(path):
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
        """Set aside what is damaged, and say so; return where the error is another one."""
        if isinstance(exc, rocksdict.DbClosedError) and partition in self._lost:  # by another thread
            raise _awaited(partition) from exc
        if isinstance(exc, DamagedStoreError) or not _is_damage(exc):
            return
        reason = str(exc)
        self._lost.add(partition)
        raise DamagedStoreError(partition, self._damaged(partition, reason)) from exc

    def _damaged(self, partition: int, reason: str, source: str = "a copy or from the changelog") -> str:
        """Set a damaged database aside, suspect those that lie beside it, and return what there is to say."""
        self._suspects |= self.kept() - {partition}
        return (
            f"the rows of partition {partition} are damaged on disk; they come from {source} now, the damaged files "
            f"are in {self.set_aside(partition, 'damaged')}: {reason}"
        )

    def set_aside(self, partition: int, what: str) -> Path:
        """Close a partition's database and move it away, in the place of the last one of that reason; return where."""
        db = self._dbs.pop(partition, None)
        if db is not None:
            _close_damaged(db)
        path = Path(self.partition_path(partition))
        aside = path.with_name(f"{path.name}.{what}")
        if os.path.lexists(path):  # else another read found the damage first
            remove_directory(aside)
            path.rename(aside)
            self.set_aside_for[what] += 1
        self._suspects.discard(partition)
        return aside

    def close(self, partition: int) -> None:
        """Close a partition's database, if it is open; nothing of it is under way any more.

        What RocksDB found damaged in the background it says at the end; it is set aside then.
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
        """Return what the file system says of the files of a partition's database."""
        found = []
        for path in Path(self.partition_path(partition)).glob("*"):
            with suppress(FileNotFoundError):  # RocksDB removes some of them at any time
                found.append(path.stat())
        return found

    def range(self, partition: int, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the rows whose key starts with ``prefix``, in order; raises as `read`.

        RocksDB ends an iteration at what is damaged, as if there were nothing more, and tells it to who asks.
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
            rows = None  # it would hold the database open
            self._give_up(partition, exc)
            raise

    def size(self, partition: int) -> tuple[int, int]:
        """Return RocksDB's estimates of the number of rows and of the bytes they take; 0 if it is not open or damaged.

        Readers of metrics ask for it in their own thread, and may ask for what is just moving or being set aside:
        opened for them, it would stay open.
        """
        db = self._dbs.get(partition)
        if db is None:
            return 0, 0
        try:
            rows = db.property_int_value("rocksdb.estimate-num-keys") or 0
            own = (self.offset_key, ORIGIN, AS_OF)
            writes = write_ring.number(db.get(write_ring.WRITES))
            own_rows = write_ring.size(writes) + sum(db.get(key) is not None for key in own)
            held = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
            return max(rows - own_rows, 0), sum(db.property_int_value(name) or 0 for name in held)
        except Exception as exc:
            if isinstance(exc, rocksdict.DbClosedError) or _is_damage(exc):
                return 0, 0  # who serves the partition says so
            raise


def restore(store: RocksStore, partition: int, records: Sequence[KafkaRecord], now: int) -> None:
    """Write records of the changelog, in order, with the offset of the last.

    The rows are as of the beginning of the recovery, and if that began on rows that were there, as these.

    Parameters
    ----------
    now
        The time, ms since 1970.
    """
    rows = ((record.key, record.value) for record in records if record.key is not None)
    as_of = now if store.offset(partition) is None else None
    store.write(partition, rows, records[-1].offset, as_of)


def _awaited(partition: int) -> DamagedStoreError:
    return DamagedStoreError(partition, f"the rows of partition {partition} were set aside, and others are awaited")


def _close_damaged(db: rocksdict.Rdict) -> None:
    """Close a database; RocksDB may say again what it found, and closes it nevertheless."""
    with suppress(Exception):
        db.close()


def _is_damage(exc: Exception) -> bool:
    """Whether files are damaged or missing: RocksDB's binding has one class for all errors, and tells them in words."""
    text = str(exc)
    return text.startswith("Corruption") or "No such file or directory" in text
