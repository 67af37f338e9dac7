"""The certificate: a bound on the distance of forecasts to perfectly calibrated ones."""

import math
from bisect import insort
from collections.abc import Sequence
from itertools import pairwise
from operator import add

from state.scoring.cells import EDGES
from state.scoring.ranking import Ranking

#: Factor on the cost of a move when moves are chosen, so that no move is made without gain.
_TIE = 1.000001


def certificate(ranking: Ranking) -> float:
    """Return a bound on the distance of forecasts to calibration, from 0 up; NaN of no events.

    Forecasts q_1..q_T are perfectly calibrated if, for every v, the share of ones among the events with q_t = v is
    exactly v. The distance of the forecasts p_t to calibration is the least Σ|p_t - q_t| / T over all such q. The
    certificate chooses one q and returns a bound on its distance. It assumes nothing about how events come about.

    ``ranking``: events by fine cell of their forecast and by outcome. Counts add up, so the certificate is that of all
    partitions, in any order of the outcomes, after any revision.

    Notes
    -----
    Let m_c be the middle of cell c and h_c half its width. Some events are moved to the next cell: ones where m_c <
    1/2, zeros above. Then all events of a cell get its share of ones as their q. Such a q is perfectly calibrated,
    whatever was moved. Its distance, by the triangle inequality, is at most

        Σ_c h_c n_c  +  Σ moved (m_{c+1} - m_c)  +  Σ_c |ones_c - m_c n_c|,  the last after the moves,

    the width of the cells, the moves, and the remaining error. Moving a one from a cell with too many to one with too
    few removes two errors, and costs the distance. The cheapest moves are taken, then rounded to whole events: with x_c
    ones moved from c to c + 1, e_c the excess of ones and w_c = max(m_c, 1 - m_c), they minimise ``Σ w_c |e_c / w_c +
    x_{c-1} - x_c| + Σ |x_c| (m_{c+1} - m_c)``, which is convex and solved from left to right, bend by bend. Zeros moved
    down count as ones moved up.

    Without moves the last sum is the binned ℓ1 error of 200 cells, mostly noise; where errors alternate, moves between
    neighbours take the noise away. Honest forecasts do not get 0: the first sum is .005 at most where forecasts are
    below .2, and .008 at one half.

    References
    ----------
    Błasiok, Gopalan, Hu & Nakkiran 2023, *A Unifying Theory of Distance from Calibration*; of a sequence, Qiao & Zheng
    2024, *On the Distance from Calibration in Sequential Prediction*, Definition 1.
    """
    cells = [cell for cell, n in enumerate(map(add, ranking.zeros, ranking.ones)) if n]
    if not cells:
        return math.nan
    edges = (0.0, *EDGES, 1.0)
    middles = [(edges[cell] + edges[cell + 1]) / 2 for cell in cells]
    zeros, ones = ([counts[cell] for cell in cells] for counts in (ranking.zeros, ranking.ones))
    events = sum(zeros) + sum(ones)
    cost = sum((edges[c + 1] - edges[c]) / 2 * (zero + one) for c, zero, one in zip(cells, zeros, ones, strict=True))
    up = [0, *map(round, _moves(middles, zeros, ones)), 0]
    low = [False, *((a + b) / 2 < 0.5 for a, b in pairwise(middles)), False]
    ones_up = _possible([x if here else 0 for x, here in zip(up, low, strict=True)], ones)
    zeros_up = _possible([0 if here else -x for x, here in zip(up, low, strict=True)], zeros)
    for i, middle in enumerate(middles):
        one = ones[i] + ones_up[i] - ones_up[i + 1]
        zero = zeros[i] + zeros_up[i] - zeros_up[i + 1]
        cost += abs(one - middle * (zero + one))
        if i:
            cost += (abs(ones_up[i]) + abs(zeros_up[i])) * (middle - middles[i - 1])
    return cost / events


def _moves(middles: Sequence[float], zeros: Sequence[int], ones: Sequence[int]) -> list[float]:
    """Return how many ones are moved from each cell to the next, [cells - 1]; negative: down.

    Take the least cost of all cells up to one, as a function of the ones moved out of it. It is convex and piecewise
    linear. ``bends`` has its bends, by place and change of slope. Slopes are cut to ±w: beyond that, leaving the error
    is cheaper. Nothing is moved out of the last cell. The choices are traced back from there.
    """
    weights = [max(middle, 1.0 - middle) for middle in middles]
    excess = [
        (one - middle * (zero + one)) / weight
        for middle, weight, zero, one in zip(middles, weights, zeros, ones, strict=True)
    ]
    bends = [(0.0, 2.0 * weights[0])]  # nothing is moved into the first cell
    slope, shift = weights[0], 0.0
    within: list[tuple[float, float]] = []
    for i, weight in enumerate(weights):
        for end in (0, -1):
            cut = slope - weight
            while len(bends) > 1 and bends[end][1] <= cut:
                cut -= bends.pop(end)[1]
            bends[end] = bends[end][0], bends[end][1] - cut
        within.append((bends[0][0] + shift, bends[-1][0] + shift))
        if i + 1 < len(middles):
            distance = (middles[i + 1] - middles[i]) * _TIE
            shift += excess[i]
            insort(bends, (-shift, 2.0 * distance))
            slope = weight + distance
    moved, moves = 0.0, []
    for i in range(len(middles) - 1, 0, -1):
        least, most = within[i]
        moved = min(max(moved - excess[i], least), most)
        moves.append(moved)
    return moves[::-1]


def _possible(up: list[int], held: Sequence[int]) -> list[int]:
    """Return moves, [cells + 1] with 0 at both ends, that take no more out of a cell than it holds ([cells])."""
    for i in range(1, len(held)):
        up[i] = min(up[i], held[i - 1] + up[i - 1])
    for i in range(len(held) - 1, 0, -1):
        up[i] = max(up[i], up[i + 1] - held[i])
    return up
