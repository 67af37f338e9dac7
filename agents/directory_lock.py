"""A worker has its state directory for itself.

RocksDB locks each partition's database, so a second worker in the directory finds out partition by partition, after it
has joined the group, when partitions move to it. It is told before.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Name of the file that is locked. It stays: a file that is removed may be locked by one and made anew by another.
NAME = "worker"


class HeldError(RuntimeError):
    """The directory cannot be had; the message says why."""


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold a directory, which is made if need be, while the context lasts or until the process ends, however it does.

    Raises
    ------
    HeldError
        If another process holds it, or it cannot be made or locked.
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
