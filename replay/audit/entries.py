"""Short entries in the order of their keys, on disk: what an audit has read, to be met by what should be there.

Records of a source partition are spread over every partition of what is made of them. To meet them again takes a sort,
and a sort of millions of records takes a disk.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from heapq import merge
from pathlib import Path
from struct import Struct
from typing import Final

import rocksdict

#: Entries that are written at once.
_AT_ONCE: Final = 5000
_WRITE_BUFFER: Final = 32 << 20
_LENGTHS: Final = Struct("<Iqii")


def digest(
    partition: int, key: bytes | None, value: bytes, stamp: int | None, headers: Iterable[tuple[str, bytes | None]]
) -> bytes:
    """Return a hash of where a record stands and what it says, 16 bytes; ``stamp`` is None where it is not compared."""
    hashed = blake2b(
        _LENGTHS.pack(partition, -1 if stamp is None else stamp, -1 if key is None else len(key), len(value)),
        digest_size=16,
    )
    hashed.update(key or b"")
    hashed.update(value)
    for name, said in headers:
        hashed.update(repr((name, said)).encode())
    return hashed.digest()


class Entries:
    """A temporary file of entries.

    Parameters
    ----------
    directory
        Where it is to be; it must not exist.
    """

    def __init__(self, directory: Path) -> None:
        options = rocksdict.Options(raw_mode=True)
        options.set_write_buffer_size(_WRITE_BUFFER)
        self._how = rocksdict.WriteOptions()
        self._how.disable_wal = True  # type: ignore[method-assign,assignment]  # a property that its stubs call a method
        self._db = rocksdict.Rdict(str(directory), options)
        self._waiting: dict[bytes, bytes] = {}

    def put(self, key: bytes, value: bytes) -> None:
        """Add an entry; another of its key is replaced."""
        self._waiting[key] = value
        if len(self._waiting) >= _AT_ONCE:
            self._write()

    def close(self) -> None:
        """Write what is left. Any process may read the entries from now on."""
        self._write()
        self._db.close()

    def _write(self) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in self._waiting.items():
            batch.put(key, value)
        self._db.write(batch, self._how)
        self._waiting.clear()


def read(directories: Iterable[Path], prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of several directories whose keys begin so, in the order of the keys."""
    return merge(*(_read(directory, prefix) for directory in directories))


def _read(directory: Path, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    db = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True), access_type=rocksdict.AccessType.read_only())
    try:
        for key, value in db.items(from_key=prefix):
            if not key.startswith(prefix):  # type: ignore[union-attr,arg-type]  # its stubs do not know raw mode
                return
            yield key, value  # type: ignore[misc]
    finally:
        db.close()
