"""A temporary file of lists of plain tuples."""

import marshal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


def spool(found: list[Any], file: BinaryIO) -> None:
    """Write a list of plain tuples to a file."""
    marshal.dump(found, file)


def spooled(path: Path) -> Iterator[tuple[list[tuple[Any, ...]], int]]:
    """Yield the lists that `spool` wrote to a file, and the bytes of each."""
    with path.open("rb") as file:
        before = 0
        while True:
            try:
                found = marshal.load(file)  # noqa: S302 - written by this very program a moment ago
            except EOFError:
                return
            at = file.tell()
            yield found, at - before
            before = at
