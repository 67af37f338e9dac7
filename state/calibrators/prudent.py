"""The front of the default calibrator: an answer that keeps the raw order, and a draw against adversaries."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import ClassVar, Final

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MOST_SLOTS, Calibrator
from state.calibrators.by_segment import BySegment
from state.calibrators.group_regret import GroupError, GroupRegret, slots_of
from state.calibrators.options import Option
from state.calibrators.twospeed import SIZE, UNSETTLED, TwoSpeed
from state.quick import BYTES, new

#: Outcomes after which draws begin even without evidence for `TwoSpeed`: as long as .5 is served, an adversary may
#: answer with ones alone.
DRAWN: Final = 150
#: Buckets for the draws' forecasts, which `TwoSpeed` has calibrated already. With 1, 4, 16: worst ℓ1 of six adversaries
#: of 20,000 .028, .031, .042; bound after the flights, if they were prompt, .030, .029, .031; Brier score of the draws
#: there .1632, .1631, .1629.
BUCKETS: Final = 4

#: First byte of a ticket: the number of slots, plus a flag for a draw.
_SLOTS: Final = 127
_DRAWN: Final = 128
#: Bytes in a ticket for `BySegment`, and for the drawn point.
_BY_SEGMENT: Final = 16
_PLAYED: Final = 4
_LENGTH: Final = Struct("<I")


class Prudent(Calibrator):
    """Serve the raw forecast until outcomes support another score. It also has a draw, against adversaries.

    ``slope, offset, prior_rate, model_rate``: as in `TwoSpeed`.
    ``name, seed``: key the draws.

    Notes
    -----
    ``p`` is deterministic, and is the raw forecast until there is evidence. It is the answer of `TwoSpeed`, corrected
    by `BySegment`. It increases strictly with the raw forecast, among events of the same segments. An adversary who
    sees ``p`` can make it wrong by .5, like any deterministic answer. The draw protects against this. Its forecast is
    ``p``. Over the drawn rounds, the theorem of `GroupRegret` holds on any sequence of outcomes that does not see the
    draw, for the whole stream and for every segment.

    Until there is evidence, or `DRAWN` outcomes are learnt, the draw is ``p`` and is not counted. So later draws do not
    compensate for the errors of that time. Segments are not used before `TwoSpeed` settles. Error and bound are those
    of the draws, over the drawn rounds.

    Ticket: the number of slots, 128 more where a draw was drawn (u8), that of `TwoSpeed`, the first four numbers of
    that of `BySegment` if it was used, bucket and point of the draw if there was one, the slots (u16 each). Bytes:
    those of `TwoSpeed` (a fixed number), the number of those of `BySegment` (u32), these, those of `GroupRegret`.

    Examples
    --------
    >>> calibrator = Prudent(name="fraud")
    >>> for t in range(2000):
    ...     calibrator.update(calibrator.predict(0.2, key=b"%d" % t).ticket, t % 50 < 1, 600_000 * t)
    >>> p, draw, _ = calibrator.predict(0.2, key=b"2000")
    >>> round(p, 2), 0.0 <= draw <= 0.05
    (0.02, True)
    """

    name: ClassVar[str] = "prudent"
    keyed: ClassVar[bool] = True
    grouped: bool = True
    draws: bool = True
    options: ClassVar[dict[str, Option]] = TwoSpeed.options

    def __init__(
        self,
        *,
        slope: float = 1.0,
        offset: float = 0.0,
        prior_rate: float = 0.0,
        model_rate: float = 0.0,
        name: str = "",
        seed: int = 0,
    ) -> None:
        self._map = TwoSpeed(slope=slope, offset=offset, prior_rate=prior_rate, model_rate=model_rate)
        #: Draws, and counts of the drawn points.
        self._drawn = GroupRegret(buckets=BUCKETS, name=name, seed=seed)
        self._segments = BySegment()

    def predict(self, p: float, x: Sequence[float] = (), key: bytes = b"", groups: tuple[int, ...] = ()) -> Prediction:
        """Serve the answer, and a draw from the points around it; see `Calibrator.predict`.

        ``groups``: the event's slots, see `BySegment.answer`; empty without segments.
        """
        p, _, ticket = self._map.predict(p)
        many = len(groups)
        slots = b""
        if many:
            if len(ticket) > UNSETTLED:
                p, own = self._segments.answer(p, groups)
                ticket, slots = ticket + own[:_BY_SEGMENT], own[_BY_SEGMENT:]
            else:
                slots = slots_of(groups)
        if self.learnt < DRAWN and not self._map.evident():
            return new(Answer, (p, p, BYTES[many] + ticket + slots))
        _, draw, drawn = self._drawn.predict(p, x, key, groups)
        return new(Answer, (p, draw, BYTES[many | _DRAWN] + ticket + drawn))

    def breaks(self) -> list[float]:
        return self._map.breaks()

    def parts(self) -> tuple[TwoSpeed, BySegment | None]:
        """Return the map, and the corrections by segment that ``p`` uses, or None while it uses none."""
        settled = len(self._map.predict(0.5).ticket) > UNSETTLED
        return self._map, self._segments if settled else None

    def update(self, ticket: bytes, y: float, at: int = 0) -> None:
        ticket, segments, drawn = _parts(ticket)
        if segments:
            now, lag = self._map.now(ticket)
            self._map.update(ticket, y, at)
            self._segments.learn(segments, y, now, lag, self._map.part, at)
        else:
            self._map.update(ticket, y, at)
        self.learnt = self._map.learnt
        if drawn:
            self._drawn.update(drawn, y)

    def revise(self, ticket: bytes, was: float, y: float) -> None:
        """Let map and segments revise; correct the count of the draw exactly. y is 0 or 1."""
        ticket, segments, drawn = _parts(ticket)
        self._map.revise(ticket, was, y)
        if segments:
            self._segments.revise(segments, was - y, self._map.part)
        if drawn:
            self._drawn.revise(drawn, was, y)

    def error_by_chance(self) -> float | None:
        return self._drawn.error_by_chance()

    def unserved(self, ticket: bytes) -> bytes:
        """Return the ticket of an answer that was not served: map and segments learn from it, no draw is counted."""
        if not ticket[0] & _DRAWN:
            return ticket
        end = len(ticket) - 2 * (ticket[0] & _SLOTS)
        return BYTES[ticket[0] & _SLOTS] + ticket[1 : end - _PLAYED] + ticket[end:]

    def regrouped(self, ticket: bytes, slots: Mapping[int, int]) -> bytes:
        many = ticket[0] & _SLOTS
        end = len(ticket) - 2 * many
        own = Struct(f"<{many}H").unpack_from(ticket, end)
        return ticket[:end] + slots_of(tuple([slots[slot] for slot in own]))

    def encode(self) -> bytes:
        segments = self._segments.encode()
        return self._map.encode() + _LENGTH.pack(len(segments)) + segments + self._drawn.encode()

    def largest(self, slots: int = MOST_SLOTS) -> int:
        return SIZE + _LENGTH.size + self._segments.largest(slots) + self._drawn.largest(slots)

    def decode(self, payload: bytes) -> None:
        self._map.decode(payload[:SIZE])
        if len(payload) < SIZE + _LENGTH.size:
            raise ValueError(f"a state of {len(payload)} bytes is cut")
        start = SIZE + _LENGTH.size
        end = start + _LENGTH.unpack_from(payload, SIZE)[0]
        self._segments.decode(payload[start:end])
        self._drawn.decode(payload[end:])
        self.learnt = self._map.learnt

    def error(self) -> float | None:
        return self._drawn.error()

    def bound(self, outstanding: int = 0) -> float | None:
        """Return the bound on the draws' error. All delays count as those of drawn outcomes."""
        drawn = self._drawn.learnt
        return self._drawn.bound(self._delay(outstanding)) if drawn else None

    def groups(self, outstanding: int = 0) -> list[GroupError]:
        """Return error and bound of the draws of every segment; ``outstanding`` as in `bound`."""
        return self._drawn.groups(self._delay(outstanding))

    def _delay(self, outstanding: int) -> int:
        drawn = self._drawn.learnt
        return -(-outstanding * self.learnt // drawn) if drawn else 0


def _parts(ticket: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the tickets of map, segments and draw; the last two may be empty."""
    head = ticket[0]
    end = len(ticket) - 2 * (head & _SLOTS)
    slots = ticket[end:]
    drawn = b""
    if head & _DRAWN:
        drawn = ticket[end - _PLAYED :]
        end -= _PLAYED
    segments = b""
    if slots and end > 1 + UNSETTLED:
        segments = ticket[end - _BY_SEGMENT : end] + slots
        end -= _BY_SEGMENT
    return ticket[1:end], segments, drawn
