"""The levels that `Quantile` plays: a chain that keeps them from crossing, and a scale of log-odds."""

import math
from collections.abc import Sequence
from itertools import accumulate

from state.odds import log_odds, probability

#: Without a declared range, a level played at or below 0 is served as the raw quantile of this level, and one at or
#: above 1 as that of 1 - TAIL: 6 deviations of a normal law, where the theorem has an infinite value.
TAIL = 1e-9


def chain(s: Sequence[float], anchor: int) -> tuple[float, ...]:
    """Return the levels to play: s at the anchor, the running maximum above it, the running minimum below.

    Examples
    --------
    >>> chain((0.3, 0.1, 0.5, 0.4, 0.9), anchor=2)
    (0.1, 0.1, 0.5, 0.5, 0.9)
    """
    below = tuple(accumulate(reversed(s[: anchor + 1]), min))[:0:-1]
    return below + tuple(accumulate(s[anchor:], max))


#: Log-odds below which a level covers nothing.
FIRST = log_odds(TAIL)


def sigmoid(s: float) -> float:
    """Return 1 / (1 + exp(-s)), or ±infinity beyond the log-odds of `TAIL`."""
    if s < FIRST:
        return -math.inf
    if s > -FIRST:
        return math.inf
    return probability(s)
