"""Reads columns of names (of events, streams, segments, entities, versions), and finds which rows are of one event."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replay.sources.column import Column, quoted, shown
from replay.sources.record import TableError
from state.arrays import Floats

#: Text that means *no name*. NA and - are names.
_NAMELESS: Final = frozenset(("", "\\N", "<NA>", "NaN", "nan", "None", "NULL", "null", "(null)", "[NULL]"))
#: Matches a large number as a spreadsheet writes it, without its last digits.
_ROUNDED: Final = re.compile(r"\d([.,]\d+)?E\+\d+", re.IGNORECASE | re.ASCII)
#: Matches an integer that was stored as a float.
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
    """Return names without the .0 from a program that took them for numbers; add a note."""
    found = [_WHOLE.fullmatch(cell.strip()) for cell in column.texts]
    if not any(found) or any(
        not match and cell.strip() not in _NAMELESS for match, cell in zip(found, column.texts, strict=True)
    ):
        return column, []
    cells = [match[1] if match else "" for match in found]
    note = f"{column.option} {column.name!r} holds whole numbers with .0 behind them, which was left out."
    return replace(column, cells=cells), [note]


def repeated(column: Column, found: Sequence[str]) -> list[str]:
    """Return a sentence about rows that have the id of an earlier row; empty if there are none."""
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


def events(
    found: Mapping[str, Column], values: Floats, labels: Floats
) -> tuple[list[str], NDArray[np.intp], list[str]]:
    """Return for each row the id of its event and the row that has its score; and a sentence about repeated ids."""
    if "--id" not in found:
        _require_pairs(values, labels, found["--label"].name)
        return [str(n) for n in range(len(values))], np.arange(len(values)), []
    names = ids(found["--id"])
    scored = _scored(names, values, labels)
    forecast = scored == np.arange(len(names))
    numbered = replace(found["--id"], rows=list(compress(found["--id"].rows, forecast)))
    return names, scored, repeated(numbered, list(compress(names, forecast)))


def _scored(ids: Sequence[str], values: Floats, labels: Floats) -> NDArray[np.intp]:
    """Return for each row which row has the score of its event.

    It is a different row if a label has a row of its own. If the event has no score anywhere, it is the row itself.
    """
    rows = np.arange(len(ids))
    alone = np.flatnonzero(np.isnan(values) & ~np.isnan(labels))
    if len(alone):
        first = {ids[row]: row for row in np.flatnonzero(~np.isnan(values))[::-1].tolist()}
        rows[alone] = [first.get(ids[row], row) for row in alone.tolist()]
    return rows


def _require_pairs(values: Floats, labels: Floats, label: str) -> None:
    """Raise TableError if scores and labels are in separate rows, and nothing says which belong together."""
    scored, labelled = ~np.isnan(values), ~np.isnan(labels)
    if labelled.any() and not (scored & labelled).any():
        raise TableError(
            f"--label {shown(label)}: no row with a label has a score. If scores and labels of an event have "
            "rows of their own, name its id by --id, and when a label was known by --label-time"
        )
