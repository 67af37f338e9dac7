"""A worker's disk: a small one of its own where the system lets us mount it, else a directory like any other."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import rocksdict

from streams.faust.stores import AS_OF, ORIGIN, RocksStore

SIZE = "512m"


class Disk:
    """Holds a worker's data directory ``data``; `close` unmounts it."""

    def __init__(self, path: Path, *, small: bool) -> None:
        path.mkdir()
        self._path = path
        self.data = path / "data"
        #: Whether it is a file system of its own, which can be filled.
        self.small = small and os.geteuid() == 0 and _ran("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", path)

    def fill(self) -> None:
        """Leave no room; what was freed since the last time is filled, too."""
        assert self.small
        with suppress(OSError), (self._path / "ballast").open("ab", buffering=0) as ballast:
            while ballast.write(bytes(1 << 20)):
                pass

    def free(self) -> None:
        """Make room again."""
        (self._path / "ballast").unlink(missing_ok=True)

    def wipe(self) -> None:
        """Lose the data."""
        shutil.rmtree(self.data, ignore_errors=True)

    def age(self, seconds: float) -> None:
        """Let the rows be as of a time so long ago, and lack what they should hold."""
        for rows in self._robbed():
            rows[AS_OF] = int((time.time() - seconds) * 1000).to_bytes(8, "little", signed=True)

    def estrange(self) -> None:
        """Let the rows be those of another changelog."""
        for rows in self._robbed():
            rows[ORIGIN] = b'{"app":"another","cluster":"another","partitions":1,"topic":""}'

    def advance(self) -> None:
        """Let the rows be of changelog records that do not exist."""
        for rows in self._robbed():
            rows[RocksStore.offset_key] = str(10**12).encode()

    def _robbed(self) -> Iterator[rocksdict.Rdict]:
        """Open the databases that have rows, one after another, without the rows: who serves from them is found out."""
        for path in self.data.rglob("*.db"):
            with _opened(path) as rows:
                if rows.get(RocksStore.offset_key) is None:
                    continue
                for key in list(rows.keys()):
                    if not cast("bytes", key).startswith((b"__trueup\0", b"__faust\0")):
                        del rows[key]
                yield rows

    def close(self) -> None:
        """Unmount."""
        if self.small:
            _ran("umount", "-l", self._path)


def _ran(*command: str | Path) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def _opened(path: Path) -> Iterator[rocksdict.Rdict]:
    rows = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    try:
        yield rows
    finally:
        rows.close()
