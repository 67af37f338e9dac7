"""A worker's disk: a small one of its own where the system lets us mount it, else a directory like any other."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

SIZE = "512m"


class Disk:
    """Holds a worker's data directory ``data``; `close` unmounts it.

    Attributes
    ----------
    small
        Whether it is a file system of its own, which can be filled.
    """

    def __init__(self, path: Path, *, small: bool) -> None:
        path.mkdir()
        self._path = path
        self.data = path / "data"
        self.small = small and os.geteuid() == 0 and _ran("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", path)

    def fill(self) -> None:
        """Leave no room."""
        assert self.small
        with suppress(OSError), (self._path / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(1 << 20)):
                pass

    def free(self) -> None:
        """Make room again."""
        (self._path / "ballast").unlink(missing_ok=True)

    def wipe(self) -> None:
        """Lose the data."""
        shutil.rmtree(self.data, ignore_errors=True)

    def close(self) -> None:
        """Unmount."""
        if self.small:
            _ran("umount", "-l", self._path)


def _ran(*command: str | Path) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
