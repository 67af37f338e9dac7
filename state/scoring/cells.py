"""Cells of forecasts. Sums of coarse cells give calibration errors, counts of fine cells give rankings."""

import math
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from state.odds import probability

#: Equal-width bins of the forecast.
BINS: Final = 10
#: Inner edges of the low bands, which divide the first bin: 1e-4, then nine equal steps of log-odds, .78 each, to
#: 1/BINS. A step multiplies a small forecast by 2.2.
BANDS: Final[tuple[float, ...]] = tuple(
    probability(((9 - step) * math.log(1e-4 / (1 - 1e-4)) + step * math.log(1 / (BINS - 1))) / 9) for step in range(9)
)
#: Inner edges of the coarse cells: the ten low bands, then the nine bins of width .1 above.
COARSE: Final[tuple[float, ...]] = (*BANDS, *(k / BINS for k in range(1, BINS)))

#: Stretches of log-odds, and the step in each. A step of 1/16 multiplies the odds by 1.064. That is the width of a fine
#: cell from 1e-4 to .88; below and above, a step is 1/4.
_STRETCHES: Final = ((-13.0, -9.25, 0.25), (-9.25, 2.0, 0.0625), (2.0, 9.0, 0.25))


def _edges() -> tuple[float, ...]:
    found = set(COARSE)
    for first, last, step in _STRETCHES:
        for k in range(round((last - first) / step)):
            found.add(probability(first + k * step))
    return tuple(sorted(found))


#: Inner edges of the fine cells. They divide the coarse ones, so that one search finds both.
EDGES: Final = _edges()
FINE: Final = len(EDGES) + 1
#: The coarse cell of each fine cell.
WITHIN: Final[tuple[int, ...]] = (0, *(sum(edge <= each for edge in COARSE) for each in EDGES))


class Bin(NamedTuple):
    """Sums over the events whose forecast fell into one bin."""

    #: Events.
    n: float
    #: Σp, Σy, Σp², Σpy of the forecast p and the outcome y.
    p: float
    y: float
    pp: float
    py: float


#: Adding and subtracting this rounds a number in [-2e6, 2e6] to a multiple of 2**-30, half to even.
GRAIN: Final = 1.5 * 2.0**22
#: Sums of a cell in a list: n, Σy, Σp, Σp². The list has a book of cells of raw forecasts, then one of served ones.
SUMS: Final = 4

#: The mean absolute value of a standard normal number.
ROOT: Final = math.sqrt(2.0 / math.pi)
_MASK: Final = Struct("<I")
_CELL: Final = Struct("<QQdd")


def grain(value: float) -> float:
    """Return a number of [-2e6, 2e6], rounded to a multiple of 2**-30, 9e-10.

    Sums of such numbers are exact up to 2**23, in any order, and also after some of them are taken out again.
    """
    return value + GRAIN - GRAIN


def bins(sums: Sequence[float], book: int) -> list[Bin]:
    """Return the cells of a book, 0 raw and 1 served, without Σpy."""
    size, made = len(sums) // 2, []
    for i in range(book * size, (book + 1) * size, SUMS):
        n, y, p, pp = sums[i : i + SUMS]
        made.append(Bin(n, p, y, pp, math.nan))
    return made


def total_off(found: Sequence[Bin]) -> float:
    """Return Σ |Σp - Σy| over some cells."""
    return sum([abs(each.p - each.y) for each in found])


def off_by_chance(found: Sequence[Bin]) -> float:
    """Return the `total_off` to expect by chance if every forecast were the probability of its outcome.

    Σ sqrt(2 Σp(1 - p) / π): the mean absolute value of a normal error of that variance.
    """
    return sum([ROOT * math.sqrt(max(each.p - each.pp, 0.0)) for each in found])


def encode(sums: Sequence[float]) -> bytes:
    """Return sums as bytes, little-endian.

    A mask of the cells that have events (u32), then of each such cell, in ascending order, n and Σy (u64 each), Σp and
    Σp² (f64 each).
    """
    mask, parts = 0, b""
    for i in range(0, len(sums), SUMS):
        n, y, p, pp = sums[i : i + SUMS]
        if n:
            mask |= 1 << i // SUMS
            parts += _CELL.pack(int(n), int(y), p, pp)
    return _MASK.pack(mask) + parts


def decode(payload: bytes, at: int, size: int) -> tuple[list[float], int]:
    """Read so many sums that `encode` wrote at an offset; return them and the offset after them.

    Raises ValueError if there is no such cell, or struct.error if they are cut.
    """
    (mask,) = _MASK.unpack_from(payload, at)
    at += _MASK.size
    sums = [0.0] * size
    if mask >> size // SUMS:
        raise ValueError(f"scores of mask {mask:#x} have cells that there are not")
    for i in range(0, size, SUMS):
        if mask >> i // SUMS & 1:
            n, y, p, pp = _CELL.unpack_from(payload, at)
            sums[i : i + SUMS] = [float(n), float(y), p, pp]
            at += _CELL.size
    return sums, at
