"""How well forecasts rank events: AUC, KS, recall and precision, from additive counts by fine cell and outcome."""

import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Final, NamedTuple, Self

import numpy as np

from state import counts
from state.counts import Counts, decode_cells, encode_cells, packed
from state.odds import log_odds, probability
from state.scoring.cells import EDGES, FINE

#: Volumes for recall and precision: shares of events that somebody has time to look at.
VOLUMES: Final = (0.005, 0.01, 0.02, 0.05)

_LOGITS: Final = tuple(map(log_odds, EDGES))
#: The forecast in the middle of each fine cell, in log-odds.
MIDDLES: Final = tuple(
    [probability((a + b) / 2) for a, b in zip(_LOGITS[:1] + _LOGITS, _LOGITS + _LOGITS[-1:], strict=True)]
)

#: Counts of one set of forecasts: events with outcome 0 by cell, then events with outcome 1; None without events.
Maybe = Counts | None


class Estimate(NamedTuple):
    """A figure and its standard error; both NaN if it is not defined."""

    value: float
    error: float


NONE: Final = Estimate(math.nan, math.nan)


class Ranking:
    """Events by fine cell of their forecast, from the lowest, and by outcome.

    ``zeros`` and ``ones``: events of outcome 0 and 1 in each cell. An outcome between 0 and 1 counts as the nearer of
    both, 1/2 as 1.

    Notes
    -----
    Events of one cell are tied: each pair of them counts one half. If a volume ends within a cell, the cell's outcomes
    are assumed to spread evenly. So ROC and recall curves are straight lines over a cell, and the order within a cell
    is not measured. On forecasts from 1e-4 to .88 whose log-odds have a standard deviation of .25 or more, AUC errs by
    less than .001.

    Examples
    --------
    >>> ranking = Ranking([6, 2, 1, 0], [0, 1, 1, 2])
    >>> round(ranking.auc().value, 4), round(ranking.ks(), 4)
    (0.9306, 0.6667)
    >>> recall, precision = ranking.at(2 / 13)
    >>> recall, precision
    (Estimate(value=0.5, error=0.25), Estimate(value=1.0, error=0.30618621784789724))
    """

    __slots__ = ("m", "n", "ones", "zeros")

    def __init__(self, zeros: Sequence[int], ones: Sequence[int]) -> None:
        self.zeros = list(zeros)
        self.ones = list(ones)
        #: Number of events of outcome 0, and of outcome 1.
        self.n, self.m = sum(self.zeros), sum(self.ones)

    def __add__(self, other: Self) -> Self:
        """Return the ranking of both sets of events."""
        return type(self)(list(map(add, self.zeros, other.zeros)), list(map(add, self.ones, other.ones)))

    def auc(self) -> Estimate:
        """Return the chance that an event with outcome 1 was ranked above one with outcome 0. Ties count half.

        The standard error is exact for these ties, and assumes independent events.

        References
        ----------
        DeLong, DeLong & Clarke-Pearson 1988, *Comparing the Areas under Two or More Correlated Receiver Operating
        Characteristic Curves*, section 2.
        """
        n, m = self.n, self.m
        if not n or not m:
            return NONE
        zeros, ones = np.array(self.zeros, dtype=np.float64), np.array(self.ones, dtype=np.float64)
        # For an event in a cell: the share of zeros below it if it is a one, of ones above it if it is a zero.
        below = (np.cumsum(zeros) - zeros / 2.0) / n
        above = 1.0 - (np.cumsum(ones) - ones / 2.0) / m
        area = float(ones @ below) / m
        if n == 1 or m == 1:
            return Estimate(area, math.nan)
        spread = float(ones @ (below - area) ** 2) / ((m - 1) * m) + float(zeros @ (above - area) ** 2) / ((n - 1) * n)
        return Estimate(area, math.sqrt(spread))

    def ks(self) -> float:
        """Return the largest difference between the two outcomes' distributions, in [0, 1], taken between cells."""
        n, m = self.n, self.m
        if not n or not m:
            return math.nan
        return float(np.max(np.abs(np.cumsum(self.zeros) / n - np.cumsum(self.ones) / m)))

    def at(self, volume: float) -> tuple[Estimate, Estimate]:
        """Return recall and precision of the highest forecasts; ``volume`` is their share of all events.

        Recall is the share of all ones that are among these forecasts. Precision is the share of ones among these
        forecasts. Standard errors are binomial, see `binomial`.

        ``volume``: in (0, 1].
        """
        n, m = self.n + self.m, self.m
        if not n:
            return NONE, NONE
        left = wanted = volume * n
        hits = 0.0
        for zeros, ones in zip(reversed(self.zeros), reversed(self.ones), strict=True):
            here = zeros + ones
            if here >= left:
                hits += ones * left / here
                break
            hits += ones
            left -= here
        return binomial(hits, m), binomial(hits, wanted)

    def bins(self, most: int) -> list[dict[str, float]]:
        """Return a reliability curve: for each bin its events ``n``, mean ``forecast`` and share of ones, ``outcome``.

        Bins hold equal shares of the events, after zeros and ones are weighted so that both have half of the weight. So
        there are bins where rare ones have high forecasts. A forecast is taken as the middle of its fine cell.
        """
        if not self.n + self.m:
            return []
        found, zeros, ones, total, mass = [], 0, 0, 0.0, 0.0
        for middle, zero, one in zip(MIDDLES, self.zeros, self.ones, strict=True):
            zeros, ones = zeros + zero, ones + one
            total += (zero + one) * middle
            mass += zero / max(self.n, 1) + one / max(self.m, 1)
            if mass * most >= (2.0 if self.n and self.m else 1.0) or (middle == MIDDLES[-1] and zeros + ones):
                n = zeros + ones
                found.append({"n": n, "forecast": total / n, "outcome": ones / n})
                zeros, ones, total, mass = 0, 0, 0.0, 0.0
        return found


def binomial(hits: float, n: float) -> Estimate:
    """Return a share of n events, at most 1, with its binomial standard error; NaN without events.

    The error is that of the share with one more hit and one more miss: with no hit among six there is an error, too.
    With 6 to 20 events and a chance of .1, two errors then hold the truth in .87 to .99 of cases, not .47 to .87.
    """
    if not n:
        return NONE
    share = min(hits / n, 1.0)
    near = (share * n + 1.0) / (n + 2.0)
    return Estimate(share, math.sqrt(near * (1.0 - near) / n))


def nothing() -> Counts:
    """Return the counts of no events."""
    return bytearray(2 * FINE)


def ranking(found: Sequence[Maybe]) -> Ranking:
    """Return the ranking of several sets of events."""
    all_ = [Ranking(each[:FINE], each[FINE:]) for each in found if each is not None]
    return reduce(Ranking.__add__, all_) if all_ else Ranking([0] * FINE, [0] * FINE)


def together(a: Maybe, b: Maybe) -> Maybe:
    """Return the counts of both sets of events, as a new object."""
    if a is None or b is None:
        one = b if a is None else a
        return None if one is None else one[:]
    return counts.together(a, b)


def without(a: Maybe, b: Maybe) -> Maybe:
    """Return the counts of the events of ``a`` without those of ``b``, which must be a subset."""
    if a is None or b is None:
        return None if a is None else a[:]
    return counts.without(a, b)


def encode(found: Counts) -> bytes:
    """Return counts as bytes: those of outcome 0, then of outcome 1, as `counts.encode_cells` has them."""
    return encode_cells(found[:FINE]) + encode_cells(found[FINE:])


def decode(payload: bytes, at: int) -> tuple[Counts, int]:
    """Read counts written by `encode` from an offset; return them and the offset after them.

    Raises ValueError if they are cut, or name cells that do not exist.
    """
    zeros, at = decode_cells(payload, at, FINE, "scores")
    ones, at = decode_cells(payload, at, FINE, "scores")
    return packed([*zeros, *ones]), at
