"""Compares a challenger with the champion on the same events, as sums."""

import math
from struct import Struct
from typing import Final, Literal, NamedTuple, Self

from state.scoring import losses
from state.scoring.cells import grain
from state.scoring.equal import Encoded
from state.scoring.scores import Kind, Scores

#: Losses whose difference has a standard error.
ComparedLoss = Literal["brier", "log"]
LOSSES: Final[tuple[ComparedLoss, ...]] = ("brier", "log")
#: Names of the two sides of `Comparison.scores`, for other modules.
SIDES: Final[tuple[tuple[str, Kind], ...]] = (("champion", "raw"), ("challenger", "calibrated"))

_SQUARES: Final = Struct("<2d")


class Difference(NamedTuple):
    """Mean of challenger minus champion over the same events. Below 0, the challenger is better."""

    #: In units of the loss; NaN before the first event.
    mean: float
    #: Standard error of ``mean``; NaN before the second event.
    error: float


def paired(n: float, total: float, squares: float) -> Difference:
    """Return the mean of n differences from their sum and the sum of their squares, with its standard error."""
    if not n:
        return Difference(math.nan, math.nan)
    if n == 1:
        return Difference(total, math.nan)
    # If all differences are equal, rounding may leave the sum an ulp below zero.
    spread = max(squares - total * total / n, 0.0)
    return Difference(total / n, math.sqrt(spread / (n * (n - 1))))


class Comparison(Encoded):
    """Scores of a challenger and of the champion that served, over the events that both answered.

    Notes
    -----
    In ``scores``, "raw" is the champion's served forecast, "calibrated" the challenger's forecast, and "draw" the
    challenger's draw. The standard error of a paired difference needs more than the sums of both sides. So Σd² is kept,
    too, for the differences d of Brier score and of log loss. The error

        sqrt((Σd² - (Σd)² / n) / (n (n - 1)))

    assumes uncorrelated differences. Events with a common cause (one storm, one attack) are correlated, and then it is
    too small. ``a + b`` compares over both sets of events.

    Bytes, little-endian: Σd² of Brier, Σd² of log loss (f64 each), then the scores.
    """

    __slots__ = ("_brier", "_log", "scores")

    def __init__(self) -> None:
        self.scores = Scores()
        self._brier = 0.0
        self._log = 0.0

    def observe(self, champion: float, challenger: float, y: float, draw: float | None = None, sign: int = 1) -> None:
        """Add one event, or take it out again.

        ``champion, challenger``: the served ``p``, and the ``p`` that the challenger would have served, in [0, 1].
        ``y``: the outcome, 0 or 1.
        ``draw``: the challenger's draw, in [0, 1]; None or ``challenger`` if it drew nothing.
        ``sign``: 1 adds the event, -1 takes out one that was added.
        """
        self.scores.observe(champion, challenger, y, draw, sign)
        brier = (challenger - champion) * (challenger + champion - 2.0 * y)
        log = losses.log(challenger, y) - losses.log(champion, y)
        self._brier += sign * grain(brier * brier)
        self._log += sign * grain(log * log)

    def __add__(self, other: Self) -> Self:
        """Return the comparison over both sets of events."""
        total = type(self)()
        total.scores = self.scores + other.scores
        total._brier = self._brier + other._brier
        total._log = self._log + other._log
        return total

    def __sub__(self, other: Self) -> Self:
        """Return the comparison over the events of ``self`` without those of ``other``, which must be a subset."""
        left = type(self)()
        left.scores = self.scores - other.scores
        left._brier = self._brier - other._brier
        left._log = self._log - other._log
        return left

    @property
    def n(self) -> int:
        """Events observed."""
        return self.scores.n

    def difference(self, loss: ComparedLoss) -> Difference:
        """Return the mean difference of a loss, challenger minus champion, and its standard error."""
        return paired(self.n, self.scores.regret(loss), self._brier if loss == "brier" else self._log)

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        return _SQUARES.pack(self._brier, self._log) + self.scores.encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read sums written by `encode`; ValueError if the payload's length does not fit its scores."""
        if len(payload) < _SQUARES.size:
            raise ValueError(f"a comparison of {len(payload)} bytes is shorter than its own header")
        comparison = cls()
        comparison._brier, comparison._log = _SQUARES.unpack_from(payload)
        comparison.scores = Scores.decode(payload[_SQUARES.size :])
        return comparison
