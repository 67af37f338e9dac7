"""Two calibrators in a row: an adaptive front and a back with a guarantee."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import ClassVar, Final

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MOST_SLOTS, BiasAlong, Calibrator, require_head
from state.quick import new

_TICKET_LENGTH: Final = Struct("<H")
_STATE_LENGTH: Final = Struct("<I")
#: Packed lengths of short tickets, by length.
_HEADS: Final = [_TICKET_LENGTH.pack(length) for length in range(256)]


class Composition(Calibrator):
    """Give the front's answer to the back as its forecast. Both learn from the outcome.

    The front is accurate on benign streams. The back has a guarantee on every stream: its theorem holds for any
    sequence of forecasts, so also for the front's answers. Error and bound are the back's.

    ``front`` and ``back``: two calibrators. If both draw, their draws must have different keys: a back whose forecast
    depends on its own draw loses its guarantee.

    Notes
    -----
    A back that only moves forecasts (``passes``) keeps the draw of its front: the theorem of a draw does not depend on
    ``p``.

    Ticket: length of the front's (u16), the front's, the back's. Bytes: length of the front's (u32), the front's, the
    back's. Little-endian.
    """

    name: ClassVar[str] = "composition"

    def __init__(self, front: Calibrator, back: Calibrator) -> None:
        self.order_free = front.order_free and back.order_free
        self.grouped = front.grouped or back.grouped
        self.keeps_features = front.keeps_features or back.keeps_features
        self._passed = back.passes and front.draws
        self.draws = self._passed or back.draws
        self.front = front
        self.back = back

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        between, drawn, front = self.front.predict(p, x, key, groups)
        served, draw, back = self.back.predict(between, x, key, groups)
        if self._passed:
            draw = drawn
        length = len(front)
        head = _HEADS[length] if length < len(_HEADS) else _TICKET_LENGTH.pack(length)
        return new(Answer, (served, draw, head + front + back))

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        """The back goes first, because it may refuse ``y``."""
        front, back = self._tickets(ticket)
        self.back.update(back, y, at)
        self.front.update(front, y, at)
        self.learnt = self.back.learnt

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """The back goes first, because it may refuse ``y``."""
        front, back = self._tickets(ticket)
        self.back.revise(back, was, y)
        self.front.revise(front, was, y)

    def breaks(self) -> Sequence[float]:
        """Return the breaks of the front. Those of the back are among the front's answers, not among forecasts."""
        return self.front.breaks()

    def unserved(self, ticket: bytes) -> bytes:
        front, back = self._tickets(ticket)
        return _joined(self.front.unserved(front), self.back.unserved(back))

    def regrouped(self, ticket: bytes, slots: Mapping[int, int]) -> bytes:
        front, back = self._tickets(ticket)
        return _joined(self.front.regrouped(front, slots), self.back.regrouped(back, slots))

    def features_in(self, ticket: bytes) -> Sequence[float]:
        front, back = self._tickets(ticket)
        return self.front.features_in(front) if self.front.keeps_features else self.back.features_in(back)

    def _tickets(self, ticket: bytes) -> tuple[bytes, bytes]:
        end = 2 + ticket[0] + (ticket[1] << 8)
        return ticket[2:end], ticket[end:]

    def encode(self) -> bytes:
        front = self.front.encode()
        return _STATE_LENGTH.pack(len(front)) + front + self.back.encode()

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return _STATE_LENGTH.size + self.front.largest(slots) + self.back.largest(slots)

    def decode(self, payload: bytes) -> None:
        require_head(payload, _STATE_LENGTH.size)
        end = _STATE_LENGTH.size + _STATE_LENGTH.unpack_from(payload)[0]
        self.front.decode(payload[_STATE_LENGTH.size : end])
        self.back.decode(payload[end:])
        self.learnt = self.back.learnt

    def error(self) -> float | None:
        return self.back.error()

    def bound(self, outstanding: int = 0) -> float | None:
        return self.back.bound(outstanding)

    def error_by_chance(self) -> float | None:
        return self.back.error_by_chance()

    def biases(self, features: Sequence[str] = ()) -> list[BiasAlong]:
        return self.back.biases(features)


def _joined(front: bytes, back: bytes) -> bytes:
    return _TICKET_LENGTH.pack(len(front)) + front + back
