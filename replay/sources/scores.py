"""Scores of a column, as probabilities: numbers with a point or a comma, or with a percent sign."""

import re
from typing import Final

import numpy as np

from replay.sources.column import Column, shown
from replay.sources.record import TableError
from state.arrays import Floats

#: By name: from the numbers of a column to probabilities, by what divides them. Log-odds are not divided.
UNITS: Final = {"probability": 1.0, "percent": 100.0, "permille": 1000.0, "log-odds": 1.0}
#: Numbers by the mark before their fraction.
_NUMBER: Final = {mark: re.compile(rf"(?=\D*\d)[+-]?\d*(?:[{mark}]\d*)?(?:[eE][+-]?\d+)?", re.ASCII) for mark in ".,"}


def read(column: Column, unit: str) -> Floats:
    """Read a column of scores.

    Raises TableError if a cell is no number, or if more than half are in another unit.

    ``unit``: one of `UNITS`. Where every number has a percent sign, that is the unit.
    """
    if not isinstance(column.cells, list):
        if column.cells.dtype.kind == "M":
            raise TableError(f"{column.option} {shown(column.name)} is a column of times")
        return _probabilities(column, column.cells, unit)
    cells = column.present()
    signs = sum(cell.endswith("%") for cell in cells)
    if signs:
        if at := [at for at, cell in enumerate(cells) if cell and not cell.endswith("%")]:
            raise column.wrong(at[0], f", without a percent sign, and {signs:,} other cells have one; correct it")
        cells = [cell.removesuffix("%").rstrip() for cell in cells]
        unit = "percent"
    return _probabilities(column, _numbers(column, cells), unit)


def numbers(column: Column) -> Floats:
    """Read a column of plain numbers, NaN where a cell is empty; as `read` does, but for units."""
    if not isinstance(column.cells, list):
        if column.cells.dtype.kind == "M":
            raise TableError(f"{column.option} {shown(column.name)} is a column of times")
        return column.cells.astype(np.float64)
    return _numbers(column, column.present())


def _probabilities(column: Column, values: Floats, unit: str) -> Floats:
    if unit == "log-odds":
        with np.errstate(over="ignore"):
            shares: Floats = 1 / (1 + np.exp(-values))
            return shares
    values = values / UNITS[unit]
    known = values[~np.isnan(values)]
    if not len(known):
        raise TableError(f"{column.option} {shown(column.name)}: no row has a score")
    outside = np.mean((known < 0) | (known > 1))
    if outside > 0.5:
        raise TableError(
            f"{column.option} {shown(column.name)}: {outside:.0%} of the scores are not in [0, 1] (from "
            f"{known.min():g} to {known.max():g}); --score-unit says what they are: {', '.join(UNITS)}"
        )
    return values


def _numbers(column: Column, cells: list[str]) -> Floats:
    """Return numbers by the mark by which most cells are numbers; a cell that is none by it is an error."""
    wrong = {
        mark: [at for at, cell in enumerate(cells) if cell and not pattern.fullmatch(cell)]
        for mark, pattern in _NUMBER.items()
    }
    mark = min(wrong, key=lambda each: len(wrong[each]))
    if wrong[mark]:
        at = wrong[mark][0]
        hint = (
            f", but a list: write a column with one of its values, and name it by {column.option}"
            if cells[at][:1] in "[("
            else "; correct it, or leave it empty"
        )
        raise column.wrong(at, f", which is no number{hint}")
    found: Floats = np.array([float(cell.replace(mark, ".")) if cell else np.nan for cell in cells], dtype=np.float64)
    return found
