"""A column of a table, and how a message names a cell in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from unicodedata import category

from numpy.typing import NDArray

from replay.sources.record import TableError

#: Text that means *no value* among numbers and times.
MISSING: Final = frozenset(
    [
        *("", "\\N", "#N/A", "N/A", "n/a", "NA", "na", "<NA>", "<na>"),
        *("NaN", "nan", "NAN", "NaT", "nat"),
        *("None", "none", "NONE", "NULL", "Null", "null", "(null)", "[NULL]", "#NULL!"),
    ]
)
_FORMULA: Final = re.compile(r'="([^"]*)"')
#: Characters of a cell that a message shows.
_SHOWN: Final = 60


@dataclass(frozen=True)
class Column:
    """A column that an option names."""

    #: Name of the option, and its value.
    option: str
    name: str
    #: Cells as text; or, if the file has such types, as numbers or as ``datetime64[ms]`` in UTC. An empty cell is empty
    #: text, NaN or NaT.
    cells: list[str] | NDArray[Any]
    #: The number of each cell's row, as people count: in CSV the first row of the file is 1.
    rows: Sequence[int]

    @property
    def texts(self) -> list[str]:
        """Cells as text."""
        return self.cells if isinstance(self.cells, list) else [str(cell) for cell in self.cells]

    def present(self) -> list[str]:
        """Return the cells as text, without surrounding blanks. Text in `MISSING`, or of marks alone, becomes empty."""
        stripped = (cell.strip() for cell in self.texts)
        return ["" if cell in MISSING or (not cell[:1].isalnum() and is_marks(cell)) else cell for cell in stripped]

    def wrong(self, at: int, said: str) -> TableError:
        """Return the error for a wrong cell."""
        return TableError(f"{self.option} {shown(self.name)}: row {self.rows[at]} holds {quoted(self.cells[at])}{said}")

    def at(self, at: int) -> str:
        """Return the row and the text of a cell."""
        return f"row {self.rows[at]}, {quoted(self.cells[at])}"


def is_marks(cell: str) -> bool:
    """Whether text holds no letter, digit or currency. Databases draw lines, and a dash or a dot stands for nothing.

    Examples
    --------
    >>> is_marks("---+---"), is_marks("."), is_marks("-.5"), is_marks("$-")
    (True, True, False, False)
    """
    return not any(each.isalnum() or category(each) == "Sc" for each in cell)


def counted(count: int, what: str) -> str:
    """Return how many there are, with a verb: ``1 score is``, ``2 scores are``."""
    return f"{count:,} {what}s are" if count != 1 else f"1 {what} is"


def shown(name: str) -> str:
    """Return a name for the terminal: characters that do not print are escaped."""
    return name if name.isprintable() else repr(name)


def quoted(cell: object) -> str:
    """Return a cell in quotes, shortened; characters that do not print are escaped."""
    text = str(cell)
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


def unwrapped(cells: list[str]) -> list[str]:
    """Return the text of formulas such as ``="00042"``, by which exports protect text from spreadsheets."""
    first = next((cell for cell in cells if cell), "")
    return [_FORMULA.sub(r"\1", cell) for cell in cells] if _FORMULA.fullmatch(first) else cells
