"""Reads a table of text. Encoding, separator and the header's row are detected.

It tries encodings and separators. The header is the first row that has all names from the options. Its separator is
that of the file.
"""

import codecs
import csv
import io
import re
import shlex
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from unicodedata import normalize

from replay.sources.column import Column, quoted, shown, unwrapped
from replay.sources.record import TableError
from replay.sources.table_rows import SEPARATORS, SHOWN, Rows
from replay.sources.unpacking import opened, recognised

#: A score or a time begins like this, but its name does not.
_DIGIT: Final = re.compile(r"\s*[+-]?[.,]?\d", re.ASCII)
#: Matches a cell whose quotes are closed, or that does not begin with a quote.
_CLOSED: Final = re.compile(r'"(?:[^"]|"")*"\s*|(?!").*', re.DOTALL)
#: The header is among this many first rows, after comments and titles.
_HEAD: Final = 50
#: Number of rows read at once: few enough to stay in the processor's cache.
_ROWS: Final = 2048
#: Bytes that are decoded at once; and the longest line.
_BLOCK, _LINE = 1 << 18, 1 << 26
#: Encodings to propose if the text is neither UTF-8 nor Western European.
_OTHERS: Final = "another, such as cp1250 (Polish), cp1251 (Russian), cp932 (Japanese) or gb18030 (Chinese)"
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Text(NamedTuple):
    """Columns by option; and assumptions, in sentences."""

    columns: Mapping[str, Column]
    notes: Sequence[str]
    #: What to say about a cell that looks wrong if the encoding was guessed.
    doubt: str = ""


class _Header(NamedTuple):
    """Cells of the header or of the first row; how many rows there are up to it; the separator; and more."""

    cells: Sequence[str]
    number: int
    separator: str
    #: Whether blanks after a separator are dropped; and whether the table has a header.
    spaced: bool
    there: bool


def read(path: Path, named: Mapping[str, str], encoding: str | None = None) -> Text:
    """Read columns of a table.

    Raises SettingsError if the file cannot be read. Raises TableError if a column is missing or exists twice, or if
    rows do not have as many cells as the header.

    ``named``: names by option. ``#3`` is the third column, whatever its name.
    ``encoding``: None: UTF-8; UTF-16 if the file looks like it; otherwise cp1252.
    """
    decoded, nul = _encoding(path, encoding)
    doubt = ""
    if decoded == "cp1252" and not encoding:
        doubt = f"The table is not UTF-8 and was read as cp1252. If letters look wrong, --encoding names {_OTHERS}."
    notes = [doubt] * bool(doubt)
    header = _header(path, decoded, named) or _header(path, decoded, named, spaced=True)
    if header is None:
        there = max(
            (row for mark, rows in _heads(path, decoded) if mark != " " for row in rows),
            key=lambda row: _likeness(row, named),
        )
        if there:
            try:
                places(path, there, named)
            except TableError as exc:
                raise TableError(f"{exc}{f'. {doubt}' if doubt else ''}") from exc
        raise TableError(
            f"{path} has no row that can be read: a comma, a semicolon, a tab, |, ^, ~ or a blank is between columns"
        )
    bare = _bare(path, decoded, header)
    columns, passed = _fitting(path, decoded, header, named, bare=bare)
    if bare:
        notes.append(
            "Quotes are not closed where they are opened, and every line has all cells: they were read as text."
        )
    if nul:
        _no_nul(columns)
    notes += passed
    if not header.there:
        notes.append(f"The table has no header: row {header.number + 1} is a row like the others.")
    elif header.number > 1:
        notes.append(f"The header of the table is its row {header.number}; rows above it were passed over.")
    return Text(columns, notes, doubt)


def places(path: Path, header: Sequence[str], named: Mapping[str, str]) -> dict[str, int]:
    """Return the position of the column that each option names. Raises TableError if there is none, or several."""
    found = {}
    names = [_named(name) for name in header]
    for option, name in named.items():
        there = [at for at, each in enumerate(names) if each == _named(name)]
        there = [at for at in there if _stripped(header[at]) == _stripped(name)] or there
        said = f"{option.removesuffix(f' {name}')} {shown(name)}: {path}"
        if not there and name[:1] == "#" and name[1:].isdecimal() and 0 < int(name[1:]) <= len(names):
            there = [int(name[1:]) - 1]
        if not there:
            listed = ", ".join(shown(each) if len(each) <= 60 else quoted(each) for each in names[:200])
            hint = "" if len(names) > 1 else "; a comma, a semicolon, a tab, |, ^, ~ or a blank is between columns"
            if any(map(_DIGIT.match, names)):
                hint += "; if the table has no header, name columns by number, such as '#1' for the first"
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
    """Return the encoding that can read all of the file, and whether the file has NUL characters."""
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
                # A file that is UTF-8 so far, with letters beyond ASCII, is not cp1252.
                if encoding == "utf-8" and not given and not beyond and exc.object[: exc.start].isascii():
                    return _encoding(path, "cp1252")
                line += exc.object[: exc.start].count(b"\n")
                raise TableError(
                    f"{path}: line {line} is not {encoding}; --encoding names "
                    f"{_OTHERS if encoding == 'cp1252' else 'another, such as cp1252'}"
                ) from exc
            line += text.count("\n")
            nul = nul or "\0" in text
            beyond = beyond or not text.isascii()
            end = max(text.rfind("\n"), text.rfind("\r"))
            open_line = open_line + len(text) if end < 0 else len(text) - end
            if open_line > _LINE:
                raise TableError(f"{path} is not a table: a line of it has over {_LINE:,} characters")
            if not block:
                return encoding, nul


def _guess(head: bytes) -> str:
    """Return UTF-16 for text in which every other byte is zero, otherwise UTF-8."""
    for name, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if zeros.count(0) > 0.4 * max(len(zeros), 2):
            return name
    return "utf-8"


def _reader(file: io.TextIOWrapper, separator: str, quoting: Literal[0, 3], *, spaced: bool) -> Any:  # noqa: ANN401 - has no public name
    """Return a reader of rows. ``spaced``: whether blanks behind a separator are dropped, as between blanks always."""
    csv.field_size_limit(_LINE)
    spaced = spaced or separator == " "
    return csv.reader(file, delimiter=separator, strict=True, quoting=quoting, skipinitialspace=spaced)


def _heads(path: Path, encoding: str, *, spaced: bool = False) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield each separator with the first rows that it gives, if it gives any."""
    for separator in SEPARATORS:
        rows: list[list[str]] = []
        with _text(path, encoding) as file:
            try:
                rows.extend(islice(_reader(file, separator, csv.QUOTE_MINIMAL, spaced=spaced), _HEAD))
            except csv.Error:
                rows = rows or [[]]
        yield separator, rows


def _header(path: Path, encoding: str, named: Mapping[str, str], *, spaced: bool = False) -> _Header | None:
    """Return the first row that has all names, with whatever separator.

    If all columns are named by number, it is the first row that has so many cells. If that row has a score or a time,
    the table has no header.
    """
    names = {_named(name) for name in named.values() if name[:1] != "#"}
    numbers = [int(name[1:]) for name in named.values() if name[:1] == "#" and name[1:].isdecimal()]
    told = [int(named[option][1:]) - 1 for option in ("--score", "--time")] if len(numbers) == len(named) else []
    for separator, rows in _heads(path, encoding, spaced=spaced):
        for number, row in enumerate(rows, 1):
            if len(row) >= max([2, *numbers]) and names <= set(map(_named, row)):
                none = any(_DIGIT.match(row[at]) for at in told)
                return _Header(row, number - none, separator, spaced, not none)
    return None


def _named(name: str) -> str:
    """Return a name in the form for comparison: stripped, in one Unicode form, with one blank in place of several."""
    return " ".join(_stripped(name.strip("\ufeff\u200b")).split())


def _stripped(name: str) -> str:
    return normalize("NFC", name.strip())


def _likeness(row: Sequence[str], named: Mapping[str, str]) -> tuple[int, int]:
    """Return how many of the named columns a row has, and how many cells."""
    return len(set(map(_named, row)).intersection(map(_named, named.values()))), len(row)


def _bare(path: Path, encoding: str, header: _Header) -> bool:
    """Return whether quotes are text: PostgreSQL and MySQL write tabs between cells, and do not quote."""
    if header.separator not in "\t|":
        return False
    broken = False
    with _text(path, encoding) as file:
        for line in islice(file, max(header.number - 1, 0), None):
            if line.strip() and line.count(header.separator) != len(header.cells) - 1:
                return False
            broken = broken or ('"' in line and not all(map(_CLOSED.fullmatch, line.split(header.separator))))
    return broken


def _fitting(
    path: Path, encoding: str, header: _Header, named: Mapping[str, str], *, bare: bool
) -> tuple[dict[str, Column], list[str]]:
    """Return what `_columns` does. Blanks before quotes are dropped if rows fit only then, or if cells begin with them.

    They are not dropped at first, because text may have quotes after a blank that enclose nothing.
    """
    again = None if bare or header.spaced else _header(path, encoding, named, spaced=True)
    try:
        found, notes = _columns(path, encoding, header, named, bare=bare)
    except TableError:
        if again:
            with suppress(TableError):
                return _columns(path, encoding, again, named, bare=False)
        raise
    if again and any(map(_quoted_late, found.values())):
        with suppress(TableError):
            columns, others = _columns(path, encoding, again, named, bare=False)
            if all(columns[option].rows == found[option].rows for option in found):
                return columns, others
    return found, notes


def _quoted_late(column: Column) -> bool:
    """Whether the first cell that is not empty has a blank before its quote."""
    return next((cell for cell in column.texts if cell), "").lstrip()[:1] == '"'


def _columns(
    path: Path, encoding: str, header: _Header, named: Mapping[str, str], *, bare: bool
) -> tuple[dict[str, Column], list[str]]:
    """Return the columns, and sentences on rows that are no data: repeated headers of joined files, and counts below.

    ``bare``: whether quotes are text.
    """
    there = places(path, header.cells, named)
    cells: dict[int, list[str]] = {at: [] for at in sorted(set(there.values()))}
    rows = array("q")
    width, least, number = len(header.cells), max(cells) + 1, header.number
    if header.separator == " ":  # between blanks an empty cell is invisible, and the next cells would take its place
        least = sum(map(bool, header.cells))
    names, mark, behind = list(map(_named, header.cells)), max(cells), max(cells) + 1
    head = header.cells[mark:behind]
    taken = Rows(path, width, least)
    with _text(path, encoding) as file:
        reader = _reader(file, header.separator, csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL, spaced=header.spaced)
        try:
            for _ in range(number):
                next(reader)
            while batch := list(islice(reader, _ROWS)):
                numbers = range(number + 1, number + 1 + len(batch))
                number += len(batch)
                heads = [at for at, row in enumerate(batch) if row[mark:behind] == head] if header.there else []
                same = {numbers[at] for at in heads if list(map(_named, batch[at])) == names}
                data, kept = taken.taken(batch, numbers, same)
                rows.extend(kept)
                for at, column in cells.items():
                    column.extend([row[at] for row in data])
        except csv.Error as exc:
            raise _broken(path, encoding, header, exc) from exc
    if not rows:
        raise TableError(f"{path} has a header and no rows")
    bared = {at: unwrapped(column) for at, column in cells.items()}
    found = {option: Column(option.split()[0], named[option], bared[at], rows) for option, at in there.items()}
    notes = []
    if again := taken.again:
        notes.append(f"The header stands again in row {again[0]} and was passed over ({len(again):,} in all).")
    if passed := taken.passed:
        listed = "; ".join(f"row {number}, {quoted(row[0])}" for number, row in passed[:SHOWN])
        more = f" ({len(passed):,} in all)" if len(passed) > SHOWN else ""
        notes.append(f"What stands below the table was passed over: {listed}{more}.")
    return found, notes


def _broken(path: Path, encoding: str, header: _Header, exc: csv.Error) -> TableError:
    """Return the error for a row that cannot be read. The row begins where the one before it ends."""
    begins = 1
    with _text(path, encoding) as file, suppress(csv.Error):
        for _ in (reader := _reader(file, header.separator, csv.QUOTE_MINIMAL, spaced=header.spaced)):
            begins = reader.line_num + 1
    with _text(path, encoding) as file:
        escaped = any('\\"' in each for each in file)
    twice = f"""; sed 's/\\\\"/""/g' {shlex.quote(str(path))} > table.csv writes \\" so""" if escaped else ""
    return TableError(
        f"{path}: the row that begins in line {begins} cannot be read ({exc}): look for a quote that is not closed, or "
        f"that is not written twice inside of a cell{twice}"
    )


def _no_nul(columns: Mapping[str, Column]) -> None:
    for column in columns.values():
        for at, cell in enumerate(column.cells):
            if "\0" in cell:
                raise column.wrong(at, ", with a NUL character: write the file again, or correct the cell")
