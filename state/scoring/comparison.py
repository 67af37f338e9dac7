"""A challenger beside the champion: what both made of the same events, as sums."""

import math
from struct import Struct
from typing import Final, Literal, NamedTuple, Self

from state.scoring import losses
from state.scoring.scores import Kind, Scores, grain

#: Losses whose difference has an error; that of labels has few values and says little.
ComparedLoss = Literal["brier", "log"]
LOSSES: Final[tuple[ComparedLoss, ...]] = ("brier", "log")
#: What the two sides of `Comparison.scores` are called elsewhere.
SIDES: Final[tuple[tuple[str, Kind], ...]] = (("champion", "raw"), ("challenger", "calibrated"))

_SQUARES: Final = Struct("<2d")


class Difference(NamedTuple):
    """Mean of challenger minus champion over the same events; below 0 the challenger is better.

    Attributes
    ----------
    mean
        In the loss's units; NaN before the first event.
    error
        Standard error of ``mean``; NaN before the second event.
    """

    mean: float
    error: float


class Comparison:
    """Scores of a challenger beside those of the champion that served, over the events both answered.

    Notes
    -----
    ``scores`` takes what was served in the place of the raw forecast and the challenger's forecast in the place of the
    calibrated one, so its ``raw`` side is the champion, and its "draw" is the challenger's. For the error of a paired
    difference it is not enough to know both sides' sums: Σd² of the differences d of Brier and of log loss are kept
    beside them. The error

        sqrt((Σd² - (Σd)² / n) / (n (n - 1)))

    takes the differences for uncorrelated. Those of events that share their fate (one storm, one attack) are not, and
    then it is too small. ``a + b`` compares over both sets of events.

    Bytes, little-endian: Σd² of Brier, Σd² of log loss (f64 each), then the scores.

    Examples
    --------
    >>> comparison = Comparison()
    >>> for y in (1.0, 1.0, 0.0):
    ...     comparison.observe(champion=0.5, challenger=0.75, y=y, draw=0.75)
    >>> comparison.difference("brier").mean
    -0.020833333333333332
    """

    __slots__ = ("_brier", "_log", "scores")

    def __init__(self) -> None:
        self.scores = Scores()
        self._brier = 0.0
        self._log = 0.0

    def observe(self, champion: float, challenger: float, y: float, draw: float | None = None, sign: int = 1) -> None:
        """Add one event, or take it out again.

        Parameters
        ----------
        champion, challenger
            What was served as ``p``, and what the challenger would have served, in [0, 1].
        y
            The outcome, 0 or 1.
        draw
            What the challenger drew, in [0, 1]; None, or ``challenger``, where nothing was drawn.
        sign
            1 adds the event, -1 takes out one that was added.
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

    def __eq__(self, other: object) -> bool:
        """Whether all sums are equal."""
        return isinstance(other, Comparison) and (self.scores, self._brier, self._log) == (
            other.scores,
            other._brier,
            other._log,
        )

    __hash__ = None  # type: ignore[assignment]  # sums change

    @property
    def n(self) -> int:
        """Events observed."""
        return self.scores.n

    def difference(self, loss: ComparedLoss) -> Difference:
        """Return the mean difference of a loss, challenger minus champion, and its error."""
        n = self.n
        if not n:
            return Difference(math.nan, math.nan)
        total = self.scores.regret(loss)
        if n == 1:
            return Difference(total, math.nan)
        # Rounding may leave a sum of equal differences an ulp below zero.
        spread = max((self._brier if loss == "brier" else self._log) - total * total / n, 0.0)
        return Difference(total / n, math.sqrt(spread / (n * (n - 1))))

    def encode(self) -> bytes:
        """Return the sums; layout in the class's notes."""
        return _SQUARES.pack(self._brier, self._log) + self.scores.encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read sums written by `encode`.

        Raises
        ------
        ValueError
            If the payload has another length than its scores say.
        """
        if len(payload) < _SQUARES.size:
            raise ValueError(f"a comparison of {len(payload)} bytes is shorter than its own header")
        comparison = cls()
        comparison._brier, comparison._log = _SQUARES.unpack_from(payload)
        comparison.scores = Scores.decode(payload[_SQUARES.size :])
        return comparison
