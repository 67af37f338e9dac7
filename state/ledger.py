"""The ledger: one row an event, from the first record that names it until its time to live has passed.

``early -> resolved`` when the outcome came first, ``issued -> resolved`` when the forecast did. The row of an issued
event is its ticket: what was served, by which calibrator, and the bytes that calibrator needs to learn from the
outcome. Updates read the ticket and never re-derive what was served from today's state.
"""

from struct import Struct
from typing import Final, NamedTuple

from state import forecasts
from state.forecasts import PROBABILITY
from state.frames import DAMAGE, CorruptFrame, checked, damaged, unseal
from state.keys import LEDGER

VERSION: Final = 1
EARLY: Final = 1
ISSUED: Final = 2
RESOLVED: Final = 3

#: status, kind, born, touched, issued_ts, resolved_ts, y, raw, p, draw, version: see `Entry`.
HEAD: Final = Struct("<BBQQqqddddQ")
_NAMES: Final = Struct("<4sBB")
_LENGTHS: Final = Struct("<3H")
#: Set in the kind of a row that ends with an outcome which was parked for the event and is not one it can have.
_UNFIT: Final = 0x80
#: Set in the kind of a row that holds tickets of challengers.
SHADOWED: Final = 0x40
#: All that is not the kind itself.
FLAGS: Final = _UNFIT | SHADOWED
_SHADOW: Final = Struct("<4sQddH")
_BLOCK: Final = Struct("<H")
_PARKED: Final = Struct("<dQ")
_KIND: Final = LEDGER[0]
_FRAME: Final = bytes((_KIND, VERSION))
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
        Its forecast, and the mean of what that was drawn from, in [0, 1].
    ticket
        What it needs to learn from the outcome.
    """

    config: str
    version: int
    p: float
    draw: float
    ticket: bytes

    def encode(self) -> bytes:
        """Return its part of the block of challengers."""
        return shadow(bytes.fromhex(self.config), self.version, self.p, self.draw, self.ticket)


class Entry(NamedTuple):
    """A ledger row.

    Attributes
    ----------
    status
        `EARLY`, `ISSUED` or `RESOLVED`.
    born, touched
        The partition's count of applied records when the row entered its expiry queue, and when it last changed.
    issued_ts, resolved_ts
        Event time of the forecast and of the outcome, ms; 0 while there is none.
    y
        The outcome; NaN while there is none.
    raw, p, draw
        The model's forecast, the served one, and the draw that was served beside it.
    version
        Outcomes the calibrator had learnt when it served; while early, the outcome's offset.
    config, calibrator, stream
        Hash of the configuration (8 hex digits), name of the calibrator, and the stream; empty while early.
    ticket
        What the calibrator needs to learn from the outcome.
    kind
        Of the forecast: `state.forecasts.PROBABILITY` and so on.
    unfit
        Value and offset of an outcome that was parked for the event and is not one it can have; kept, because its dead
        letter may have to be made again.
    shadows
        Tickets of the challengers, in the order of the stream's configuration when the forecast was answered.
    """

    status: int
    born: int
    touched: int
    issued_ts: int
    resolved_ts: int
    y: float
    raw: forecasts.Forecast
    p: forecasts.Forecast
    draw: forecasts.Forecast
    version: int
    config: str
    calibrator: str
    stream: str
    ticket: bytes
    kind: int = PROBABILITY
    unfit: tuple[float, int] | None = None
    shadows: tuple[Shadow, ...] = ()

    def encode(self) -> bytes:
        """Return the row: a head of 80 bytes, then calibrator, stream, vectors, ticket, challengers, what is unfit."""
        numbers, vectors = _answer(self.kind, self.raw, self.p, self.draw)
        kind, last = (self.kind, b"") if self.unfit is None else (self.kind | _UNFIT, _PARKED.pack(*self.unfit))
        if self.shadows:
            block = b"".join(each.encode() for each in self.shadows)
            kind, last = kind | SHADOWED, block + _BLOCK.pack(len(block)) + last
        head = HEAD.pack(self.status, kind, *self[1:6], *numbers, self.version)
        return sealed(head + names(self.config, self.calibrator, self.stream) + vectors + self.ticket + last)


def decode(frame: bytes) -> Entry:
    """Read a row written by `Entry.encode`.

    Raises
    ------
    CorruptFrame
        If the frame is not an intact ledger row of this version.
    """
    payload = unsealed(frame)
    try:
        entry, end = parse(payload), names_end(payload)
    except CorruptFrame:
        raise
    except DAMAGE as exc:
        raise damaged(_KIND, exc) from exc
    if end > len(payload):
        raise CorruptFrame("the names in a ledger row are cut")
    return entry


# The engine works on payloads: it reads the head of a row and leaves the rest as it is, at a third of the cost of
# taking every row apart and putting it together again.


def sealed(payload: bytes) -> bytes:
    """Return the row of a payload."""
    return checked(_FRAME + payload)


def unsealed(frame: bytes) -> bytes:
    """Return the payload of a row; raises `CorruptFrame` as `decode` does."""
    return unseal(_KIND, VERSION, frame)


def parse(payload: bytes) -> Entry:
    """Return the entry of a payload."""
    status, kind, born, touched, issued_ts, resolved_ts, y, raw, p, draw, version = HEAD.unpack_from(payload)
    config, n_calibrator, n_stream = _NAMES.unpack_from(payload, HEAD.size)
    at = HEAD.size + _NAMES.size
    calibrator = payload[at : at + n_calibrator].decode()
    at += n_calibrator
    stream = payload[at : at + n_stream].decode()
    ticket, unfit = payload[at + n_stream :], None
    challengers: tuple[Shadow, ...] = ()
    if kind != PROBABILITY:
        unfit = _PARKED.unpack(payload[-_PARKED.size :]) if kind & _UNFIT else None
        challengers = tuple(shadows(payload)) if kind & SHADOWED else ()
        kind &= ~FLAGS
        raw, p, draw, ticket = answer(payload, at + n_stream)
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
        kind,
        unfit,
        challengers,
    )


def answer(payload: bytes, at: int) -> tuple[forecasts.Forecast, forecasts.Forecast, forecasts.Forecast, bytes]:
    """Return raw, p, draw and the ticket of a payload whose kind is not `PROBABILITY`; its names end at ``at``.

    Raises
    ------
    CorruptFrame
        If the vectors are not intact, or the block of challengers is not.
    """
    kind = payload[1]
    if kind & SHADOWED:
        payload = payload[: _block(payload)[0]]
    elif kind & _UNFIT:
        payload = payload[: -_PARKED.size]
    if kind & ~FLAGS == PROBABILITY:
        *_, raw, p, draw, _ = HEAD.unpack_from(payload)
        return raw, p, draw, payload[at:]
    sizes = _LENGTHS.unpack_from(payload, at)
    at += _LENGTHS.size
    found = []
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
        If their block is not intact.
    """
    at, end = _block(payload)
    found = []
    while at < end:
        config, version, p, draw, size = _SHADOW.unpack_from(payload, at)
        at += _SHADOW.size
        found.append(Shadow(config.hex(), version, p, draw, payload[at : at + size]))
        at += size
    if at != end or not found:
        raise CorruptFrame("the challengers in a ledger row are cut")
    return found


def _block(payload: bytes) -> tuple[int, int]:
    """Return where the challengers of a payload begin and end; their length stands behind them."""
    end = len(payload) - _BLOCK.size - (_PARKED.size if payload[1] & _UNFIT else 0)
    at: int = end - _BLOCK.unpack_from(payload, end)[0]
    if at < names_end(payload):
        raise CorruptFrame("the challengers of a ledger row are longer than the row")
    return at, end


def _answer(
    kind: int, raw: forecasts.Forecast, p: forecasts.Forecast, draw: forecasts.Forecast
) -> tuple[tuple[float, float, float], bytes]:
    """Return raw, p and draw as they stand in the head, and as they stand behind the names."""
    if kind == PROBABILITY:
        return (raw, p, draw), b""  # type: ignore[return-value]  # the kind says that they are floats
    vectors = [forecasts.encode(each) for each in (raw, p, draw)]
    return (NAN, NAN, NAN), _LENGTHS.pack(*map(len, vectors)) + b"".join(vectors)


def names(config: str, calibrator: str, stream: str) -> bytes:
    """Return the part of a payload that says who served: between the head and the ticket."""
    made, named = calibrator.encode(), stream.encode()
    return _NAMES.pack(bytes.fromhex(config), len(made), len(named)) + made + named


def names_end(payload: bytes) -> int:
    """Return where the names end and the ticket begins."""
    at = HEAD.size + _NAMES.size
    return at + payload[at - 2] + payload[at - 1]


_NOBODY: Final = names(NO_CONFIG, "", "")


def issued(
    applied: int,
    ts: int,
    raw: forecasts.Forecast,
    p: forecasts.Forecast,
    draw: forecasts.Forecast,
    version: int,
    who: bytes,
    ticket: bytes,
    kind: int = PROBABILITY,
) -> bytes:
    """Return the payload of an answered forecast; ``who`` is from `names`."""
    if kind != PROBABILITY:
        (raw, p, draw), vectors = _answer(kind, raw, p, draw)
        ticket = vectors + ticket
    return HEAD.pack(ISSUED, kind, applied, applied, ts, 0, NAN, raw, p, draw, version) + who + ticket


def shadow(config: bytes, version: int, p: float, draw: float, ticket: bytes) -> bytes:
    """Return one challenger's part of the block: see `Shadow`."""
    return _SHADOW.pack(config, version, p, draw, len(ticket)) + ticket


def with_shadows(issued: bytes, block: bytes) -> bytes:
    """Return the payload of an answered forecast with what `shadow` made for each challenger."""
    return issued[:1] + bytes((issued[1] | SHADOWED,)) + issued[2:] + block + _BLOCK.pack(len(block))


def early(applied: int, y: float, ts: int, offset: int) -> bytes:
    """Return the payload of an outcome whose forecast has not come: parked, with nothing served."""
    return HEAD.pack(EARLY, PROBABILITY, applied, applied, 0, ts, y, NAN, NAN, NAN, offset) + _NOBODY


def with_unfit(issued: bytes, y: float, offset: int) -> bytes:
    """Return the payload of an answered forecast with the outcome that was parked for it and that it cannot have."""
    return issued[:1] + bytes((issued[1] | _UNFIT,)) + issued[2:] + _PARKED.pack(y, offset)
