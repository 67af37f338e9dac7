"""The calibrator of one version of a model. It starts from a line carried over from the version before."""

import math
from collections.abc import Callable, Sequence
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import Calibrator, require_probability
from state.calibrators.composition import Composition
from state.odds import log_odds, probability
from state.quick import new

#: Forecasts of a version after which its line is first fitted.
FEW: Final = 50
#: The version's own outcomes after which the line no longer changes. A version that has so many before `FEW` forecasts
#: never gets a line: they have already taught the calibrator about raw scores.
OWN: Final = 20
#: Largest log-odds. Beyond them, a probability is as good as 0 or 1.
_FAR: Final = 700.0


class Held(NamedTuple):
    """The line with which a version's calibrator began, see `CarriedOver`, and how many outcomes it has learnt."""

    slope: float
    offset: float
    seen: int
    learnt: int


class CarriedMap(Calibrator):
    """Move forecasts by a line in log-odds. It learns nothing; 0 and 1 do not change.

    Ticket: empty. Bytes: slope, offset (f64 each), seen (u64). Little-endian.
    """

    name: ClassVar[str] = "line"
    order_free: bool = True
    remembered: ClassVar[tuple[str, ...]] = ("slope", "offset", "seen")
    layout: ClassVar[Struct] = Struct("<2dQ")

    def __init__(self) -> None:
        #: The line: a forecast of log-odds z becomes ``sigmoid(slope z + offset)``. At first 1 and 0, which changes
        #: nothing.
        self.slope, self.offset = 1.0, 0.0
        #: Forecasts that the version had made when the line was fitted; 0 before.
        self.seen = 0

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        require_probability(p)
        if self.seen and 0.0 < p < 1.0:
            v = self.slope * log_odds(p) + self.offset
            p = probability(min(max(v, -_FAR), _FAR))
        return new(Answer, (p, p, b""))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Learn nothing."""

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Learn nothing."""


class CarriedOver(Composition):
    """Map the forecasts of a model's version by a line, then let a calibrator answer.

    ``inner``: the calibrator of the version.

    Notes
    -----
    `state.versions` fits the line. ``inner`` takes the mapped forecast for the raw one, and serves it until the
    version's own outcomes support another score. So its promises about raw forecasts hold for mapped ones. The slope is
    above 0, which keeps the order of forecasts.

    The line is fitted again each time the number of forecasts doubles, until `OWN` outcomes of the version were learnt:
    from then on, what was learnt belongs to that line.

    Examples
    --------
    >>> from state.calibrators.identity import Identity
    >>> calibrator = CarriedOver(Identity())
    >>> calibrator.predict(0.2).p
    0.2
    >>> calibrator.carry(1.0, math.log(4.0), 50)
    >>> round(calibrator.predict(0.2).p, 9)
    0.5
    """

    name: ClassVar[str] = "carried"

    def __init__(self, inner: Calibrator) -> None:
        #: The line that is carried over.
        self.line = CarriedMap()
        super().__init__(self.line, inner)
        self.serves_raw, self.learnt = inner.serves_raw, inner.learnt

    def due(self, forecasts: int) -> bool:
        """Return whether to fit the line after this number of forecasts: `FEW`, twice as many, and so on."""
        times, rest = divmod(forecasts, FEW)
        return rest == 0 and times > 0 and times & (times - 1) == 0 and self.learnt < OWN and not self.serves_raw

    def answers(self, n_features: int) -> Callable[[float], float]:
        """Return the present map from raw forecast to answer, without segments and with all features 0."""
        x = (0.0,) * n_features

        def answer(p: float) -> float:
            return self.predict(p, x).p

        return answer

    def breaks(self) -> Sequence[float]:
        """Return the breaks of the calibrator, as raw forecasts."""
        found, line = self.back.breaks(), self.line
        if not line.seen:
            return found
        back = [(log_odds(p) - line.offset) / line.slope for p in found]
        return [probability(v) for v in back if -_FAR < v < _FAR]

    def take_over(self, payload: bytes) -> None:
        """Load the state of a calibrator of the same kind and options that served all versions together."""
        self.back.decode(payload)
        self.learnt = self.back.learnt

    def carry(self, slope: float, offset: float, seen: int) -> None:
        """Set the line; ValueError unless the slope is above 0 and both numbers are finite."""
        if not (0.0 < slope < math.inf and math.isfinite(offset)):
            raise ValueError(f"a line that is carried over increases, got {slope!r} z + {offset!r}")
        self.line.slope, self.line.offset, self.line.seen = slope, offset, seen
