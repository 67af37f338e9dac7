"""The ledger: one row for each event, from the first record that names it until its time to live has passed.

The row of an answered event is its ticket: what was served, by which calibrator, and the bytes that this calibrator
needs to learn from the outcome. Learning reads the ticket, and never derives the answer again.

`LIFE` lists all transitions of a row.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from state import forecasts
from state.forecasts import PROBABILITY
from state.frames import CorruptFrame
from state.kind import EVENT, Kind, Moves, form
from state.quick import new

#: Statuses of a row: an outcome without a forecast; an answered forecast; a learnt outcome. Where a stream learns at
#: maturity, an answered forecast that has not matured, without and with its outcome. An erased event: its name and
#: stream are kept until the row would have left.
EARLY: Final = 1
ISSUED: Final = 2
RESOLVED: Final = 3
IMMATURE: Final = 4
WAITING: Final = 5
ERASED: Final = 6
#: The status of an event without a row.
NONE: Final = 0

#: What a row may meet: a forecast or an outcome of its event, its maturity, the end of its time to live, or a record
#: that erases its event.
FORECAST: Final = 0
OUTCOME: Final = 1
MATURES: Final = 2
LEAVES: Final = 3
ERASURE: Final = 4
#: The action for each status and each thing that the row may meet: a method of `state.engine.Partition`.
LIFE: Final = {
    NONE: ("answer", "park", "stay", "stay", "erase_unknown"),
    EARLY: ("join", "say_again", "stay", "lapse", "erase"),
    ISSUED: ("answer_again", "resolve", "imply", "lapse", "erase"),
    IMMATURE: ("answer_again", "keep", "imply", "lapse", "erase"),
    WAITING: ("answer_again", "say_again", "redeem", "leave", "erase"),
    RESOLVED: ("answer_again", "say_again", "stay", "leave", "erase"),
    ERASED: ("refuse_erased", "ignore", "stay", "vanish", "ignore"),
}

#: status, kind, born, issued_ts, resolved_ts, y, raw, p, draw, version, as_of, number, window, entity: see `LedgerRow`.
HEAD: Final = Struct("<BBQqqddddQqIII")
_pack_head: Final = HEAD.pack
_head_of: Final = HEAD.unpack_from
_NAMES: Final = Struct("<4sBB")
_LENGTHS: Final = Struct("<3H")
_SHADOW: Final = Struct("<4sQdd?H")
_LENGTH: Final = Struct("<H")
#: Lengths in bytes: of the head, of what stands between it and the names of calibrator and stream, of a length field.
_OF_HEAD: Final = HEAD.size
_OF_NAMES: Final = _NAMES.size
_OF_LENGTH: Final = _LENGTH.size
_WEIGHTS: Final = Struct("<2d")
#: Flag in the status: the event counts by weight. Its weight and chance follow the names.
WEIGHED: Final = 0x80
#: Flags in the kind. Each says that an optional part follows, in this order. First: how often the label has changed.
REVISED: Final = 0x10
#: The forecast's Kafka key.
KEYED: Final = 0x08
#: The slots of the event's segments.
GROUPED: Final = 0x04
#: Band, points and interval, see `state.banding.Marks`.
BANDED: Final = 0x20
#: Tickets of challengers.
SHADOWED: Final = 0x40
#: Whether the serving calibrator is or was frozen, so that it has not learnt the label or its last revision.
FROZEN: Final = 0x80
#: All flags in the kind.
FLAGS: Final = FROZEN | SHADOWED | BANDED | REVISED | KEYED | GROUPED
#: The most times that a label may change.
MOST_REVISIONS: Final = 100
#: The time of a label that silence implied: before every outcome.
UNSAID: Final = -1
#: The window of an event from a warm-up. It counts in no window.
NO_WINDOW: Final = 0xFFFF_FFFF
#: The window of an event that taught nothing, because its entity had taught already (`state.entities`) or its label
#: stands for few forecasts (`state.chances`). It counts only in weighted sums (`state.scoring.weighted`), and in bands
#: if chances are known.
UNTAUGHT: Final = 0xFFFF_FFFE
_NO_KEY: Final = 0xFFFF
NAN: Final = float("nan")


class Shadow(NamedTuple):
    """A challenger's ticket, with the answer that it would have served."""

    #: Hash of its configuration, 8 hex digits.
    config: str
    #: Number of outcomes that it had learnt.
    version: int
    #: The challenger's answer, and for one probability its draw, in [0, 1]. For classes and numbers no draw is stored:
    #: ``draw`` is the answer.
    p: Any
    draw: Any
    #: What the challenger needs to learn from the outcome.
    ticket: bytes
    #: Whether the challenger was in its warm-up.
    warm: bool = False


def names(config: str, calibrator: str, stream: str) -> bytes:
    """Return who served, as bytes of a row: configuration (8 hex digits), calibrator, stream."""
    made, named = calibrator.encode(), stream.encode()
    return _NAMES.pack(bytes.fromhex(config), len(made), len(named)) + made + named


#: The names in the row of an event without a forecast.
NOBODY: Final = names("00000000", "", "")


class LedgerRow:
    """The row of an event."""

    def __init__(
        self,
        status: int,
        born: int,
        kind: int = PROBABILITY,
        issued_ts: int = 0,
        resolved_ts: int = 0,
        y: float = NAN,
        raw: Any = NAN,  # noqa: ANN401 - of the kind
        p: Any = NAN,  # noqa: ANN401 - of the kind
        draw: Any = NAN,  # noqa: ANN401 - of the kind
        version: int = 0,
        names: bytes = NOBODY,
        ticket: bytes = b"",
        *,
        as_of: int = 0,
        number: int = 0,
    ) -> None:
        #: `EARLY`, `ISSUED`, `IMMATURE`, `WAITING`, `RESOLVED` or `ERASED`.
        self.status = status
        #: The partition's count of applied records when the row entered its expiry queue.
        self.born = born
        #: Kind of the forecast: `state.forecasts.PROBABILITY` and so on.
        self.kind = kind
        #: Event time of the forecast and of the label, ms; 0 while there is none. A label that silence implied has the
        #: time at which the forecast matured.
        self.issued_ts = issued_ts
        self.resolved_ts = resolved_ts
        #: The label in force; NaN while there is none.
        self.y = y
        #: The model's forecast, the served one, and its draw; NaN while early.
        self.raw = raw
        self.p = p
        self.draw = draw
        #: Number of outcomes that the calibrator had learnt when it answered; 0 while early.
        self.version = version
        #: Who served, see `names`.
        self.names = names
        #: What the calibrator needs to learn from the outcome.
        self.ticket = ticket
        #: Tickets of the challengers, in the order of the stream's configuration when the forecast was answered.
        self.shadows: Sequence[Shadow] = ()
        #: Event time of the latest outcome that set or confirmed the label, ms; `UNSAID` while silence implied it.
        self.as_of = as_of
        #: Revision number of that outcome; 0 if it had none.
        self.number = number
        #: The window of the stream's scores in which the event counts: 0 until it is learnt, `NO_WINDOW` for an event
        #: of the warm-up (`state.scoring.warm_up`), `UNTAUGHT` for one that taught nothing.
        self.window = 0
        #: How often the label has changed since the event was learnt; at most `MOST_REVISIONS`.
        self.revisions = 0
        #: The forecast's Kafka key if the event matures and the key is not the event id, else empty. None: no key.
        self.key: bytes | None = b""
        #: Hash of the names of the stream's segments (`state.policy.Policy.layout`), and the event's slots
        #: (`state.segments.Dictionary`); empty where the stream had no segments.
        self.layout = b""
        self.groups: tuple[int, ...] = ()
        #: Number of the entity that the forecast is about (`state.entities.number`); 0 without one.
        self.entity = 0
        #: Whether the event counts by weight: its stream had weights or chances when it was answered.
        self.weighed = False
        #: The forecast's weight, and its chance of a label, in (0, 1]; each 1 where the stream has none.
        self.weight = 1.0
        self.chance = 1.0
        #: Band, points and interval of the answer, as `state.banding.Marks.encode` has them; empty if there are none.
        self.marks = b""
        #: Whether the serving calibrator has not learnt the label, or its last revision.
        self.frozen = False
        #: Data of an observer; never stored.
        self.seen: Any = None

    @property
    def config(self) -> str:
        """Hash of the configuration that served, 8 hex digits."""
        return self.names[:4].hex()

    @property
    def calibrator(self) -> str:
        """Name of the calibrator that served; empty while early."""
        at = _NAMES.size
        return self.names[at : at + self.names[4]].decode()

    @property
    def stream(self) -> str:
        """The stream; empty while early."""
        return self.names[_NAMES.size + self.names[4] :].decode()

    def admits(self, y: float) -> bool:
        """Whether the event's forecast can have this outcome; without a forecast, always."""
        if self.status <= EARLY:
            return True
        return y in (0.0, 1.0) if self.kind == PROBABILITY else forecasts.admits(self.raw, y)

    def newer(self, ts: int, number: int) -> bool:
        """Whether an outcome with this time and revision number replaces the one behind the present label.

        The higher number wins. Without numbers the later time wins; of equal times, the outcome that comes last.
        """
        return number > self.number or (number == self.number == 0 and ts >= self.as_of)

    def label(self, status: int, y: float, ts: int, as_of: int, number: int) -> None:
        """Set the label, its time ``ts``, and the status."""
        self.status = status
        self.y = y
        self.resolved_ts = ts
        self.as_of = as_of
        self.number = number

    def encode(self) -> bytes:
        """Return the payload: a head of 86 bytes, who served, the parts that the flags announce, vectors, ticket."""
        kind, status, parts = self.kind | (FROZEN if self.frozen else 0), self.status, self.names
        if self.weighed:
            status |= WEIGHED
            parts += _WEIGHTS.pack(self.weight, self.chance)
        if self.revisions:
            kind |= REVISED
            parts += bytes((self.revisions,))
        if self.key != b"":
            kind |= KEYED
            parts += _LENGTH.pack(_NO_KEY) if self.key is None else _LENGTH.pack(len(self.key)) + self.key
        if self.groups:
            kind |= GROUPED
            slots = b"".join([_LENGTH.pack(slot) for slot in self.groups])
            parts += bytes((len(self.groups),)) + self.layout + slots
        if self.marks:
            kind |= BANDED
            parts += self.marks
        if self.shadows:
            kind |= SHADOWED
            block = b"".join([_shadow(each) for each in self.shadows])
            parts += _LENGTH.pack(len(block)) + block
        raw, p, draw = self.raw, self.p, self.draw
        if self.kind != PROBABILITY:
            vectors = [forecasts.encode(each) for each in (raw, p, draw)]
            parts += _LENGTHS.pack(*[len(each) for each in vectors]) + b"".join(vectors)
            raw = p = draw = NAN
        head = _pack_head(
            status, kind, self.born, self.issued_ts, self.resolved_ts, self.y, raw, p, draw, self.version,
            self.as_of, self.number, self.window, self.entity,
        )  # fmt: skip
        return head + parts + self.ticket

    @staticmethod
    def decode(payload: bytes) -> "LedgerRow":
        """Read a payload; raises as `state.kind.Kind.decode` says."""
        status: int  # `struct` gives no types
        flags: int
        status, flags, born, issued_ts, resolved_ts, y, raw, p, draw, version, as_of, number, window, entity = _head_of(
            payload
        )
        kind = flags & ~FLAGS
        at = _OF_HEAD + _OF_NAMES + payload[_OF_HEAD + 4] + payload[_OF_HEAD + 5]
        row = LedgerRow(
            status & ~WEIGHED, born, kind, issued_ts, resolved_ts, y, raw, p, draw, version, payload[_OF_HEAD:at]
        )
        row.as_of, row.number, row.window, row.entity = as_of, number, window, entity
        row.frozen = flags & FROZEN > 0
        if status & WEIGHED:
            row.weighed = True
            row.weight, row.chance = _WEIGHTS.unpack_from(payload, at)
            at += _WEIGHTS.size
        if flags & REVISED:
            row.revisions = payload[at]
            at += 1
        if flags & KEYED:
            size = _length(payload, at)
            at += _LENGTH.size
            row.key = None
            if size != _NO_KEY:
                row.key = payload[at : at + size]
                at += size
        if flags & GROUPED:
            n = payload[at]
            row.layout = payload[at + 1 : at + 5]
            at += 5
            row.groups = tuple([payload[i] | payload[i + 1] << 8 for i in range(at, at + 2 * n, 2)])
            at += 2 * n
        if flags & BANDED:
            end = at + _OF_LENGTH + _length(payload, at)
            row.marks = payload[at:end]
            at = end
        if flags & SHADOWED:
            end = at + _LENGTH.size + _length(payload, at)
            row.shadows = _shadows(payload, at + _LENGTH.size, end, kind)
            at = end
        if kind != PROBABILITY:
            sizes = _LENGTHS.unpack_from(payload, at)
            at += _LENGTHS.size
            vectors: list[Any] = []
            for size in sizes:
                vectors.append(forecasts.decode(payload[at : at + size]))
                at += size
            row.raw, row.p, row.draw = vectors
        if at > len(payload):
            raise CorruptFrame("a ledger row is cut before its ticket")
        row.ticket = payload[at:]
        return row


LEDGER: Final = Kind[LedgerRow](
    "L", "the row", (EVENT,), {7: form(LedgerRow)}, Moves.EVENT, "one an event that has not expired: the ledger"
)


def _length(payload: bytes, at: int) -> int:
    return payload[at] | payload[at + 1] << 8


def _shadow(each: Shadow) -> bytes:
    """Return a challenger's part of a row. An answer that is not one probability stands before its ticket."""
    config, version, p, draw, ticket, warm = each
    if not isinstance(p, float):
        vector = forecasts.encode(p)
        ticket, p, draw = _LENGTH.pack(len(vector)) + vector + ticket, NAN, NAN
    return _SHADOW.pack(bytes.fromhex(config), version, p, draw, warm, len(ticket)) + ticket


def _shadows(payload: bytes, at: int, end: int, kind: int) -> list[Shadow]:
    found: list[Shadow] = []
    while at < end:
        config, version, p, draw, warm, size = _SHADOW.unpack_from(payload, at)
        at += _SHADOW.size
        ticket = payload[at : at + size]
        at += size
        if kind != PROBABILITY:
            tail = _LENGTH.size + _length(ticket, 0)
            p = draw = forecasts.decode(ticket[_LENGTH.size : tail])
            ticket = ticket[tail:]
        found.append(new(Shadow, (config.hex(), version, p, draw, ticket, warm)))
    if at != end or not found:
        raise CorruptFrame("the challengers in a ledger row are cut")
    return found
