"""The alarm for broken calibration: an e-process, so that people may look at it after every event.

The hypothesis is that each outcome has the probability that was forecast. A gambler bets against it. If it is true, the
gambler's wealth does not grow on average. So the probability that it ever reaches 1/α is at most α (Ville's
inequality), however often somebody looks.
"""

import math
from collections.abc import Sequence
from typing import Final

from state.scoring.cells import Bin

#: The alarm fires when the wealth reaches 1/ALPHA. At most one calibrated stream in a thousand ever fires by chance.
ALPHA: Final = 1e-3
#: Stakes of the bets on a cell, in both directions. The best stake against a chance q of a forecast p is about log(q /
#: p) for small p, and (q - p) / p(1 - p) for a small difference. So 1/64 suits a difference of .004 at p = 1/2, and 2
#: suits a factor of 7.
STAKES: Final = tuple(sign * 2.0**power for power in range(-6, 2) for sign in (1.0, -1.0))
#: Each stake with its cost per unit of variance.
_BETS = tuple((stake, math.expm1(abs(stake)) - abs(stake)) for stake in STAKES)


def log_wealth(cells: Sequence[Bin]) -> float:
    """Return the log of the wealth, in nats, after bets on the sums of one stretch of events; 0 without events.

    Notes
    -----
    In a cell let S = Σ(y - p) and V = Σ p(1 - p), with p the forecast. A bet with the stake λ is then worth

        exp(λ S - (exp|λ| - 1 - |λ|) V).

    By Bennett's inequality this is a supermartingale that starts at 1 if E[y | past] = p. So is its mean
    M over `STAKES`.

    Half of the wealth bets on all cells together. It finds forecasts that are too high or too low as a whole. The other
    half bets on single cells. It finds forecasts that are too extreme or not extreme enough. With K cells it is worth Π
    (1 - 1/K + M_k/K). This is a supermartingale, too: the cell is known before the outcome, and each event changes one
    factor. It is the mean over all sets of cells to bet on, on average one in a set. It never falls below (1 - 1/K)^K,
    which is .36 for the 19 cells of a stream. So calibrated events before an error delay the alarm little. Finding one
    wrong cell costs log K = 2.9 nats.

    The wealth is a function of sums. So events cost nothing beyond their scores, and their order within the stretch
    does not matter. There is no alarm for draws, because a draw is not a probability: of the events with a draw of .3,
    not 30 % must happen.

    References
    ----------
    Ville 1939; Bennett 1962; Howard, Ramdas, McAuliffe & Sekhon 2020, *Time-uniform Chernoff
    Bounds*, Table 3; Waudby-Smith & Ramdas 2024, *Estimating Means of Bounded Random Variables by Betting*.
    """
    share = 1.0 / len(cells)
    spared = math.log1p(-share) if share < 1.0 else -math.inf
    staked = math.log(share)
    apart = 0.0
    for cell in cells:
        if cell.n:
            apart += log_sum((spared, staked + log_mean_bet(*distance([cell]))))
    return log_sum((log_mean_bet(*distance(cells)), apart)) - math.log(2.0)


def log_share(number: int) -> float:
    """Return the log of the share of wealth that bets on a window; the shares of all windows add up to 1."""
    return -math.log((number + 1) * (number + 2))


def distance(cells: Sequence[Bin]) -> tuple[float, float]:
    """Return S = Σ(y - p) and V = Σ p(1 - p) over the events of cells."""
    return sum(cell.y - cell.p for cell in cells), sum(max(cell.p - cell.pp, 0.0) for cell in cells)


def log_mean_bet(off: float, variance: float) -> float:
    """Return log M of the sums S and V, see `log_wealth`: the bet that all forecasts are too high or too low."""
    return log_sum([stake * off - price * variance for stake, price in _BETS]) - math.log(len(_BETS))


def log_level_bet(below: float, upto: float, variance: float) -> float:
    """Return log M of the bets that outcomes lie below a quantile of level τ more often, or less often, than τ.

    ``below, upto``: number of outcomes below the quantile, and at or below it, each minus τ times all.
    ``variance``: τ(1 - τ) times all outcomes.

    Notes
    -----
    A quantile of level τ has P(y < q) <= τ <= P(y <= q). So E exp(λ([y < q] - τ)) for λ > 0, and E exp(λ([y <= q] - τ))
    for λ < 0, are at most their values for a chance of τ. Bennett's inequality then holds as in `log_wealth`, and atoms
    raise no alarm.
    """
    bets = [stake * (below if stake > 0.0 else upto) - price * variance for stake, price in _BETS]
    return log_sum(bets) - math.log(len(_BETS))


def log_sum(logs: Sequence[float]) -> float:
    """Return log Σ exp(x); -inf for no x."""
    most = max(logs, default=-math.inf)
    return most if most == -math.inf else most + math.log(sum([math.exp(value - most) for value in logs]))
