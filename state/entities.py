"""Decides which outcomes of an entity teach: many forecasts of one account, game or team share one outcome.

Daily scores of one account are not independent facts. At most `MOST` outcomes of an entity teach, of scores far apart.
All others go to ``resolved`` and count nowhere else: in no calibrator, score, window, alarm, interval or comparison.
"""

import math
from collections.abc import Callable
from struct import Struct
from typing import Final

from state.forecasts import QUANTILES
from state.kind import CONFIG, STREAM, Form, KeyPart, Kind, Moves
from state.quick import BYTES, checksum

#: The most outcomes of an entity that teach, and the least distance of their scores in log-odds:
#: docs/explanation/calibrators.md, *What was tried*.
MOST: Final = 3
APART: Final = 2.0
#: The most rows of a stream and configuration, and the most entities in each.
ROWS: Final = 4096
KEPT: Final = 16
#: Bytes of memory of a row with so many entities, its key included.
ROW_BYTES: Final = 450
#: Steps per unit of log-odds in which places are stored.
_STEPS: Final = 8
_Z_CLIP: Final = 13.8
_LIFT: Final = 128
_NEAR: Final = int(_STEPS * APART)
_ENTRY: Final = Struct("<IqB3b")
_SIZE: Final = _ENTRY.size
_MOST_BYTES: Final = _SIZE * KEPT
_LETTER: Final = b"Y"
#: Offsets in an entry: its time, how many outcomes taught, and their places.
_SINCE: Final = 4
_TAUGHT: Final = 12
_PLACES: Final = 13
#: What follows the time of an entry after one outcome, by the outcome's place as stored.
_FIRST: Final = [Struct("<B3b").pack(1, place - _LIFT, 0, 0) for place in range(2 * _LIFT)]
_since_at: Final = Struct("<4xq").unpack_from


def number(entity: bytes) -> int:
    """Return the number of an entity: 32 bits of a hash of its name. It is never 0, which means no entity."""
    return checksum(entity) or 1  # takes an eighth of the time of a cryptographic hash with so few bits


class Entities:
    """Which outcomes of each entity taught lately, on one partition.

    Notes
    -----
    An entity is remembered after its first outcome that taught, for as long as a forecast waits for its outcome:
    forecasts that wait together may share one outcome. After that, its outcomes teach again. Time is stream time.

    The lowest 12 bits of an entity's number select its row, which holds the whole number. A row keeps `KEPT` entities,
    and forgets the oldest first. So a stream remembers 65,536 entities, 1.1 MB. An entity is forgotten early only if so
    many others have taught since that its share is small.

    Bytes of a row, little-endian: of each entity its number (u32), when it first taught (i64, ms), how many outcomes of
    it taught (u8), and the log-odds of their scores, in eighths (i8 each, 0 where there is none).
    """

    def __init__(self, get: Callable[[bytes], bytes | None]) -> None:
        self._get = get
        #: Payloads of the rows that changed since the last checkpoint, by key; and the payloads of that checkpoint.
        self._changed: dict[bytes, bytes] = {}
        self._last: dict[bytes, bytes] = {}

    def teaches(self, stream: str, config: bytes, entity: int, z: float, now: int, memory_ms: int) -> bool:
        """Return whether an outcome of an entity teaches, and remember it if it does.

        ``stream, config``: the calibrator that is taught; the configuration as 4 bytes.
        ``entity``: from `number`.
        ``z``: log-odds of its score, see `place`.
        ``now``: stream time, ms.
        ``memory_ms``: how long an entity is remembered.
        """
        # `Kind.key` takes six times as long.
        key = b"%b%b%b%b" % (_LETTER, config, (entity % ROWS).to_bytes(2, "big"), stream.encode())
        row = self._changed.get(key)
        if row is None:
            row = self._last.get(key)
        if row is None:
            stored = self._get(key)
            row = b"" if stored is None else ENTITIES.open(stored, _whole)
        lifted = int(_STEPS * min(max(z, -_Z_CLIP), _Z_CLIP) + _LIFT + 0.5)  # `round`, without a call
        while row and now - _since(row, 0) > memory_ms:
            row = row[_SIZE:]
        name = entity.to_bytes(4, "little")
        at = _found(row, name) if row else -1
        if at < 0:
            at = len(row)
            while at and _since(row, at - _SIZE) > now:
                at -= _SIZE
            entry = b"%b%b%b" % (name, now.to_bytes(8, "little", signed=True), _FIRST[lifted])
        else:
            n = row[at + _TAUGHT]
            if n == MOST:
                return False
            first, end = at + _PLACES, at + _PLACES + n
            for k in range(first, end):
                if -_NEAR < lifted - (row[k] + _LIFT) % 256 < _NEAR:
                    return False
            place, rest = BYTES[(lifted - _LIFT) % 256], row[end + 1 : at + _SIZE]
            entry = b"%b%b%b%b%b" % (row[at : at + _TAUGHT], BYTES[n + 1], row[first:end], place, rest)
            since = row[at + _SINCE : at + _TAUGHT]
            row = row[:at] + row[at + _SIZE :]
            while row[at + _SINCE : at + _TAUGHT] == since:
                at += _SIZE
        row = b"%b%b%b" % (row[:at], entry, row[at:])
        self._changed[key] = row if len(row) <= _MOST_BYTES else row[-_MOST_BYTES:]
        return True

    @property
    def changed(self) -> int:
        """At most how many bytes of memory the rows take that changed since the last checkpoint."""
        return ROW_BYTES * len(self._changed)

    @property
    def held(self) -> int:
        """At most how many bytes of memory these rows and those of the last checkpoint take."""
        return self.changed + ROW_BYTES * len(self._last)

    def changes(self) -> dict[bytes, bytes]:
        """Return the rows that changed since the last call."""
        self._last, self._changed = self._changed, {}
        return {key: ENTITIES.seal(row) for key, row in self._last.items()}


def place(raw: object, kind: int) -> float:
    """Return the log-odds of a raw forecast: for classes, of the most likely class; for numbers 0."""
    if kind == QUANTILES:
        return 0.0
    p: float = raw if isinstance(raw, float) else max(raw)  # type: ignore[call-overload]  # of classes
    return _Z_CLIP if p >= 1.0 else -_Z_CLIP if p <= 0.0 else math.log(p / (1.0 - p))


def _found(row: bytes, number: bytes) -> int:
    """Return where the entry of an entity begins; -1 if there is none."""
    at = row.find(number)
    while at % _SIZE and at > 0:
        at = row.find(number, at + 1)
    return at


def _since(row: bytes, at: int) -> int:
    """Return the time at which the entity of an entry first taught; ``at`` is where the entry begins."""
    since: int = _since_at(row, at)[0]
    return since


def _whole(payload: bytes) -> bytes:
    """Return a payload; raises ValueError if an entry is cut."""
    if len(payload) % _ENTRY.size:
        raise ValueError(f"entries have {_ENTRY.size} bytes each, got {len(payload)}")
    return payload


ENTITIES: Final = Kind[bytes](
    _LETTER.decode(),
    "what entities taught",
    (STREAM, CONFIG, KeyPart("row", "H")),
    {2: Form(bytes, bytes, _whole)},
    Moves.TAUGHT,
    f"up to {ROWS:,} a stream whose forecasts name entities: what these taught lately",
)
