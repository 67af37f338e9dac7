"""Reads columns of names: of events, streams, segments, entities and versions."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from replay.sources.column import Column, quoted

#: Text that means *no name*. NA and - are names.
_NAMELESS: Final = frozenset(("", "\\N", "<NA>", "NaN", "nan", "None", "NULL", "null", "(null)", "[NULL]"))
#: A large number as a spreadsheet writes it, without its last digits.
_ROUNDED: Final = re.compile(r"\d([.,]\d+)?E\+\d+", re.IGNORECASE | re.ASCII)
#: A whole number that was stored as a float.
_WHOLE: Final = re.compile(r"(\d+)\.0", re.ASCII)


def read(column: Column, defaults: Sequence[str]) -> list[str]:
    """Read a column of names; an empty cell gets the row's default."""
    return [
        default if name in _NAMELESS else name
        for name, default in zip((cell.strip() for cell in column.texts), defaults, strict=True)
    ]


def ids(column: Column) -> list[str]:
    """Read a column of ids; an empty cell gets ``row`` and its number.

    Raises TableError if a spreadsheet has rounded one.
    """
    for at, cell in enumerate(column.texts):
        if "+" in cell and _ROUNDED.fullmatch(cell.strip()):
            raise column.wrong(at, ": a program has rounded this id; export the column as text, or leave out --id")
    return read(column, [f"row {number}" for number in column.rows])


def whole(column: Column) -> tuple[Column, list[str]]:
    """Return names without the .0 of a program that took them for numbers; add a note."""
    found = [_WHOLE.fullmatch(cell.strip()) for cell in column.texts]
    if not any(found) or any(
        not match and cell.strip() not in _NAMELESS for match, cell in zip(found, column.texts, strict=True)
    ):
        return column, []
    cells = [match[1] if match else "" for match in found]
    note = f"{column.option} {column.name!r} holds whole numbers with .0 behind them, which was left out."
    return replace(column, cells=cells), [note]


def repeated(column: Column, found: Sequence[str]) -> list[str]:
    """Return a sentence about rows that have the id of an earlier row; nothing if there are none."""
    again = len(found) - len(set(found))
    if not again:
        return []
    rows = f"{again:,} rows repeat" if again > 1 else "1 row repeats"
    firsts: dict[str, int] = {}
    first = next(at for at, each in enumerate(found) if firsts.setdefault(each, at) < at)
    said = (
        f"--id {column.name!r}: {rows} the id of an earlier row, the first is row {column.rows[first]}, "
        f"{quoted(found[first])}. An event has one score: the same again changes nothing, and another one cannot be "
        "used (conflict). If each row is an event of its own, leave out --id; --entity names what rows share."
    )
    return [said]
