"""Finds the rows of a text table that are data."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from replay.sources.column import quoted
from replay.sources.record import TableError

#: The blank comes last, because cells may contain it. Hive writes the fifth.
SEPARATORS: Final = (",", ";", "\t", "|", "\x01", "^", "~", " ")
#: The most rows of one cell that may be below a table; and how many of them are shown.
BELOW, SHOWN = 9, 2


class Rows:
    """Takes the rows of a table, except blank rows and headers. A row with too many or too few cells is an error.

    ``width``: how many columns the header names.
    ``least``: fewest cells of a row.
    """

    def __init__(self, path: Path, width: int, least: int) -> None:
        self._path, self._width, self._least = path, width, least
        #: Numbers of the rows where the header is repeated.
        self.again: list[int] = []
        #: Rows of one cell after which no row but a header comes, such as counts that databases write.
        self.passed: list[tuple[int, list[str]]] = []
        #: How many of these have a header after them: that of the next one of several joined files.
        self._closed = 0

    def taken(
        self, batch: Sequence[list[str]], numbers: Sequence[int], heads: AbstractSet[int]
    ) -> tuple[Sequence[list[str]], Sequence[int]]:
        """Return those rows of a batch that are data, and their numbers.

        ``heads``: the numbers of the rows where the header is repeated.
        """
        self.again += sorted(heads)
        if not heads and len(self.passed) == self._closed and set(map(len, batch)) == {self._width}:
            return batch, numbers
        found, kept = [], []
        for number, row in zip(numbers, batch, strict=True):
            if number in heads:
                self._closed = len(self.passed)
                continue
            if len(row) < 2 and not any(map(str.isalnum, "".join(row))):
                continue
            below = self.passed[self._closed :]
            if (
                len(row) == 1 < self._least
                and len(below) < BELOW
                and not any(row[0].count(each) == self._width - 1 for each in SEPARATORS[:4])
            ):
                self.passed.append((number, row))
                continue
            if below:
                raise _uneven(self._path, *below[0], self._width, self._least)
            if len(row) < self._least or any(cell.strip() for cell in row[self._width :]):
                raise _uneven(self._path, number, row, self._width, self._least, named=batch[0] is row)
            found.append(row)
            kept.append(number)
        return found, kept


def _uneven(path: Path, number: int, row: list[str], width: int, least: int, *, named: bool = False) -> TableError:
    """Return the error for a row with too many or too few cells. ``named``: whether all rows may begin with a name."""
    cell = f"; it begins with {quoted(row[0])}" if len(row) < least else f"; its last is {quoted(row[-1])}"
    if len(row) == width + 1 and named:
        cell += "; if rows begin with a name, as R writes them, put a name for it before the header's first"
    return TableError(
        f"{path}: row {number} has {len(row)} cells, and the header names {width}{cell}; remove the row, or put quotes "
        "around the cell that holds a separator"
    )
