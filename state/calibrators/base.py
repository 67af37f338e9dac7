"""What a calibrator is: it serves a probability for a forecast, and learns from the outcome by way of the ticket."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

#: Most features a calibrator may take: ridge state is quadratic in them, 70 kB at 64.
MAX_FEATURES = 64

_Raw_contra = TypeVar("_Raw_contra", contravariant=True)
_Served_co = TypeVar("_Served_co", covariant=True)
_Answer_co = TypeVar("_Answer_co", covariant=True)


class Answer(NamedTuple, Generic[_Served_co]):
    """What a calibrator answers to one forecast.

    Attributes
    ----------
    p
        What to serve: a probability, or what the calibrator's kind of forecast has in its place. Nothing in it is
        drawn; for a randomised calibrator it is the mean of what ``draw`` is drawn from.
    draw
        One draw, by the event's key, of a randomised calibrator; equal to ``p`` where nothing is drawn.
    ticket
        What `Recalibrator.update` needs once the outcome is known.
    """

    p: _Served_co
    draw: _Served_co
    ticket: bytes


class Prediction(Answer[float]):
    """The answer of a calibrator of probabilities: ``p`` and ``draw`` in [0, 1]."""

    __slots__ = ()


#: Makes a named tuple at half the price of its own constructor: `new(Prediction, (p, draw, ticket))`.
new = tuple.__new__


class Recalibrator(Protocol[_Raw_contra, _Answer_co]):
    """An online recalibrator of one kind of forecast, with one kind of `Answer`.

    `update` reads only the ticket and the state, so outcomes may come late, in any order, or never. A calibrator is
    ``order_free`` when the order does not matter at all: the same tickets resolved in any order end in the same bytes.
    """

    @property
    def name(self) -> str:
        """Name under which it is registered; ``front+back`` for a composition."""

    @property
    def order_free(self) -> bool:
        """Whether updates commute, bit for bit."""

    @property
    def learnt(self) -> int:
        """Outcomes learnt so far."""

    def predict(self, p: _Raw_contra, x: Sequence[float] = (), key: bytes = b"") -> _Answer_co:
        """Answer a forecast; changes nothing.

        Parameters
        ----------
        p
            The raw forecast: a probability in [0, 1], a `Probs`, or a law (see `state.forecasts`).
        x
            Features in [-1, 1]; ignored by calibrators that take none.
        key
            The event id, which keys the draw of a randomised calibrator.

        Raises
        ------
        ValueError
            If ``p`` is outside [0, 1], or ``x`` is not what the calibrator was configured for.
        """

    def update(self, ticket: bytes, y: float) -> None:
        """Learn from an outcome.

        Parameters
        ----------
        ticket
            From the `Answer` the outcome belongs to.
        y
            In [0, 1], and a calibrator that counts takes 0 and 1 only; of classes, the index; of a law, the number.

        Raises
        ------
        ValueError
            If ``y`` is not allowed; the state is unchanged.
        """

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
        """Return the whole state: equal bytes for equal updates in equal order."""

    def decode(self, payload: bytes) -> None:
        """Take over a state written by `encode` of a calibrator with the same options.

        Raises
        ------
        ValueError
            If the payload has another length or was written with other options.
        """

    def error(self) -> float | None:
        """Return the measured calibration error of what was served; None before the first outcome or if undefined."""

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the theorem's bound on the expected `error`; None before the first outcome or without a theorem.

        A bound of 1 says nothing: no error of probabilities can be larger.

        Parameters
        ----------
        outstanding
            Mean number of other outcomes that were learnt between a forecast and its own outcome, or more.
        """


#: A recalibrator of probabilities.
Calibrator = Recalibrator[float, Prediction]


def require_probability(p: float) -> None:
    """Raise ValueError unless ``p`` is in [0, 1]; NaN is not."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"a probability must be in [0, 1], got {p!r}")


def require_length(payload: bytes, length: int) -> None:
    """Raise ValueError unless the payload has this many bytes."""
    if len(payload) != length:
        raise ValueError(f"expected a state of {length} bytes, got {len(payload)}: other options wrote it")
