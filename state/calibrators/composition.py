"""An adaptive calibrator in front of a guaranteed one."""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, cast

from state.calibrators.base import Calibrator, Prediction, new
from state.calibrators.bucketed import Bucketed
from state.calibrators.calibrated_regression import Bias, CalibratedRegression
from state.calibrators.points import Point
from state.calibrators.sizes import MOST_SLOTS, largest

_TICKET_LENGTH: Final = Struct("<H")
_STATE_LENGTH: Final = Struct("<I")
#: `_TICKET_LENGTH` of short tickets.
_HEADS: Final = [_TICKET_LENGTH.pack(length) for length in range(256)]

#: Reads an event's features from its ticket.
Features = Callable[[bytes], Sequence[float]]


class Composition:
    """Feed what the front would serve to the back as its forecast; both learn from the outcome.

    The front brings accuracy on benign streams, the back its guarantee on every stream: a theorem that holds for any
    sequence of forecasts holds for the front's. What is learnt, measured and bounded is the back's.

    Parameters
    ----------
    front, back
        Two calibrators whose draws, if both draw, are keyed apart: a back that is told its own coin by its forecast
        loses its guarantee.

    Notes
    -----
    A back that draws nothing and only moves forecasts (``passes``) leaves the draw of its front as it is: what is
    proved of a draw holds whatever ``p`` stands beside it.

    Ticket: length of the front's (u16), the front's, the back's. Bytes: length of the front's (u32), the front's, the
    back's. Little-endian.
    """

    def __init__(self, front: Calibrator, back: Calibrator) -> None:
        self.name = f"{front.name}+{back.name}"
        self.order_free = front.order_free and back.order_free
        self._front_grouped = bool(getattr(front, "grouped", False))
        self._back_grouped = bool(getattr(back, "grouped", False))
        #: Whether a part takes the slots of an event's segments, see `Calibrator.predict`.
        self.grouped = self._front_grouped or self._back_grouped
        passes = bool(getattr(back, "passes", False))
        self._passed = passes and bool(getattr(front, "draws", False))
        #: Whether a draw may differ from ``p``.
        self.draws = self._passed or bool(getattr(back, "draws", False))
        self.front = front
        self.back = back

    @property
    def learnt(self) -> int:
        """Outcomes learnt so far."""
        return self.back.learnt

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve the back's answer to the front's; those that take the event's slots are given them."""
        front_one: Any = self.front
        back_one: Any = self.back
        if self._front_grouped:
            between, drawn, front = front_one.predict(p, x, key, groups)
        else:
            between, drawn, front = front_one.predict(p, x, key)
        if self._back_grouped:
            p, draw, back = back_one.predict(between, x, key, groups)
        else:
            p, draw, back = back_one.predict(between, x, key)
        if self._passed:
            draw = drawn
        length = len(front)
        head = _HEADS[length] if length < len(_HEADS) else _TICKET_LENGTH.pack(length)
        return new(Prediction, (p, draw, head + front + back))

    def update(self, ticket: bytes, y: float) -> None:
        """Let both learn; the back first, because it may refuse ``y``."""
        end = 2 + ticket[0] + (ticket[1] << 8)
        self.back.update(ticket[end:], y)
        self.front.update(ticket[2:end], y)

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Let both revise; the back first, because it may refuse ``y``."""
        end = 2 + _TICKET_LENGTH.unpack_from(ticket)[0]
        self.back.revise(ticket[end:], was, y)
        self.front.revise(ticket[2:end], was, y)

    def unserved(self, ticket: bytes) -> bytes:
        """Return the ticket of an answer that was not served, see `unserved`."""
        end = 2 + _TICKET_LENGTH.unpack_from(ticket)[0]
        front, back = unserved(self.front, ticket[2:end]), unserved(self.back, ticket[end:])
        return _TICKET_LENGTH.pack(len(front)) + front + back

    def regrouped(self, ticket: bytes, slots: Mapping[int, int]) -> bytes:
        """Return a ticket whose event has other slots, as `Prudent.regrouped` does."""
        end = 2 + _TICKET_LENGTH.unpack_from(ticket)[0]
        parts: list[bytes] = []
        for part, own, takes in (
            (self.front, ticket[2:end], self._front_grouped),
            (self.back, ticket[end:], self._back_grouped),
        ):
            one: Any = part
            parts.append(one.regrouped(own, slots) if takes else own)
        return _TICKET_LENGTH.pack(len(parts[0])) + parts[0] + parts[1]

    def encode(self) -> bytes:
        """Return both states."""
        front = self.front.encode()
        return _STATE_LENGTH.pack(len(front)) + front + self.back.encode()

    def largest(self, slots: int = MOST_SLOTS) -> int:
        """Return the most bytes that `encode` ever returns, if events have so many slots in all."""
        return _STATE_LENGTH.size + largest(self.front, slots) + largest(self.back, slots)

    def decode(self, payload: bytes) -> None:
        """Take over both states; ValueError if either does not fit."""
        if len(payload) < _STATE_LENGTH.size:
            raise ValueError(f"a state of {len(payload)} bytes is shorter than its own header")
        end = _STATE_LENGTH.size + _STATE_LENGTH.unpack_from(payload)[0]
        self.front.decode(payload[_STATE_LENGTH.size : end])
        self.back.decode(payload[end:])

    def error(self) -> float | None:
        """Return the back's measured error."""
        return self.back.error()

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the back's bound."""
        return self.back.bound(outstanding)


def unserved(calibrator: Any, ticket: bytes) -> bytes:  # noqa: ANN401 - of any kind
    """Return the ticket of an answer in whose place another was served.

    A calibrator whose ``error`` and ``bound`` are of what was served says by a method of this name what it learns from
    such a ticket; any other learns from it as from the one it made.
    """
    made: Any = getattr(calibrator, "unserved", None)
    return ticket if made is None else cast("bytes", made(ticket))


def features_of(calibrator: Calibrator) -> Features | None:
    """Return what reads an event's features from a calibrator's ticket: ``features_in`` of it, or of one of its parts.

    None where no part keeps them: a ticket is the only place that holds features until the outcome comes.
    """
    if not isinstance(calibrator, Composition):
        return getattr(calibrator, "features_in", None)
    if (front := features_of(calibrator.front)) is not None:
        return lambda ticket: front(ticket[2 : 2 + _TICKET_LENGTH.unpack_from(ticket)[0]])
    if (back := features_of(calibrator.back)) is not None:
        return lambda ticket: back(ticket[2 + _TICKET_LENGTH.unpack_from(ticket)[0] :])
    return None


def played(calibrator: Calibrator) -> list[Point] | None:
    """Return the points that were served, with their counts; None of a calibrator whose back keeps no counts."""
    back = _back(calibrator)
    return back.played() if isinstance(back, Bucketed) else None


def internal_regret(calibrator: Calibrator) -> float | None:
    """Return `Bucketed.internal_regret` of a calibrator or of its back; None of one that keeps no counts."""
    back = _back(calibrator)
    return back.internal_regret() if isinstance(back, Bucketed) else None


def biases(calibrator: Calibrator, features: Sequence[str] = ()) -> list[Bias]:
    """Return `CalibratedRegression.biases` of a calibrator or of its back; none of one that has learnt nothing.

    Those of a front are not of what is served.
    """
    back: object = _back(calibrator)
    return back.biases(features) if isinstance(back, CalibratedRegression) and back.learnt else []


def _back(calibrator: Calibrator) -> Calibrator:
    while (back := getattr(calibrator, "back", None)) is not None:
        calibrator = back
    return calibrator
