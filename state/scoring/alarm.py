"""The alarm that calibration is broken: an e-process, which may be looked at after every event.

Under the hypothesis that each outcome's chance is the forecast, the wealth of a gambler who bets against it does not
grow on average, so it ever reaches 1/α with probability at most α (Ville's inequality): no correction for looking
often.
"""

import math
from collections.abc import Sequence
from typing import Final

from state.scoring.scores import Bin

#: The alarm sounds when the wealth reaches 1/ALPHA: in error for at most one calibrated stream in a thousand, ever.
ALPHA: Final = 1e-3
#: Stakes of the bets on a cell, in both directions. The best one against a chance q of a forecast p is about log(q / p)
#: for small p, and (q - p) / p(1 - p) for a small difference: a stake of 1/64 suits .004 at p = 1/2, one of 2 suits 7
#: times p.
STAKES: Final = tuple(sign * 2.0**power for power in range(-6, 2) for sign in (1.0, -1.0))
#: Each stake with what it costs, for each unit of variance.
_BETS = tuple((stake, math.expm1(abs(stake)) - abs(stake)) for stake in STAKES)


def log_wealth(cells: Sequence[Bin]) -> float:
    """Return the log of the wealth, in nats, of bets on the sums of one stretch of events; 0 of none.

    Notes
    -----
    In a cell with S = Σ(y - p) and V = Σ p(1 - p), p the chance that was stated, the stake λ is worth

        exp(λ S - (exp|λ| - 1 - |λ|) V),

    by Bennett's inequality a supermartingale if E[y | past] = p, from 1; so is its mean M over `STAKES`. Half of the
    wealth bets so on all cells as one, for forecasts that are too high or too low as a whole. The other half bets on
    cells, for those too bold or too shy: with K cells it is worth Π (1 - 1/K + M_k/K), a supermartingale too, since the
    cell is known before the outcome and each event moves one factor. That is the mean over all sets of cells to bet on,
    with on average one cell in a set. It never falls below (1 - 1/K)^K, .36 for the 19 cells of a stream, so what was
    calm is forgiven, and to find one broken cell costs log K = 2.9 nats.

    It is a function of sums, so events cost nothing beyond their scores, and their order within the stretch is nothing
    to it. A draw states no chance: nobody claims that of the events for which .3 was drawn 30 % happen, given all that
    is known; so there is no alarm for draws.

    References
    ----------
    Ville 1939; Bennett 1962; Howard, Ramdas, McAuliffe & Sekhon 2020, *Time-uniform Chernoff
    Bounds*, Table 3; Waudby-Smith & Ramdas 2024, *Estimating Means of Bounded Random Variables by Betting*.

    Examples
    --------
    Of 100 forecasts of .5, 50 came true; or 80:

    >>> calm, broken = ([Bin(100, 50, came_true, 25, came_true / 2)] for came_true in (50, 80))
    >>> log_wealth(calm) < 0 < math.log(1 / ALPHA) < log_wealth(broken)
    True
    """
    share = 1.0 / len(cells)
    spared = math.log1p(-share) if share < 1.0 else -math.inf
    staked = math.log(share)
    apart = 0.0
    for cell in cells:
        if cell.n:
            apart += log_sum((spared, staked + log_mean_bet(*distance([cell]))))
    return log_sum((log_mean_bet(*distance(cells)), apart)) - math.log(2.0)


def distance(cells: Sequence[Bin]) -> tuple[float, float]:
    """Return S = Σ(y - p) and V = Σ p(1 - p) over the events of cells."""
    return sum(cell.y - cell.p for cell in cells), sum(max(cell.p - cell.pp, 0.0) for cell in cells)


def log_mean_bet(off: float, variance: float) -> float:
    """Return log M of the sums S and V, see `log_wealth`: a bet that the whole is too high or too low."""
    return log_sum([stake * off - price * variance for stake, price in _BETS]) - math.log(len(_BETS))


def log_sum(logs: Sequence[float]) -> float:
    """Return log Σ exp(x), -inf of nothing."""
    most = max(logs, default=-math.inf)
    return most if most == -math.inf else most + math.log(sum([math.exp(value - most) for value in logs]))
