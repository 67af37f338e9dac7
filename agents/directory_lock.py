"""One worker uses a state directory at a time.

RocksDB locks each partition's database, so a second worker would fail when a partition moves to it, long after its
start. This lock stops it at its start.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Name of the file that is locked. It is never removed: one process could lock the removed file and another a new one.
NAME = "worker"


class HeldError(RuntimeError):
    """The directory cannot be locked; the message says why."""


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Lock a directory while the context lasts, or until the process ends in any way. Make the directory if necessary.

    Raises HeldError if another process has locked it, or it cannot be made or locked.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise HeldError(f"cannot make the data directory {directory}: {exc.strerror}") from exc
    try:
        file = (directory / NAME).open("ab")
    except OSError as exc:
        raise HeldError(f"cannot write in the data directory {directory}: {exc.strerror}") from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise HeldError(
                f"another worker uses the data directory {directory}: give each a TRUEUP_DATA_DIR of its own"
            ) from exc
        except OSError as exc:
            raise HeldError(f"cannot lock the data directory {directory}: {exc.strerror}") from exc
        yield
