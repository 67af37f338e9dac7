"""Disks in memory: what `RocksStore` takes for RocksDB, and what becomes of it when a machine dies.

A database is the list of its writes. So a disk that is old is a list that ends early, and one that lost a write amid
others is a list with a hole. The directories are real: the store moves them aside itself. The database that lies in one
is told by a file in it.
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import rocksdict

from replay.audit import rows
from streams.faust import rocks_options, stores
from tests.simulation.loop import PROCESS

_MARK = "database"
#: What RocksDB says when a write finds no room.
FULL = "IO error: No space left on device: While appending to file"


class WriteBatch:
    """Rows that are written together."""

    def __init__(self, raw_mode: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - as rocksdict's
        self.rows: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Add a row."""
        self.rows.append((key, value))

    def delete(self, key: bytes) -> None:
        """Add a deletion."""
        self.rows.append((key, None))


class Database:
    """What lies in one directory."""

    def __init__(self) -> None:
        self.writes: list[list[tuple[bytes, bytes | None]]] = []
        self.rows: dict[bytes, bytes] = {}
        #: The rows by their keys; None: they have changed since.
        self.sorted: list[tuple[bytes, bytes]] | None = None
        self.damaged = False

    def apply(self, write: list[tuple[bytes, bytes | None]]) -> None:
        """Append a write."""
        self.writes.append(write)
        self.sorted = None
        for key, value in write:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def again(self, writes: list[list[tuple[bytes, bytes | None]]]) -> None:
        """Make it hold these writes."""
        self.writes, self.rows, self.sorted = [], {}, None
        for each in writes:
            self.apply(each)


class Iter:
    """An iterator over rows by their keys."""

    def __init__(self, database: Database) -> None:
        if database.sorted is None:
            database.sorted = sorted(database.rows.items())
        self._rows, self._at = database.sorted, 0

    def seek(self, key: bytes) -> None:
        """Go to the first row from a key on."""
        self._at = bisect_left(self._rows, (key,))

    def valid(self) -> bool:
        """Whether there is a row."""
        return self._at < len(self._rows)

    def key(self) -> bytes:
        """Return its key."""
        return self._rows[self._at][0]

    def value(self) -> bytes:
        """Return its value."""
        return self._rows[self._at][1]

    def next(self) -> None:
        """Go to the next."""
        self._at += 1

    def status(self) -> None:
        """Raise nothing."""


class Rdict:
    """An open database; stands for `rocksdict.Rdict`."""

    def __init__(self, database: Database, full: set[str]) -> None:
        self._database, self._full = database, full

    def _of(self) -> Database:
        if self._database.damaged:
            raise Exception("Corruption: block checksum mismatch")  # noqa: TRY002 - as rocksdict does
        return self._database

    def get(self, key: Any) -> Any:
        """Return a row, or several."""
        rows = self._of().rows
        return [rows.get(each) for each in key] if isinstance(key, list) else rows.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        self._write([(key, value)])

    def write(self, batch: WriteBatch, *_: Any) -> None:
        """Write rows together."""
        self._write(batch.rows)

    def _write(self, rows: list[tuple[bytes, bytes | None]]) -> None:
        process = PROCESS.get()
        if process is not None and process.name in self._full:
            raise Exception(FULL)  # noqa: TRY002 - as rocksdict does
        if process is None or process.alive:
            self._of().apply(rows)

    def iter(self) -> Iter:
        """Return an iterator."""
        return Iter(self._of())

    def items(self, from_key: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield all rows from a key on."""
        found = self.iter()
        found.seek(from_key)
        while found.valid():
            yield found.key(), found.value()
            found.next()

    def property_int_value(self, _: str) -> int:
        """Return an estimate."""
        return 0

    def close(self) -> None:
        """Do nothing."""


class Disks:
    """All disks of a simulation."""

    def __init__(self) -> None:
        self.databases: dict[str, Database] = {}
        #: Names of processes whose disk is full.
        self.full: set[str] = set()
        self._names = count()

    def open(self, path: Path) -> Rdict:
        """Open the database of a directory, or make one there."""
        mark = path / _MARK
        if not mark.exists():
            path.mkdir(parents=True, exist_ok=True)
            mark.write_text(str(next(self._names)))
        return Rdict(self.databases.setdefault(mark.read_text(), Database()), self.full)

    def of(self, directory: Path) -> list[Database]:
        """Return the databases of a worker that are in use, by their paths."""
        marks = sorted(directory.rglob(_MARK))
        return [self.databases[each.read_text()] for each in marks if each.parent.suffix == ".db"]

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Let `RocksStore` and audits open these."""
        here = SimpleNamespace(**vars(rocksdict) | {"WriteBatch": WriteBatch, "Rdict": self._opened})
        opened = lambda _, path, **__: self.open(Path(path))  # noqa: E731 - a method
        with (
            patch.object(stores, "rocksdict", here),
            patch.object(rows, "rocksdict", here),
            patch.object(rocks_options.RocksOptions, "open", opened),
        ):
            yield

    def _opened(self, path: str, *_: Any, **__: Any) -> Rdict:
        return self.open(Path(path))
