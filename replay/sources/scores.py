"""Scores of a column, as probabilities: numbers with a point or a comma, marks of thousands, or a percent sign."""

import re
from typing import Final

import numpy as np

from replay.sources.column import Column, shown
from replay.sources.record import TableError
from state.arrays import Floats

#: By name: from the numbers of a column to probabilities, by what divides them. Log-odds are not divided.
UNITS: Final = {"probability": 1.0, "percent": 100.0, "permille": 1000.0, "log-odds": 1.0}
#: Log-odds beyond this are no scores.
_FARTHEST: Final = 100.0
#: Numbers by the mark before their fraction; thousands may have the other one, a blank or an apostrophe.
_MARKS: Final = {".": ",", ",": "."}
_NUMBER: Final = {
    mark: re.compile(
        rf"(?=\D*\d)[+-]?(?:[1-9]\d?\d?([{other} \u00a0\u202f'’])\d{{3}}(?:\1\d{{3}})*|\d*)(?:[{mark}]\d*)?"
        r"(?:[eE][+-]?\d+)?",
        re.ASCII,
    )
    for mark, other in _MARKS.items()
}


def read(column: Column, unit: str, decimal: str | None = None) -> Floats:
    """Read a column of scores.

    Parameters
    ----------
    unit
        One of `UNITS`. Where every number has a percent sign, that is the unit.
    decimal
        The mark before a number's fraction, ``.`` or ``,``; None: the one by which all cells are numbers.

    Raises
    ------
    TableError
        If a cell is no number, if numbers may mean two things, or if more than half are in another unit.
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
    return _probabilities(column, _numbers(column, cells, unit, decimal), unit)


def numbers(column: Column, decimal: str | None = None) -> Floats:
    """Read a column of plain numbers, NaN where a cell is empty; as `read` does, but for units."""
    if not isinstance(column.cells, list):
        if column.cells.dtype.kind == "M":
            raise TableError(f"{column.option} {shown(column.name)} is a column of times")
        return column.cells.astype(np.float64)
    return _numbers(column, column.present(), "probability", decimal)


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


def _numbers(column: Column, cells: list[str], unit: str, decimal: str | None) -> Floats:
    """Return numbers by the mark that fits all cells; if both do, by the one whose numbers are scores."""
    read, wrong = {}, {}
    for mark in (decimal,) if decimal else _MARKS:
        pattern = _NUMBER[mark]
        bad = next((at for at, cell in enumerate(cells) if cell and not pattern.fullmatch(cell)), None)
        if bad is None:
            read[mark] = _values(cells, mark)
        else:
            wrong[mark] = bad
    if not read:
        at = max(wrong.values())
        raise column.wrong(at, f", which is no number{_hint(column, cells[at], decimal)}")
    if len(read) > 1:
        point, comma = read.values()
        if np.array_equal(point, comma, equal_nan=True):
            return point
        scores = [each for each in (point, comma) if _share(each, unit) == 1.0]
        if len(scores) != 1:
            at = int(np.argmax(np.nan_to_num(point) != np.nan_to_num(comma)))
            raise column.wrong(
                at,
                f", which is {point[at]:g} or {comma[at]:g}: say which mark is before the fraction, --decimal . or "
                "--decimal ,",
            )
        return scores[0]
    return next(iter(read.values()))


def _hint(column: Column, cell: str, decimal: str | None) -> str:
    if cell[:1] in "[(":
        return f", but a list: write a column with one of its values, and name it by {column.option}"
    return "; correct it, leave it empty" + (", or leave out --decimal" if decimal else "")


def _values(cells: list[str], mark: str) -> Floats:
    drop = {ord(each): None for each in f"{_MARKS[mark]}'’ \u00a0\u202f"} | {ord(mark): "."}
    found: Floats = np.array([float(cell.translate(drop)) if cell else np.nan for cell in cells], dtype=np.float64)
    return found


def _share(values: Floats, unit: str) -> float:
    known = values[~np.isnan(values)]
    least, most = (-_FARTHEST, _FARTHEST) if unit == "log-odds" else (0.0, UNITS[unit])
    return float(np.mean((known >= least) & (known <= most)))
