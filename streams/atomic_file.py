"""Write files completely or not at all, without following links.

In a directory where others may write, somebody could put a link at a name that can be guessed. So a new file gets a
random name. It must not exist yet, and it must not be a link.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from streams.config.settings import SettingsError

#: The file must not exist, and its name must not be a link.
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that replaces ``path`` at the end; after an exception ``path`` is unchanged.

    If ``path`` is a link, the link is replaced, not followed.

    Raises SettingsError if no file can be made there.
    """
    new = path.with_name(f".{path.name[:200]}.{secrets.token_hex(16)}.part")
    try:
        opened = os.open(new, _NEW, 0o666)
    except OSError as exc:
        raise SettingsError(f"cannot write {path}: {exc.strerror}") from exc
    try:
        with os.fdopen(opened, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
