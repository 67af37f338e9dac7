"""What a calibrator is: it answers a forecast, and learns from the outcome by way of the ticket."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple

from state.calibrators.answer import Prediction
from state.calibrators.options import Option
from state.calibrators.points import Point

#: Most features a calibrator may take: the state of a regression is quadratic in them, 70 kB at 64.
MAX_FEATURES: Final = 64
#: Slots of segments, at most: of eight names and eight pairs.
MOST_SLOTS: Final = 1024


class Bias(NamedTuple):
    """How far the answers were off along one test function f: ``bias`` is Σ f (ŷ - y), ``length`` is Σ f².

    For a feature that is 1 on a segment and 0 elsewhere, ``bias / length`` is the segment's mean answer less its mean
    outcome, and no sequence makes ``|bias|`` larger than ``bound``.
    """

    name: str
    length: float
    bias: float
    bound: float


class Recalibrator(ABC):
    """An online recalibrator of one kind of forecast.

    `update` reads only the ticket and the state, so outcomes may come late, in any order, or never. A calibrator
    writes `predict` and the abstract methods. Of the others it writes those that say something else of it than here.

    Attributes
    ----------
    name
        Under which it is registered.
    options
        Its options by name.
    remembered, layout
        Names of the attributes that are its state, and how they are packed; of a calibrator whose state has one length.
    keyed
        Whether it is made with ``name`` and ``seed``, which key draws.
    order_free
        Whether updates commute, bit for bit: the same tickets resolved in any order end in the same bytes.
    grouped
        Whether it uses the slots of an event's segments.
    draws
        Whether a draw may differ from ``p``.
    passes
        Whether it leaves the draw of what stands before it as it is: it draws nothing, and only moves forecasts.
    serves_raw
        Whether it serves the raw forecast, whatever it learns.
    keeps_features
        Whether its tickets hold the features of their event.
    learnt
        Outcomes learnt so far.
    """

    #: What each kind of forecast declares in its own types, see `Calibrator.predict`.
    predict: ClassVar[Callable[..., Any]]
    name: ClassVar[str]
    options: ClassVar[dict[str, Option]]
    remembered: ClassVar[tuple[str, ...]] = ()
    layout: ClassVar[Struct] = Struct("<")
    keyed: ClassVar[bool] = False
    order_free: bool = False
    grouped: bool = False
    draws: bool = False
    passes: bool = False
    serves_raw: bool = False
    keeps_features: bool = False
    learnt: int = 0

    @abstractmethod
    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Learn from an outcome.

        Parameters
        ----------
        ticket
            From the `Answer` the outcome belongs to.
        y
            In [0, 1], and a calibrator that counts takes 0 and 1 only; of classes, the index; of a law, the number.
        at
            When the label was recorded, ms: labels of one time may be one batch. 0 if it is of no batch, as one that
            silence implied.

        Raises
        ------
        ValueError
            If ``y`` is not allowed; the state is unchanged.
        """

    @abstractmethod
    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Replace the label of an outcome that was learnt.

        An ``order_free`` calibrator ends in the bytes it would have had if ``y`` had been learnt in the first place.
        Any other takes the step that its documentation names.

        Parameters
        ----------
        ticket
            The one that `update` learnt from.
        was
            The outcome that was learnt from it, or the last revision of it.
        y
            The outcome that counts from now on.

        Raises
        ------
        ValueError
            If ``y`` is not allowed; the state is unchanged.
        """

    def encode(self) -> bytes:
        """Return the whole state, here what is `remembered`: equal bytes for equal updates in equal order."""
        return self.layout.pack(*[getattr(self, name) for name in self.remembered])

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode` of a calibrator with the same options.

        Raises
        ------
        ValueError
            If the payload has another length or was written with other options.
        """
        require_length(payload, self.layout.size)
        for name, value in zip(self.remembered, self.layout.unpack(payload), strict=True):
            setattr(self, name, value)

    def largest(self, slots: int = MOST_SLOTS) -> int:
        """Return the most bytes that `encode` ever returns: here those of now, because most states do not grow.

        Parameters
        ----------
        slots
            How many slots its events have in all.
        """
        return len(self.encode())

    def error(self) -> float | None:
        """Return the measured calibration error of what was served; None before the first outcome or if undefined.

        It is not defined where answers are not confined to a grid.
        """
        return None

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the theorem's bound on the expected `error`; None before the first outcome or without a theorem.

        A bound of 1 says nothing: no error of probabilities can be larger.

        Parameters
        ----------
        outstanding
            Mean number of other outcomes that were learnt between a forecast and its own outcome, or more.
        """
        return None

    def unserved(self, ticket: bytes) -> bytes:
        """Return the ticket of an answer in whose place another was served.

        A calibrator whose `error` and `bound` are of what was served learns something else from such a ticket.
        """
        return ticket

    def regrouped(self, ticket: bytes, slots: Mapping[int, int]) -> bytes:
        """Return a ticket whose event has other slots: those that ``slots`` has for its own."""
        return ticket

    def features_in(self, ticket: bytes) -> Sequence[float]:
        """Return the features that a ticket holds; shape (d,), none unless `keeps_features`."""
        return ()

    def saturated(self) -> int | None:
        """Return how many answers had a level that covers nothing or everything; None where levels do not move."""
        return None

    def breaks(self) -> Sequence[float]:
        """Return the forecasts at which ``p`` may jump."""
        return ()

    def played(self) -> list[Point] | None:
        """Return the points that were served, with their counts; None of a calibrator that keeps no counts."""
        return None

    def internal_regret(self) -> float | None:
        """Return what moving the plays of one cell would have gained; None of a calibrator that keeps no counts."""
        return None

    def biases(self, features: Sequence[str] = ()) -> list[Bias]:
        """Return the bias along every test function; none of a calibrator that sums none or has learnt nothing.

        Parameters
        ----------
        features
            Names of the features.
        """
        return []

    def _require_label(self, y: float) -> None:
        """Raise ValueError unless an outcome is 0 or 1."""
        if y not in (0.0, 1.0):
            raise ValueError(f"{self.name} counts outcomes: y must be 0 or 1, got {y!r}")


class Calibrator(Recalibrator):
    """A recalibrator of probabilities."""

    @abstractmethod
    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Answer a forecast; changes nothing.

        Recalibrators of classes and of numbers have the same with a `Probs` or a law (see `state.forecasts`) for ``p``.

        Parameters
        ----------
        p
            The raw forecast, in [0, 1].
        x
            Features in [-1, 1]; ignored by calibrators that take none.
        key
            The event id, which keys the draw of a randomised calibrator.
        groups
            The slots of the event's segments; ignored unless `grouped`.

        Raises
        ------
        ValueError
            If ``p`` is outside [0, 1], or ``x`` is not what the calibrator was configured for.
        """


def require_probability(p: float) -> None:
    """Raise ValueError unless ``p`` is in [0, 1]; NaN is not."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"a probability must be in [0, 1], got {p!r}")


def require_length(payload: bytes, length: int) -> None:
    """Raise ValueError unless the payload has this many bytes."""
    if len(payload) != length:
        raise ValueError(f"expected a state of {length} bytes, got {len(payload)}: other options wrote it")


def require_head(payload: bytes, length: int) -> None:
    """Raise ValueError unless the payload has at least this many bytes."""
    if len(payload) < length:
        raise ValueError(f"a state of {len(payload)} bytes is shorter than its own header")
