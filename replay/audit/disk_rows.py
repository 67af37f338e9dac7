"""Derived rows on disk, where they are too many for memory."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import rocksdict


class Disk:
    """Rows in a RocksDB database of its own."""

    def __init__(self, directory: Path) -> None:
        self._db = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))

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
        self._db.write(batch)

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return all rows."""
        return self._db.items()  # type: ignore[return-value]  # its iterator says it is none
