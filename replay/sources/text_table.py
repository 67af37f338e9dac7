"""A table that is text: encoding, separator, quotes and the header's row are found, not asked for.

What a file may be is tried, and the names that the options give decide: the header is the first row that holds all of
them, and its separator is the file's.
"""

import codecs
import csv
import io
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from replay.sources.column import Column, quoted, shown
from replay.sources.record import TableError
from replay.sources.unpacking import opened, recognised

_SEPARATORS: Final = (",", ";", "\t", "|")
#: How cells with a separator in them may be written: in quotes that are doubled inside, or have a backslash before
#: them, or not at all.
_QUOTES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"escapechar": "\\"},
    {"quoting": csv.QUOTE_NONE},
)
#: The header is among the first rows, behind comments and titles.
_HEAD: Final = 50
#: Rows that are read at once: few enough to stay in the processor's cache.
_ROWS: Final = 2048
#: Bytes that are decoded at once, and the longest line.
_BLOCK, _LINE = 1 << 18, 1 << 26
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Text(NamedTuple):
    """Columns by the option that names each, and what was assumed, in sentences."""

    columns: Mapping[str, Column]
    notes: Sequence[str]


class _UnfitError(TableError):
    """A file cannot be read in some way of writing from a line on, though it may be parsed as one."""

    def __init__(self, path: Path, line: int, said: str, *, parsed: bool = False) -> None:
        super().__init__(f"{path}: {said}")
        self.line, self.parsed = line, parsed


class _Header(NamedTuple):
    """Cells of the header, the number of its row, and how the file is written."""

    cells: Sequence[str]
    number: int
    dialect: Mapping[str, Any]


def read(path: Path, named: Mapping[str, str], encoding: str | None = None) -> Text:
    """Read columns of a table.

    Parameters
    ----------
    named
        Names by the option that gives each. ``#3`` is the third column, whatever its name.
    encoding
        None: UTF-8, UTF-16 if it looks so, else cp1252.

    Raises
    ------
    SettingsError
        If the file cannot be read.
    TableError
        If a column is missing or there twice, or rows have other numbers of cells than the header.
    """
    decoded, nul = _encoding(path, encoding)
    notes = []
    if decoded == "cp1252" and not encoding:
        notes.append("The table is not UTF-8 and was read as cp1252. If letters look wrong, --encoding names another.")
    failed: list[_UnfitError] = []
    for quotes in _QUOTES:
        header = _header(path, decoded, named, quotes)
        if header is None:
            continue
        try:
            columns = _columns(path, decoded, header, places(path, header.cells, named), named)
        except _UnfitError as exc:
            failed += [] if failed and "quoting" in quotes else [exc]
            continue
        if nul:
            _no_nul(columns)
        if header.number > 1:
            notes.append(f"The header of the table is its row {header.number}; rows above it were passed over.")
        return Text(columns, notes)
    if failed:
        raise max(failed, key=lambda each: (each.parsed, each.line))
    there = max((row for _, rows in _heads(path, decoded, _QUOTES[0]) for row in rows), key=len)
    if not there:
        raise TableError(f"{path} has no rows")
    places(path, there, named)
    raise TableError(f"{path} has no rows")


def places(path: Path, header: Sequence[str], named: Mapping[str, str]) -> dict[str, int]:
    """Return the place of the column that each option names.

    Raises
    ------
    TableError
        If there is none, or several.
    """
    found = {}
    names = [name.strip() for name in header]
    for option, name in named.items():
        there = [at for at, each in enumerate(names) if each == name]
        said = f"{option.removesuffix(f' {name}')} {shown(name)}: {path}"
        if not there and name[:1] == "#" and name[1:].isdecimal() and 0 < int(name[1:]) <= len(names):
            there = [int(name[1:]) - 1]
        if not there:
            if names[:1] and names[0][:1] in ("{", "["):
                raise TableError(f"{path} holds JSON, not a table: write it as CSV or Parquet")
            listed = ", ".join(shown(each) if len(each) <= 60 else quoted(each) for each in names[:200])
            hint = "" if len(names) > 1 else "; a comma, a semicolon, a tab or | is between columns"
            raise TableError(f"{said} has no such column; there are: {listed}{hint}")
        if len(there) > 1:
            listed = " and ".join(f"#{at + 1}" for at in there)
            raise TableError(
                f"{said} has {len(there)} columns of this name; write '#{there[0] + 1}' for one of {listed}"
            )
        found[option] = there[0]
    return found


@contextmanager
def _text(path: Path, encoding: str) -> Iterator[io.TextIOWrapper]:
    with opened(path) as (file, _), io.TextIOWrapper(file, encoding, newline="") as text:
        yield text


def _encoding(path: Path, given: str | None) -> tuple[str, bool]:
    """Return in which encoding all of a file can be read, and whether it has NUL characters."""
    with opened(path) as (file, _):
        head = file.read(4096)
    if not head:
        raise TableError(f"{path} is empty")
    recognised(path, head)
    encoding = given or next((name for bom, name in _BOMS if head.startswith(bom)), None) or _guess(head)
    line, nul, beyond = 1, False, False
    with opened(path) as (file, _):
        decoder, open_line = codecs.getincrementaldecoder(encoding)(), 0
        while True:
            block = file.read(_BLOCK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as exc:
                # What was UTF-8 so far, with letters beyond ASCII, is not cp1252.
                if encoding == "utf-8" and not given and not beyond and exc.object[: exc.start].isascii():
                    return _encoding(path, "cp1252")
                line += exc.object[: exc.start].count(b"\n")
                raise TableError(
                    f"{path}: line {line} is not {encoding}; --encoding says how it is written, such as --encoding "
                    f"{'cp1251' if encoding == 'cp1252' else 'cp1252'}"
                ) from exc
            line += text.count("\n")
            nul = nul or "\0" in text
            beyond = beyond or not text.isascii()
            end = max(text.rfind("\n"), text.rfind("\r"))
            open_line = open_line + len(text) if end < 0 else len(text) - end
            if open_line > _LINE:
                raise TableError(f"{path} is no table: a line of it has over {_LINE:,} characters")
            if not block:
                return encoding, nul


def _guess(head: bytes) -> str:
    """Return UTF-16 for text that has a zero in every other byte, else UTF-8."""
    for name, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if zeros.count(0) > 0.4 * max(len(zeros), 2):
            return name
    return "utf-8"


def _heads(path: Path, encoding: str, quotes: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[list[str]]]]:
    """Yield ways to read a file, each with the first rows as they are then; there is at least one row."""
    for separator in _SEPARATORS:
        dialect = {"delimiter": separator, "strict": True, **quotes}
        rows: list[list[str]] = []
        with _text(path, encoding) as file:
            try:
                rows.extend(islice(csv.reader(file, **dialect), _HEAD))
            except csv.Error:
                rows = rows or [[]]
        yield dialect, rows


def _header(path: Path, encoding: str, named: Mapping[str, str], quotes: Mapping[str, Any]) -> _Header | None:
    """Return the first row that holds all names, in the way of writing in which there is one."""
    names = {name for name in named.values() if name[:1] != "#"}
    for dialect, rows in _heads(path, encoding, quotes):
        for number, row in enumerate(rows, 1):
            if len(row) > 1 and names <= {cell.strip() for cell in row}:
                return _Header(row, number, dialect)
    return None


def _columns(
    path: Path, encoding: str, header: _Header, there: Mapping[str, int], named: Mapping[str, str]
) -> dict[str, Column]:
    """Read the rows below the header."""
    cells: dict[int, list[str]] = {at: [] for at in sorted(set(there.values()))}
    rows = array("q")
    width, least, number = len(header.cells), max(cells) + 1, header.number
    with _text(path, encoding) as file:
        # A backslash and an N stand for nothing; it is no N that is escaped.
        escaped = (line.replace("\\N", "\\\\N") for line in file)
        reader = csv.reader(escaped if "escapechar" in header.dialect else file, **header.dialect)
        try:
            for _ in range(number):
                next(reader)
            while batch := list(islice(reader, _ROWS)):
                numbers: Sequence[int] = range(number + 1, number + 1 + len(batch))
                number += len(batch)
                if set(map(len, batch)) != {width}:
                    batch, numbers = _regular(path, batch, numbers, width, least, reader.line_num)
                rows.extend(numbers)
                for at, column in cells.items():
                    column.extend([row[at] for row in batch])
        except csv.Error as exc:
            raise _UnfitError(
                path,
                reader.line_num,
                f"line {reader.line_num} cannot be read as a row ({exc}): look for a quote that is not closed",
            ) from exc
    if not rows:
        raise TableError(f"{path} has a header and no rows")
    if "quoting" in header.dialect and any(cell[:1] == '"' for column in cells.values() for cell in column):
        raise _UnfitError(path, 0, "quotes are not closed")  # they are quotes, and another way went farther
    return {option: Column(option.split()[0], named[option], cells[at], rows) for option, at in there.items()}


def _regular(
    path: Path, batch: Sequence[list[str]], numbers: Sequence[int], width: int, least: int, line: int
) -> tuple[list[list[str]], list[int]]:
    """Return rows without blank ones; a row with too many or too few cells is an error."""
    found, kept = [], []
    for at, (number, row) in enumerate(zip(numbers, batch, strict=True)):
        if len(row) < 2 and not any(cell.strip() for cell in row):
            continue
        if len(row) < least or any(cell.strip() for cell in row[width:]):
            cell = f"; it begins with {quoted(row[0])}" if len(row) < least else f"; its last is {quoted(row[-1])}"
            raise _UnfitError(
                path,
                line - sum(1 + "".join(after).count("\n") for after in batch[at + 1 :]),
                f"row {number} has {len(row)} cells, and the header names {width}{cell}; remove the row, or "
                "put quotes around the cell that holds a separator",
                parsed=True,
            )
        found.append(row)
        kept.append(number)
    return found, kept


def _no_nul(columns: Mapping[str, Column]) -> None:
    for column in columns.values():
        for at, cell in enumerate(column.cells):
            if "\0" in cell:
                raise column.wrong(at, ", with a NUL character: write the file again, or correct the cell")
