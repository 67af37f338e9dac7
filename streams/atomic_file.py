"""Writes files completely or not at all, without following links.

In a directory where others may write, somebody could put a link at a name that can be guessed. So a new file gets a
random name. No file or link of that name may exist.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

import orjson

from streams.config.settings import SettingsError

#: The file must not exist, and its name must not be a link.
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def beside(path: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """Make a temporary file in the directory of ``path``; it is removed at the end, unless it was renamed.

    Raises OSError if the file cannot be made.
    """
    new = path.with_name(f".{path.name[:200]}.{secrets.token_hex(16)}.part")
    with os.fdopen(os.open(new, _NEW, 0o666), "wb") as file:
        try:
            yield new, file
        finally:
            with suppress(FileNotFoundError):
                new.unlink()


def replace(new: Path, path: Path) -> None:
    """Rename a file, replacing ``path``, and wait until the new name is on disk. The content must already be there."""
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that replaces ``path`` at the end. After an exception ``path`` is unchanged.

    If ``path`` is a link, the link is replaced, not followed.

    Raises SettingsError if no file can be made there, or a directory or a device has that name: renaming over a device,
    such as /dev/stdout, would take it from everybody.
    """
    if path.exists() and not path.is_file():
        raise SettingsError(f"cannot write {path}: it is no file; name one, new or to be replaced")
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
    """Append a line to a file, which must not be a link. Wait until the line is on disk.

    Raises OSError if the line cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "ab") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects that `append` wrote, the oldest first. A line that is cut gives an empty object.

    Raises OSError if the file cannot be read. A missing file has no lines.
    """
    found: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            found.append({})
    return found
