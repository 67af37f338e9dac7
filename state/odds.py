"""Log-odds of probabilities, and back."""

import math
from typing import Final

#: Log-odds of 1 - 1e-9. Bands and points take probabilities beyond it as equal.
FARTHEST: Final = math.log(1e9 - 1.0)


def log_odds(p: float) -> float:
    """Return log(p / (1 - p)) of a probability in (0, 1)."""
    return math.log(p) - math.log1p(-p)


def cut_log_odds(p: float, farthest: float = FARTHEST) -> float:
    """Return the log-odds of a probability in [0, 1], cut to ±``farthest``. They never fall as p rises."""
    if p <= 0.0:
        return -farthest
    return min(max(log_odds(p), -farthest), farthest) if p < 1.0 else farthest


def probability(z: float) -> float:
    """Return the probability of log-odds."""
    return 1.0 / (1.0 + math.exp(-z))
