"""The ledger: one row an event, from the first record that names it until its time to live has passed.

``early -> resolved`` when the outcome came first, ``issued -> resolved`` when the forecast did. The row of an issued
event is its ticket: what was served, by which calibrator, and the bytes that calibrator needs to learn from the
outcome. Updates read the ticket and never re-derive what was served from today's state.
"""

from struct import Struct
from typing import NamedTuple

from state.frames import seal, unseal
from state.keys import LEDGER

VERSION = 1
EARLY, ISSUED, RESOLVED = 1, 2, 3

#: status, born, touched, issued_ts, resolved_ts, y, raw, p, expected, version: the fields of `Entry` in order.
HEAD = Struct("<BQQqqddddQ")
_NAMES = Struct("<4sBB")
_KIND = LEDGER[0]
NAN = float("nan")
#: Stands for the configuration while none has served the event.
NO_CONFIG = "00000000"


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
    raw, p, expected
        The model's forecast, the served one, and the mean of the two grid points the served one was drawn from.
    version
        Outcomes the calibrator had learnt when it served.
    config, calibrator, stream
        Hash of the configuration (8 hex digits), name of the calibrator, and the stream; empty while early.
    ticket
        What the calibrator needs to learn from the outcome.
    """

    status: int
    born: int
    touched: int
    issued_ts: int
    resolved_ts: int
    y: float
    raw: float
    p: float
    expected: float
    version: int
    config: str
    calibrator: str
    stream: str
    ticket: bytes

    def encode(self) -> bytes:
        """Return the row: a fixed head of 79 bytes, then calibrator, stream and ticket."""
        return sealed(HEAD.pack(*self[:10]) + names(self.config, self.calibrator, self.stream) + self.ticket)


def decode(frame: bytes) -> Entry:
    """Read a row written by `Entry.encode`.

    Raises
    ------
    CorruptFrame
        If the frame is not an intact ledger row of this version.
    """
    return parse(unsealed(frame))


# The engine works on payloads: it reads the head of a row and leaves the rest as it is, at a third of the cost of
# taking every row apart and putting it together again.


def sealed(payload: bytes) -> bytes:
    """Return the row of a payload."""
    return seal(_KIND, VERSION, payload)


def unsealed(frame: bytes) -> bytes:
    """Return the payload of a row; raises `CorruptFrame` as `decode` does."""
    return unseal(_KIND, VERSION, frame)


def parse(payload: bytes) -> Entry:
    """Return the entry of a payload."""
    status, born, touched, issued_ts, resolved_ts, y, raw, p, expected, version = HEAD.unpack_from(payload)
    config, n_calibrator, n_stream = _NAMES.unpack_from(payload, HEAD.size)
    at = HEAD.size + _NAMES.size
    calibrator = payload[at : at + n_calibrator].decode()
    at += n_calibrator
    stream = payload[at : at + n_stream].decode()
    return Entry(
        status,
        born,
        touched,
        issued_ts,
        resolved_ts,
        y,
        raw,
        p,
        expected,
        version,
        config.hex(),
        calibrator,
        stream,
        payload[at + n_stream :],
    )


def names(config: str, calibrator: str, stream: str) -> bytes:
    """Return the part of a payload that says who served: between the head and the ticket."""
    made, named = calibrator.encode(), stream.encode()
    return _NAMES.pack(bytes.fromhex(config), len(made), len(named)) + made + named


def names_end(payload: bytes) -> int:
    """Return where the names end and the ticket begins."""
    at = HEAD.size + _NAMES.size
    return at + payload[at - 2] + payload[at - 1]


_NOBODY = names(NO_CONFIG, "", "")


def issued(
    applied: int, ts: int, raw: float, p: float, expected: float, version: int, who: bytes, ticket: bytes
) -> bytes:
    """Return the payload of an answered forecast; ``who`` is from `names`."""
    return HEAD.pack(ISSUED, applied, applied, ts, 0, NAN, raw, p, expected, version) + who + ticket


def early(applied: int, y: float, ts: int) -> bytes:
    """Return the payload of an outcome whose forecast has not come: parked, with nothing served."""
    return HEAD.pack(EARLY, applied, applied, 0, ts, y, NAN, NAN, NAN, 0) + _NOBODY
