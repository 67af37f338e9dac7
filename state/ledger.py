"""The ledger: one row an event, from the first record that names it until its time to live has passed.

``early -> resolved`` when the outcome came first, ``issued -> resolved`` when the forecast did. Where a stream learns
at maturity, an event is ``immature`` instead of issued, and ``waiting`` once its outcome is known; it resolves when it
matures. The row of an answered event is its ticket: what was served, by which calibrator, and the bytes that this
calibrator needs to learn from the outcome. Updates read the ticket and never re-derive what was served.
"""

from struct import Struct
from typing import Any, Final, NamedTuple

from state import forecasts
from state.forecasts import PROBABILITY
from state.frames import CorruptFrame, checked
from state.kind import EVENT, Form, Kind, Moves

EARLY: Final = 1
ISSUED: Final = 2
RESOLVED: Final = 3
IMMATURE: Final = 4
WAITING: Final = 5

#: status, kind, born, touched, issued_ts, resolved_ts, y, raw, p, draw, version, as_of, number, window, entity: see
#: `Entry`.
HEAD: Final = Struct("<BBQQqqddddQqIII")
#: The same without entity, with born, issued_ts, and raw to version as bytes.
_LEARNT: Final = Struct("<BB8sQ8sqd32sqII")
_ISSUED_TS: Final = Struct("<q")
_BORN: Final = Struct("<Q")
_ENTITY: Final = Struct("<I")
_NAMES: Final = Struct("<4sBB")
#: Where the names begin.
_NAMED: Final = HEAD.size + _NAMES.size
_LENGTHS: Final = Struct("<3H")
#: Set in the kind of a row that holds tickets of challengers.
SHADOWED: Final = 0x40
#: Set in the kind of a row whose label has changed, and that holds how often.
REVISED: Final = 0x10
#: Set in the kind of a row that holds the forecast's Kafka key, where it is not the event id.
KEYED: Final = 0x08
#: Set in the kind of a row that holds the slots of the event's segments.
GROUPED: Final = 0x04
#: Set in the kind of a row that holds the marks of the forecast, see `state.banding.Marks`.
BANDED: Final = 0x20
#: All that is not the kind itself.
FLAGS: Final = SHADOWED | REVISED | KEYED | GROUPED | BANDED
#: Most times a label may change.
MOST_REVISIONS: Final = 100
#: When a label that silence implied was said: before every outcome.
UNSAID: Final = -1
#: The window of what was answered in a warm-up: it counts in none.
NO_WINDOW: Final = 0xFFFF_FFFF
#: The window of an outcome that taught nothing, because its entity had taught (`state.entities`): it counts nowhere.
UNTAUGHT: Final = 0xFFFF_FFFE
_NO_KEY: Final = 0xFFFF
_SHADOW: Final = Struct("<4sQdd?H")
_LENGTH: Final = Struct("<H")
#: Bytes before the slots of segments: their number and the layout.
_GROUPS: Final = 5
NAN: Final = float("nan")
#: Stands for the configuration while none has served the event.
NO_CONFIG: Final = "00000000"


class Shadow(NamedTuple):
    """A challenger's ticket: what it would have served.

    Attributes
    ----------
    config
        Hash of its configuration, 8 hex digits.
    version
        Outcomes it had learnt.
    p, draw
        Its forecast, and of one probability what was drawn, in [0, 1]. Of classes and numbers no draw is kept, and the
        forecast stands in its place.
    ticket
        What it needs to learn from the outcome.
    warm
        Whether it was in its warm-up.
    """

    config: str
    version: int
    p: forecasts.ForecastValue
    draw: forecasts.ForecastValue
    ticket: bytes
    warm: bool = False

    def encode(self) -> bytes:
        """Return its part of the block of challengers."""
        return shadow(bytes.fromhex(self.config), self.version, self.p, self.draw, self.ticket, self.warm)


class Entry(NamedTuple):
    """A ledger row.

    Attributes
    ----------
    status
        `EARLY`, `ISSUED`, `IMMATURE`, `WAITING` or `RESOLVED`.
    born, touched
        The partition's count of applied records when the row entered its expiry queue, and when it last changed.
    issued_ts, resolved_ts
        Event time of the forecast and of the label, ms; 0 while there is none. A label that silence implied has the
        time at which the forecast matured.
    y
        The label in force; NaN while there is none.
    raw, p, draw
        The model's forecast, the served one, and the draw that was served beside it.
    version
        Outcomes the calibrator had learnt when it served; 0 while early.
    config, calibrator, stream
        Hash of the configuration (8 hex digits), name of the calibrator, and the stream; empty while early.
    ticket
        What the calibrator needs to learn from the outcome.
    kind
        Of the forecast: `state.forecasts.PROBABILITY` and so on.
    shadows
        Tickets of the challengers, in the order of the stream's configuration when the forecast was answered.
    as_of
        Event time of the latest outcome that was taken for the label, also where it only confirmed it, ms; `UNSAID`
        while silence implied the label.
    number
        The revision number that outcome had; 0 if it had none.
    window
        The window of the stream's scores in which the event counts, 0 until it is learnt; `NO_WINDOW` of an event of
        the warm-up (`state.scoring.warm_up`), `UNTAUGHT` of one that counts nowhere.
    revisions
        How often the label has changed since the event was learnt; at most `MOST_REVISIONS`.
    key
        The forecast's Kafka key, if the event matures and the key is not the event id; else empty. None: no key.
    layout, groups
        Hash of the names of the stream's segments (`state.policy.Policy.layout`), and the event's slots
        (`state.segments.Dictionary`); empty where the stream had no segments.
    entity
        Number of the entity that the forecast is about (`state.entities.number`); 0 without one.
    marks
        Band and points of the forecast (`state.banding.Marks`); empty where its stream had neither.
    """

    status: int
    born: int
    touched: int
    issued_ts: int
    resolved_ts: int
    y: float
    raw: forecasts.ForecastValue
    p: forecasts.ForecastValue
    draw: forecasts.ForecastValue
    version: int
    config: str
    calibrator: str
    stream: str
    ticket: bytes
    kind: int = PROBABILITY
    shadows: tuple[Shadow, ...] = ()
    as_of: int = 0
    number: int = 0
    window: int = 0
    revisions: int = 0
    key: bytes | None = b""
    layout: bytes = b""
    groups: tuple[int, ...] = ()
    entity: int = 0
    marks: bytes = b""

    def encode(self) -> bytes:
        """Return the row: a head of 100 bytes, calibrator, stream, what the kind's flags say, vectors, ticket."""
        numbers, vectors = _answer(self.kind, self.raw, self.p, self.draw)
        kind, parts = self.kind, b""
        if self.revisions:
            kind |= REVISED
            parts += bytes((self.revisions,))
        if self.key != b"":
            kind |= KEYED
            parts += keyed(self.key)
        if self.groups:
            kind |= GROUPED
            parts += grouped(self.layout, self.groups)
        if self.marks:
            kind |= BANDED
            parts += banded(self.marks)
        if self.shadows:
            kind |= SHADOWED
            parts += shadowed(b"".join(each.encode() for each in self.shadows))
        last_of_head = (self.version, self.as_of, self.number, self.window, self.entity)
        head = HEAD.pack(self.status, kind, *self[1:6], *numbers, *last_of_head)
        return sealed(head + names(self.config, self.calibrator, self.stream) + parts + vectors + self.ticket)


def decode(frame: bytes) -> Entry:
    """Read a row written by `Entry.encode`.

    Raises
    ------
    CorruptFrame
        If the frame is not an intact ledger row of this version.
    """
    return LEDGER.open(frame, _whole)


def _whole(payload: bytes) -> Entry:
    entry = parse(payload)
    if _answer_at(payload) > len(payload):
        raise CorruptFrame("a ledger row is cut before its ticket")
    return entry


LEDGER: Final = Kind[Entry](
    "L",
    "the row",
    (EVENT,),
    {5: Form(bytes, bytes, _whole)},
    Moves.EVENT,
    "one an event that has not expired: the ledger",
)
_FRAME: Final = bytes((LEDGER.letter[0], LEDGER.version))


# The engine works on payloads: it reads the head of a row and leaves the rest as it is, at a third of the cost of
# taking every row apart and putting it together again.


def sealed(payload: bytes) -> bytes:
    """Return the row of a payload."""
    return checked(_FRAME + payload)


def unsealed(frame: bytes) -> bytes:
    """Return the payload of a row; raises `CorruptFrame` as `decode` does."""
    return LEDGER.open(frame, bytes)


def parse(payload: bytes) -> Entry:
    """Return the entry of a payload."""
    status, kind, born, touched, issued_ts, resolved_ts, y, raw, p, draw, version, as_of, number, window, entity = (
        HEAD.unpack_from(payload)
    )
    config, n_calibrator, n_stream = _NAMES.unpack_from(payload, HEAD.size)
    at = HEAD.size + _NAMES.size
    calibrator = payload[at : at + n_calibrator].decode()
    at += n_calibrator
    stream = payload[at : at + n_stream].decode()
    if kind == PROBABILITY:
        ticket, challengers = payload[at + n_stream :], list[Shadow]()
    else:
        raw, p, draw, ticket = answer(payload)
        challengers = shadows(payload) if kind & SHADOWED else []
    key = key_of(payload, b"")
    layout, slots = groups(payload)
    return Entry(
        status,
        born,
        touched,
        issued_ts,
        resolved_ts,
        y,
        raw,
        p,
        draw,
        version,
        config.hex(),
        calibrator,
        stream,
        ticket,
        kind & ~FLAGS,
        tuple(challengers),
        as_of,
        number,
        window,
        revisions(payload),
        key,
        layout,
        slots,
        entity,
        marks(payload),
    )


def answer(payload: bytes) -> tuple[Any, Any, Any, bytes]:
    """Return raw, p, draw and the ticket of a payload.

    Raises
    ------
    CorruptFrame
        If the vectors are not intact.
    """
    at = _answer_at(payload)
    if payload[1] & ~FLAGS == PROBABILITY:
        *_, raw, p, draw, _, _, _, _, _ = HEAD.unpack_from(payload)
        return raw, p, draw, payload[at:]
    sizes = _LENGTHS.unpack_from(payload, at)
    at += _LENGTHS.size
    found: list[Any] = []
    for size in sizes:
        try:
            found.append(forecasts.decode(payload[at : at + size]))
        except ValueError as exc:
            raise CorruptFrame(f"a forecast in a ledger row is damaged: {exc}") from exc
        at += size
    return found[0], found[1], found[2], payload[at:]


def shadows(payload: bytes) -> list[Shadow]:
    """Return the challengers' tickets of a payload that is `SHADOWED`.

    Raises
    ------
    CorruptFrame
        If their part is not intact.
    """
    at = _shadows_at(payload)
    end = at + _LENGTH.size + _LENGTH.unpack_from(payload, at)[0]
    at += _LENGTH.size
    plain = payload[1] & ~FLAGS == PROBABILITY
    found = []
    while at < end:
        config, version, p, draw, warm, size = _SHADOW.unpack_from(payload, at)
        at += _SHADOW.size
        ticket = payload[at : at + size]
        made = Shadow(config.hex(), version, p, draw, ticket, warm)
        found.append(made if plain else _vector(made))
        at += size
    if at != end or not found:
        raise CorruptFrame("the challengers in a ledger row are cut")
    return found


def _vector(shadow: Shadow) -> Shadow:
    """Return the ticket of a challenger whose forecast is no probability: the forecast stands before its ticket."""
    part = shadow.ticket
    (size,) = _LENGTH.unpack_from(part)
    end = _LENGTH.size + size
    try:
        p = forecasts.decode(part[_LENGTH.size : end])
    except ValueError as exc:
        raise CorruptFrame(f"a challenger's forecast in a ledger row is damaged: {exc}") from exc
    return shadow._replace(p=p, draw=p, ticket=part[end:])


# Behind the names stand, in this order and each only if its flag is set: how often the label has changed, the key, the
# slots, the marks, the challengers; then of classes and numbers the vectors; then the ticket, to the end.


def _key_at(payload: bytes) -> int:
    return names_end(payload) + (1 if payload[1] & REVISED else 0)


def _groups_at(payload: bytes) -> int:
    at = _key_at(payload)
    if not payload[1] & KEYED:
        return at
    size: int = _LENGTH.unpack_from(payload, at)[0]
    return at + _LENGTH.size + (0 if size == _NO_KEY else size)


def marks_at(payload: bytes) -> int:
    """Return where the part of a payload begins that is `BANDED`."""
    at = _groups_at(payload)
    return at + _GROUPS + 2 * payload[at] if payload[1] & GROUPED else at


def _shadows_at(payload: bytes) -> int:
    at = marks_at(payload)
    return at + 1 + payload[at] if payload[1] & BANDED else at


def _answer_at(payload: bytes) -> int:
    at = _shadows_at(payload)
    return at + _LENGTH.size + int(_LENGTH.unpack_from(payload, at)[0]) if payload[1] & SHADOWED else at


def revisions(payload: bytes) -> int:
    """Return how often the label of a payload has changed."""
    return payload[names_end(payload)] if payload[1] & REVISED else 0


def key_of(payload: bytes, otherwise: bytes | None) -> bytes | None:
    """Return the forecast's Kafka key that a payload holds; ``otherwise`` if it holds none."""
    if not payload[1] & KEYED:
        return otherwise
    at = _key_at(payload)
    (size,) = _LENGTH.unpack_from(payload, at)
    return None if size == _NO_KEY else payload[at + _LENGTH.size : at + _LENGTH.size + size]


def groups(payload: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Return the hash of the names of segments, and the event's slots; both empty if a payload holds none."""
    if not payload[1] & GROUPED:
        return b"", ()
    at = _groups_at(payload)
    slots = at + _GROUPS
    end = slots + 2 * payload[at]
    return payload[at + 1 : slots], tuple([payload[i] | payload[i + 1] << 8 for i in range(slots, end, 2)])


def marks(payload: bytes) -> bytes:
    """Return the marks that a payload holds; empty if it holds none."""
    if not payload[1] & BANDED:
        return b""
    at = marks_at(payload)
    return payload[at + 1 : at + 1 + payload[at]]


def keyed(key: bytes | None) -> bytes:
    """Return the part of a payload that is `KEYED`: the forecast's Kafka key."""
    return _LENGTH.pack(_NO_KEY) if key is None else _LENGTH.pack(len(key)) + key


def grouped(layout: bytes, groups: tuple[int, ...]) -> bytes:
    """Return the part of a payload that is `GROUPED`: the slots of the event's segments."""
    slots = bytearray()
    for slot in groups:
        slots.append(slot & 255)
        slots.append(slot >> 8)
    return bytes((len(groups),)) + layout + bytes(slots)


def banded(marks: bytes) -> bytes:
    """Return the part of a payload that is `BANDED`: the marks of its forecast."""
    return bytes((len(marks),)) + marks


def shadowed(block: bytes) -> bytes:
    """Return the part of a payload that is `SHADOWED`: what `shadow` made for each challenger."""
    return _LENGTH.pack(len(block)) + block


def _answer(
    kind: int, raw: forecasts.ForecastValue, p: forecasts.ForecastValue, draw: forecasts.ForecastValue
) -> tuple[tuple[float, float, float], bytes]:
    """Return raw, p and draw as they stand in the head, and as they stand behind the names."""
    if kind & ~FLAGS == PROBABILITY:
        return (raw, p, draw), b""  # type: ignore[return-value]  # the kind says that they are floats
    vectors = [forecasts.encode(each) for each in (raw, p, draw)]
    return (NAN, NAN, NAN), _LENGTHS.pack(*map(len, vectors)) + b"".join(vectors)


def names(config: str, calibrator: str, stream: str) -> bytes:
    """Return the part of a payload that says who served: between the head and the ticket."""
    made, named = calibrator.encode(), stream.encode()
    return _NAMES.pack(bytes.fromhex(config), len(made), len(named)) + made + named


def names_end(payload: bytes) -> int:
    """Return where the names end and the ticket begins."""
    return _NAMED + payload[_NAMED - 2] + payload[_NAMED - 1]


_NOBODY: Final = names(NO_CONFIG, "", "")


def issued(
    applied: int,
    ts: int,
    raw: forecasts.ForecastValue,
    p: forecasts.ForecastValue,
    draw: forecasts.ForecastValue,
    version: int,
    who: bytes,
    ticket: bytes,
    kind: int = PROBABILITY,
    status: int = ISSUED,
    warm: bool = False,  # noqa: FBT001, FBT002 - asked for every forecast
    entity: int = 0,
    parts: bytes = b"",
) -> bytes:
    """Return the payload of an answered forecast, `ISSUED` or `IMMATURE`; ``warm`` says whether it is of a warm-up.

    ``who`` is from `names`; ``parts`` are what `keyed`, `grouped`, `banded` and `shadowed` return, in this order, by
    the flags of ``kind``.
    """
    if kind & ~FLAGS != PROBABILITY:
        (raw, p, draw), vectors = _answer(kind, raw, p, draw)
        ticket = vectors + ticket
    window = NO_WINDOW if warm else 0
    head = HEAD.pack(status, kind, applied, applied, ts, 0, NAN, raw, p, draw, version, 0, 0, window, entity)
    return head + who + parts + ticket


def repeats(payload: bytes, stream: str, raw: forecasts.ForecastValue) -> bool:
    """Whether a forecast says again what a payload was answered for: the same stream and the same raw forecast."""
    end = names_end(payload)
    if payload[end - payload[HEAD.size + _NAMES.size - 1] : end] != stream.encode():
        return False
    if payload[1] & ~FLAGS == PROBABILITY:
        return bool(HEAD.unpack_from(payload)[7] == raw)
    return bool(answer(payload)[0] == raw)


def issued_ts(payload: bytes) -> int:
    """Return the event time of a payload's forecast, ms."""
    return int(_ISSUED_TS.unpack_from(payload, 18)[0])


def born(payload: bytes) -> int:
    """Return the count of applied records at which a payload's row entered its queue."""
    return int(_BORN.unpack_from(payload, 2)[0])


def entity(payload: bytes) -> int:
    """Return the number of the entity that a payload's forecast is about; 0 without one."""
    return int(_ENTITY.unpack_from(payload, _LEARNT.size)[0])


def label(payload: bytes) -> float:
    """Return the label in force of a payload; NaN while there is none."""
    return float(HEAD.unpack_from(payload)[6])


def said(payload: bytes) -> tuple[float, int, int, int]:
    """Return label, its time, and the time and number of the outcome it is from, as `labelled` takes them."""
    head = HEAD.unpack_from(payload)
    return head[6], head[5], head[11], head[12]


def who(payload: bytes) -> bytes:
    """Return the part of a payload that says who served: see `names`."""
    return payload[HEAD.size : names_end(payload)]


def unsaid(payload: bytes) -> bool:
    """Whether silence implied the label of a payload, and no outcome has come since."""
    return bool(HEAD.unpack_from(payload)[11] == UNSAID)


def labelled(payload: bytes, status: int, applied: int, y: float, ts: int, as_of: int, number: int) -> bytes:
    """Return a payload with another status and label; ``ts`` is the label's time. See `Entry` for the others."""
    head = HEAD.unpack_from(payload)
    made = HEAD.pack(status, *head[1:3], applied, head[4], ts, y, *head[7:11], as_of, number, *head[13:])
    return made + payload[HEAD.size :]


def answered(payload: bytes) -> tuple[int, int, Any, Any, Any, int, int, int, bytes, int]:
    """Return kind with its flags, issued_ts, raw, p, draw, version, window, entity, `who`, and where the names end.

    Raw, p and draw are NaN of a forecast that is no probability; with a flag the ticket begins behind the names' end:
    see `answer`.
    """
    _, kind, _, _, issued_ts, _, _, raw, p, draw, version, _, _, window, entity = HEAD.unpack_from(payload)
    end = _NAMED + payload[_NAMED - 2] + payload[_NAMED - 1]  # `names_end`, without its call
    return kind, issued_ts, raw, p, draw, version, window, entity, payload[HEAD.size : end], end


def resolved(payload: bytes, applied: int, y: float, ts: int, as_of: int, number: int, window: int) -> bytes:
    """Return the payload of an event that is learnt with this label; see `Entry` for each of its parts."""
    born, issued_ts, served = payload[2:10], payload[18:26], payload[42:74]
    return (
        _LEARNT.pack(RESOLVED, payload[1], born, applied, issued_ts, ts, y, served, as_of, number, window)
        + payload[_LEARNT.size :]
    )


def ripe(payload: bytes, applied: int) -> bytes:
    """Return the payload of a forecast that has matured without an outcome: from now on it learns when one comes."""
    head = HEAD.unpack_from(payload)
    return HEAD.pack(ISSUED, *head[1:3], applied, *head[4:]) + payload[HEAD.size :]


def confirmed(payload: bytes, as_of: int, number: int) -> bytes:
    """Return a payload whose label a later outcome has said again."""
    head = HEAD.unpack_from(payload)
    return HEAD.pack(*head[:11], as_of, number, *head[13:]) + payload[HEAD.size :]


def revised(payload: bytes, applied: int, ts: int, y: float, number: int) -> bytes:
    """Return the payload of a resolved event with another label."""
    head = HEAD.unpack_from(payload)
    at = names_end(payload)
    made = HEAD.pack(head[0], head[1] | REVISED, head[2], applied, head[4], ts, y, *head[7:11], ts, number, *head[13:])
    return made + payload[HEAD.size : at] + bytes((revisions(payload) + 1,)) + payload[_key_at(payload) :]


def newer(payload: bytes, ts: int, number: int) -> bool:
    """Whether an outcome of this time and revision number counts more than the one a payload's label is from.

    A higher number does. Without numbers the later time does, and of equal times the one that came last.
    """
    *_, as_of, before, _, _ = HEAD.unpack_from(payload)
    return bool(number > before or (number == before == 0 and ts >= as_of))


def shadow(
    config: bytes,
    version: int,
    p: forecasts.ForecastValue,
    draw: forecasts.ForecastValue,
    ticket: bytes,
    warm: bool,  # noqa: FBT001 - as the fields of `Shadow`
) -> bytes:
    """Return one challenger's part of the block: see `Shadow`."""
    if not isinstance(p, float):
        vector = forecasts.encode(p)
        ticket, p, draw = _LENGTH.pack(len(vector)) + vector + ticket, NAN, NAN
    return _SHADOW.pack(config, version, p, draw, warm, len(ticket)) + ticket


def early(applied: int, y: float, ts: int, number: int = 0) -> bytes:
    """Return the payload of an outcome whose forecast has not come: parked, with nothing served."""
    return HEAD.pack(EARLY, PROBABILITY, applied, applied, 0, ts, y, NAN, NAN, NAN, 0, ts, number, 0, 0) + _NOBODY
