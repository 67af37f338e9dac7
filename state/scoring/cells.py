"""Cells of forecasts. Sums of coarse cells give calibration errors, counts of fine cells give rankings."""

import math
from typing import Final, NamedTuple

#: Equal-width bins of the forecast.
BINS: Final = 10
#: Inner edges of the low bands, which divide the first bin: 1e-4, then nine equal steps of log-odds, .78 each, to
#: 1/BINS. A step multiplies a small forecast by 2.2.
BANDS: Final[tuple[float, ...]] = tuple(
    1.0 / (1.0 + math.exp(-((9 - step) * math.log(1e-4 / (1 - 1e-4)) + step * math.log(1 / (BINS - 1))) / 9))
    for step in range(9)
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
            found.add(1.0 / (1.0 + math.exp(-(first + k * step))))
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
