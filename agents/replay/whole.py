"""Files that are there whole, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from streams.settings import SettingsError


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside ``path`` that takes its name when all went well, and is removed when it did not.

    Raises
    ------
    SettingsError
        If it cannot be written there.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        file = beside.open("wb")
    except OSError as exc:
        raise SettingsError(f"cannot write {path}: {exc.strerror}") from exc
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
