"""Directories of databases, among what others may have put in their place."""

import shutil
from pathlib import Path


def stray(path: Path) -> bool:
    """Whether something stands there that is no directory of its own: RocksDB would write through a link."""
    return path.is_symlink() or (path.exists() and not path.is_dir())


def remove_directory(path: Path) -> None:
    """Remove a directory, or what stands in its place; of a link nothing but itself. A directory may stay in part.

    Raises OSError if what is no directory cannot be removed.
    """
    if stray(path):
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
