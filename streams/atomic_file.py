"""Files that are there whole or not at all, and through which nobody is led elsewhere.

A name that can be guessed, in a directory where others may write, could be a link that they planted. So what is new has
a random name, must not exist before, and is no link.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from streams.config.settings import SettingsError

#: The file must not be there, and its name must be no link.
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def beside(path: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """Make a file in the directory of ``path`` that is gone afterwards, unless it has taken that name.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    new = path.with_name(f".{path.name[:200]}.{secrets.token_hex(16)}.part")
    with os.fdopen(os.open(new, _NEW, 0o666), "wb") as file:
        try:
            yield new, file
        finally:
            with suppress(FileNotFoundError):
                new.unlink()


def replace(new: Path, path: Path) -> None:
    """Give a file that is on disk the name of another, and see that the name is on disk, too."""
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the name of ``path`` when all went well; else ``path`` is as it was.

    A link that has this name is replaced, not followed.

    Raises
    ------
    SettingsError
        If nothing can be written there.
    """
    with ExitStack() as stack:
        try:
            new, file = stack.enter_context(beside(path))
        except OSError as exc:
            raise SettingsError(f"cannot write {path}: {exc.strerror}") from exc
        yield file
        file.flush()
        os.fsync(file.fileno())
        replace(new, path)


def append(path: Path, line: bytes) -> None:
    """Append a line to a file, which must be no link, and see that it is on disk.

    Raises
    ------
    OSError
        If it cannot be.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "ab") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
