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

_HEAD = Struct("<BQQqqddddQ4sBB")
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
        calibrator = self.calibrator.encode()
        stream = self.stream.encode()
        head = _HEAD.pack(*self[:10], bytes.fromhex(self.config), len(calibrator), len(stream))
        return seal(_KIND, VERSION, head + calibrator + stream + self.ticket)


def early(born: int, y: float, ts: int) -> Entry:
    """Return the row of an outcome whose forecast has not come: parked, with nothing served."""
    return Entry(EARLY, born, born, 0, ts, y, NAN, NAN, NAN, 0, NO_CONFIG, "", "", b"")


def decode(frame: bytes) -> Entry:
    """Read a row written by `Entry.encode`.

    Raises
    ------
    CorruptFrame
        If the frame is not an intact ledger row of this version.
    """
    payload = unseal(_KIND, VERSION, frame)
    (status, born, touched, issued_ts, resolved_ts, y, raw, p, expected, version, config, n_calibrator, n_stream) = (
        _HEAD.unpack_from(payload)
    )
    at = _HEAD.size
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
