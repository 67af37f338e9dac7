"""The interface of a calibrator: it answers a forecast, and learns from the outcome by way of the ticket."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple

from state.calibrators.answer import Prediction
from state.calibrators.options import Option

#: The most features a calibrator may have. The state of a regression grows with their square: 70 kB at 64.
MAX_FEATURES: Final = 64
#: The most slots of segments: eight names and eight pairs.
MOST_SLOTS: Final = 1024


class BiasAlong(NamedTuple):
    """Bias of the answers along one test function f: ``bias`` is Σ f (ŷ - y), ``length`` is Σ f².

    For a feature that is 1 on a segment and 0 elsewhere, ``bias / length`` is the segment's mean answer minus its mean
    outcome. ``|bias|`` is at most ``bound`` on any sequence.
    """

    name: str
    length: float
    bias: float
    bound: float


class Recalibrator(ABC):
    """An online recalibrator of one kind of forecast.

    `update` reads only the ticket and the state, so outcomes may come late, in any order, or never. A subclass
    implements `predict` and the abstract methods, and overrides a default where it differs.
    """

    #: Each kind of forecast declares this with its own types, see `Calibrator.predict`.
    predict: ClassVar[Callable[..., Any]]
    #: Its name in the registry.
    name: ClassVar[str]
    #: Its options by name.
    options: ClassVar[dict[str, Option]]
    #: Names of the attributes that are its state, and the struct that packs them; empty where the length varies.
    remembered: ClassVar[tuple[str, ...]] = ()
    layout: ClassVar[Struct] = Struct("<")
    #: Whether its constructor takes ``name`` and ``seed``, the keys of its draws.
    keyed: ClassVar[bool] = False
    #: Whether updates commute, bit for bit: the same tickets resolved in any order end in the same bytes.
    order_free: bool = False
    #: Whether it uses the event's segments.
    grouped: bool = False
    #: Whether a draw may differ from ``p``.
    draws: bool = False
    #: Whether it keeps the draw of its front: it moves forecasts and draws nothing.
    passes: bool = False
    #: Whether it serves the raw forecast, whatever it learns.
    serves_raw: bool = False
    #: Whether its tickets hold the features of their event.
    keeps_features: bool = False
    #: Outcomes learnt so far.
    learnt: int = 0

    @abstractmethod
    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """Learn from an outcome.

        Raises ValueError if ``y`` is not allowed; the state is unchanged.

        ``ticket``: from the `Answer` to the forecast of this outcome.
        ``y``: the outcome: for a probability in [0, 1], or only 0 or 1 if the calibrator counts; for classes the index;
        for a law the number.
        ``at``: record time of the label, ms. Labels of one time may be one batch. 0: unknown, or implied by silence.
        """

    @abstractmethod
    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Replace a label that was learnt.

        The state of an ``order_free`` calibrator is then the same as if only ``y`` had been learnt. Any other
        calibrator takes the step that its own docstring describes.

        Raises ValueError if ``y`` is not allowed; the state is unchanged.

        ``ticket``: as given to `update`.
        ``was``: the label that was learnt, or its last revision.
        """

    def encode(self) -> bytes:
        """Return the whole state; the default packs `remembered`. Equal updates in equal order give equal bytes."""
        return self.layout.pack(*[getattr(self, name) for name in self.remembered])

    def decode(self, payload: bytes) -> None:
        """Load a state that `encode` of a calibrator with the same options wrote.

        Raises ValueError if the payload has the wrong length or was written with other options.
        """
        require_length(payload, self.layout.size)
        for name, value in zip(self.remembered, self.layout.unpack(payload), strict=True):
            setattr(self, name, value)

    def largest(self, slots: int = MOST_SLOTS) -> int:
        """Return the largest number of bytes that `encode` can return.

        The default is the present size, because most states do not grow.

        ``slots``: number of slots of all segments.
        """
        return len(self.encode())

    def error(self) -> float | None:
        """Return the measured calibration error of the served answers.

        None before the first outcome, and where answers are not confined to a grid.
        """
        return None

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the theorem's bound on the expected `error`; None before the first outcome, or without a theorem.

        A bound of 1 says nothing: no error of probabilities is larger.

        ``outstanding``: mean number of other outcomes learnt between a forecast and its own outcome; a larger number is
        allowed.
        """
        return None

    def unserved(self, ticket: bytes) -> bytes:
        """Return the ticket to keep when another answer was served in place of this one.

        It matters to a calibrator whose `error` and `bound` cover only served answers.
        """
        return ticket

    def regrouped(self, ticket: bytes, slots: Mapping[int, int]) -> bytes:
        """Return the ticket with its event's slots renumbered by ``slots`` (old to new)."""
        return ticket

    def features_in(self, ticket: bytes) -> Sequence[float]:
        """Return the features that a ticket holds; shape (d,), none unless `keeps_features`."""
        return ()

    def saturated(self) -> int | None:
        """Return how many answers had a level that covers nothing or everything; None without moving levels."""
        return None

    def breaks(self) -> Sequence[float]:
        """Return the forecasts at which ``p`` may jump or bend."""
        return ()

    def error_by_chance(self) -> float | None:
        """Return the `error` that chance alone would cause; None before the first outcome, or if nothing is counted."""
        return None

    def biases(self, features: Sequence[str] = ()) -> list[BiasAlong]:
        """Return the bias along every test function; empty if the calibrator measures none or has learnt nothing."""
        return []

    def _require_label(self, y: float) -> None:
        """Raise ValueError unless an outcome is 0 or 1."""
        if y not in (0.0, 1.0):
            raise ValueError(f"{self.name} counts outcomes: y must be 0 or 1, got {y!r}")


class Calibrator(Recalibrator):
    """A recalibrator of probabilities."""

    @abstractmethod
    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Answer a forecast. The state does not change.

        For classes ``p`` is a `Probs`, for numbers a law; see `state.forecasts`.

        Raises ValueError if ``p`` is outside [0, 1], or ``x`` does not fit the calibrator's configuration.

        ``p``: the raw forecast, in [0, 1].
        ``x``: features in [-1, 1]; ignored by calibrators that take none.
        ``key``: the event id, which keys the draw of a randomised calibrator.
        ``groups``: the slots of the event's segments; ignored unless `grouped`.
        """


def require_probability(p: float) -> None:
    """Raise ValueError unless ``p`` is in [0, 1]. NaN raises, too."""
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
