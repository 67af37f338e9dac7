"""Columns of numbers that grow on disk, so that a replay's memory does not grow with what it measures."""

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Numbers of a column held in memory, at most, between two calls of `Tape.spill`.
HELD = 65_536

_TYPES = {"d": np.float64, "q": np.int64, "i": np.int32, "b": np.int8}


class Tape:
    """Some columns of equal purpose in one directory.

    Parameters
    ----------
    directory
        Where they are kept; made if it does not exist.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._held: dict[str, array[Any]] = {}

    def column(self, name: str, kind: str) -> Callable[[float], None]:
        """Open a column of one of the kinds of `array`, ``d``, ``q``, ``i`` or ``b``; return what appends to it."""
        held = self._held[f"{name}.{kind}"] = array(kind)
        return held.append

    def spill(self, least: int = HELD) -> None:
        """Write columns that hold at least so many numbers."""
        for name, held in self._held.items():
            if len(held) >= least:
                with (self._directory / name).open("ab") as file:
                    held.tofile(file)
                del held[:]

    def close(self) -> None:
        """Write all columns."""
        self.spill(0)


def played(directory: Path, name: str, kind: str) -> NDArray[Any]:
    """Return a column that a `Tape` wrote, mapped from its file."""
    path = directory / f"{name}.{kind}"
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, _TYPES[kind])
    return np.memmap(path, dtype=_TYPES[kind], mode="r")
