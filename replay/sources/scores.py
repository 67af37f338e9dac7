"""Reads a column of scores as probabilities. Numbers may have a point, a comma, or a percent sign."""

import math
import re
import unicodedata
from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from replay.sources.column import Column, counted, shown
from replay.sources.record import TableError
from state.arrays import Floats

#: Scales by name: the value that means 0, and the value that means 1.
SCALES: Final = {"probability": (0.0, 1.0), "percent": (0.0, 100.0), "permille": (0.0, 1000.0)}
LOG_ODDS: Final = "log-odds"
#: The allowed units, in words.
UNITS: Final = f"{', '.join(SCALES)}, {LOG_ODDS}, or what stands for 0 and for 1: 0,1000, or 850,300 where high is safe"
#: If a larger share of scores is outside the unit's range, the unit is wrong, not just a few rows.
MOST_OUTSIDE: Final = 0.01
#: Of the percentages of a rare event, 99 % look like probabilities. So more different values than this, beyond 1 in
#: float32 and up to 1,000, may mean percent or permille.
_MOST_MARKS, _BEYOND, _PERMILLE = 3, 1 + 1e-6, 1000.0
#: A probability that is outside [0, 1] by no more than this was only rounded.
_ROUNDED: Final = 4e-15
#: Numbers by the mark before their fraction, and numbers with marks between their thousands. Log-odds may be infinite.
_NUMBER: Final = {
    mark: re.compile(rf"(?=\D*\d)[+-]?\d*(?:[{mark}]\d*)?(?:[eE][+-]?\d+)?|[+-]?[Ii]nf(inity)?", re.ASCII)
    for mark in ".,"
}
_GROUPED: Final = {
    mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}([{other} '\u2019])\d{{3}}(?:\1\d{{3}})*(?:[{mark}]\d*)?", re.ASCII)
    for mark, other in (".,", ",.")
}
#: Matches a number, or the dash that accountants write for 0, with at most three characters of a mark before or
#: after it.
_MARKED: Final = re.compile(r"([^\d\s.,+-]{1,3})?\s*([+-]?[\d.,'\u2019 ]*\d|-)\s*([^\d\s.,+-]{1,3})?")
#: Blanks of any width, and a minus or a dash.
_FOREIGN: Final = re.compile(r"\s|[\u2212\u2013]")
#: Matches a list of several values in brackets.
_LIST: Final = re.compile(r"[\[(].*[,\s].*")
#: This many scores suffice to find their unit.
_ENOUGH: Final = 20
#: If there are so few different scores, they are decisions.
_FEW: Final = 2


class ReadScores(NamedTuple):
    """Probabilities, NaN if there is none; and what was found, in sentences."""

    values: Floats
    notes: list[str]


def scale(unit: str) -> tuple[float, float] | None:
    """Return the values for 0 and for 1 in a unit; None: log-odds. Raises ValueError if it is not in `UNITS`."""
    if unit in SCALES or unit == LOG_ODDS:
        return SCALES.get(unit)
    low, comma, high = unit.partition(",")
    try:
        ends = float(low), float(high if comma else "nan")
    except ValueError:
        ends = math.nan, math.nan
    if not math.isfinite(ends[1] - ends[0]) or ends[0] == ends[1]:
        raise ValueError(f"{unit}: must be {UNITS}")
    return ends


def read(column: Column, unit: str) -> ReadScores:
    """Read a column of scores.

    Raises TableError if a cell is not a number, or if the scores are in a different unit.

    ``unit``: as `scale` takes it. If every number has a percent sign, percent is the unit.
    """
    if not isinstance(column.cells, list):
        return _probabilities(column, _plain(column), unit)
    cells = _signed(column)
    signs = sum("%" in (cell[:1], cell[-1:]) for cell in cells)
    if signs:
        if at := [at for at, cell in enumerate(cells) if cell and "%" not in (cell[:1], cell[-1:])]:
            raise column.wrong(at[0], f", without a percent sign, and {signs:,} other cells have one; correct it")
        cells = [cell.strip("%").strip() for cell in cells]
        unit = "percent"
    elif unit not in SCALES and unit != LOG_ODDS:
        cells = _ungrouped(column, cells)
    return _probabilities(column, _numbers(column, cells), unit)


def numbers(column: Column) -> Floats:
    """Read a column of plain numbers, as `read` does but without units. NaN for an empty cell."""
    if not isinstance(column.cells, list):
        return _plain(column)
    return _numbers(column, _ungrouped(column, _amounts(column, _signed(column))))


def _signed(column: Column) -> list[str]:
    """Return cells with ASCII minus signs and blanks, because spreadsheets may write others."""
    return [cell if cell.isascii() else _FOREIGN.sub(_known, cell) for cell in column.present()]


def _known(mark: re.Match[str]) -> str:
    return " " if mark[0].isspace() else "-"


def _amounts(column: Column, cells: list[str]) -> list[str]:
    """Return amounts without the sign of their currency; TableError if there are several currencies."""
    found = [_MARKED.fullmatch(cell) for cell in cells]
    marks = [(match[1] or match[3] or "") if match else "" for match in found]
    if not any(_is_currency(mark) for mark in marks):
        return cells
    (most, _), *others = Counter(mark for mark, cell in zip(marks, cells, strict=True) if cell).most_common()
    if others:
        at = next(at for at, mark in enumerate(marks) if cells[at] and mark != most)
        raise column.wrong(at, f", which is not written in {most or 'no currency'}, as others are: write all alike")
    numbers = (match[2] if match else cell for match, cell in zip(found, cells, strict=True))
    return ["0" if number == "-" else number for number in numbers]


def _is_currency(mark: str) -> bool:
    """Whether a mark is a currency's symbol or code, such as EUR. K and M are thousands and millions."""
    return (len(mark) == 3 and mark.isupper()) or any(unicodedata.category(each) == "Sc" for each in mark)


def _plain(column: Column) -> Floats:
    if not isinstance(column.cells, list) and column.cells.dtype.kind == "M":
        raise TableError(f"{column.option} {shown(column.name)} is a column of times")
    return np.asarray(column.cells).astype(np.float64)


def _probabilities(column: Column, values: Floats, unit: str) -> ReadScores:
    ends = scale(unit)
    known = ~np.isnan(values)
    doubts = []
    if known.sum() >= _ENOUGH and len(there := np.unique(values[known])) <= _FEW:
        listed = " or ".join(f"{each:g}" for each in there)
        doubts = [f"--score {column.name!r}: all are {listed}. If this is what was decided, name the score behind it."]
    if known.sum() >= _ENOUGH and unit != "probability" and (ends is None or abs(ends[1] - ends[0]) > _ENOUGH):
        inner = values[known]
        if inner.min() >= 0 and inner.max() <= 1 and ((inner > 0) & (inner < 1)).any():
            span = f"from {inner.min():g} to {inner.max():g}"
            doubts += [f"--score {column.name!r}: all are {span}. If they are probabilities, leave out --score-unit."]
    if ends is None:
        with np.errstate(over="ignore"):
            shares: Floats = 1 / (1 + np.exp(-values))
            return ReadScores(shares, doubts)
    low, high = ends
    shares = (values - low) / (high - low)
    if not known.any():
        raise TableError(f"{column.option} {shown(column.name)}: no row has a score")
    outside = known & ((shares < -_ROUNDED) | (shares > 1 + _ROUNDED))
    if not outside.any():
        return ReadScores(shares, doubts)
    at = int(np.argmax(outside))
    between = f"in [{min(ends):g}, {max(ends):g}]"
    first = f"the first is {column.at(at)}"
    share = outside.sum() / known.sum()
    many = counted(outside.sum(), "score")
    if share > MOST_OUTSIDE or (unit == "probability" and _percents(values[known]) > _MOST_MARKS):
        many = f"{share:.0%} of the scores are" if share > MOST_OUTSIDE else many
        raise TableError(
            f"{column.option} {shown(column.name)}: {many} not {between} (from "
            f"{values[known].min():g} to {values[known].max():g}; {first}); --score-unit says what they are: {UNITS}; "
            "empty those that are errors"
        )
    return ReadScores(shares, [*doubts, f"--score {column.name!r}: {many} not {between} and cannot be used; {first}."])


def _percents(values: Floats) -> int:
    """Count the different values that may be percent or permille among values that are mostly probabilities.

    Integers among fractions do not count: they are codes, such as 998 and 999.
    """
    whole = np.rint(values) == values
    may_be = (values > _BEYOND) & (values <= _PERMILLE) & (~whole | whole.all())
    return len(np.unique(values[may_be]))


def _ungrouped(column: Column, cells: list[str]) -> list[str]:
    """Return numbers without marks between their thousands; TableError if a number can be read in two ways."""
    for mark, other in (".,", ",."):
        grouped = {at for at, cell in enumerate(cells) if _GROUPED[mark].fullmatch(cell)}
        rest = (cell for at, cell in enumerate(cells) if cell and at not in grouped)
        if not grouped or not all(map(_NUMBER[mark].fullmatch, rest)):
            continue
        if all(not cell or _NUMBER[other].fullmatch(cell) for cell in cells):
            whole = re.sub(r"\D", "", cells[min(grouped)])
            raise column.wrong(
                min(grouped), f", which may be {whole} or a fraction; write it without marks of thousands"
            )
        return [re.sub(rf"[^\d{mark}+-]", "", cell) if at in grouped else cell for at, cell in enumerate(cells)]
    return cells


def _numbers(column: Column, cells: list[str]) -> Floats:
    """Parse cells with the decimal mark that fits most of them. A cell that it does not fit is an error."""
    wrong = {
        mark: [at for at, cell in enumerate(cells) if cell and not pattern.fullmatch(cell)]
        for mark, pattern in _NUMBER.items()
    }
    mark = min(wrong, key=lambda each: len(wrong[each]))
    if wrong[mark]:
        at = wrong[mark][0]
        hint = (
            f", but a list: write a column with one of its values, and name it by {column.option}"
            if _LIST.match(cells[at])
            else "; correct it, or leave it empty"
        )
        raise column.wrong(at, f", which is no number{hint}")
    found: Floats = np.array([float(cell.replace(mark, ".")) if cell else np.nan for cell in cells], dtype=np.float64)
    return found
