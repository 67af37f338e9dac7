"""Decides which outcomes of an entity teach: many forecasts of one account, game or team share one outcome.

Daily scores of one account are not independent facts. At most `MOST` outcomes of an entity teach, of scores far apart.
All others go to ``resolved`` and count nowhere else: in no calibrator, score, window, alarm, interval or comparison.
"""

import math
from collections.abc import Callable
from struct import Struct
from typing import Final
from zlib import crc32

from state.forecasts import QUANTILES
from state.frames import seal
from state.kind import CONFIG, STREAM, Form, KeyPart, Kind, Moves

#: Most outcomes of an entity that teach, and the least distance of their scores in log-odds:
#: docs/explanation/calibrators.md, *What was tried*.
MOST: Final = 3
APART: Final = 2.0
#: Most rows of a stream and configuration, and most entities in each.
ROWS: Final = 4096
KEPT: Final = 16
#: Steps per unit of log-odds that are kept.
_STEPS: Final = 8
_Z_CLIP: Final = 13.8
_LIFT: Final = 128
_ENTRY: Final = Struct("<IqB3b")
_MOST_BYTES: Final = 16 * KEPT
_NUMBER: Final = Struct("<I")
_SLOT: Final = Struct(">H")
_SINCE: Final = Struct("<4xq")


def number(entity: str) -> int:
    """Return the number of an entity: 32 bits of a hash. It is never 0, which means no entity."""
    return crc32(entity.encode()) or 1  # an eighth of the time of a cryptographic hash of so few bits


class Entities:
    """Which outcomes of each entity taught lately, on one partition.

    Notes
    -----
    An entity is remembered after its first outcome that taught, for as long as a forecast waits for its outcome:
    forecasts that wait together may share one outcome. Then it teaches anew. Time is stream time.

    The lowest 12 bits of an entity's number select its row, which holds the whole number. A row keeps `KEPT` entities,
    and forgets the oldest first. So a stream remembers 65,536 entities, 1.1 MB. If an entity is forgotten early, so
    many others have taught since that its share is small.

    Bytes of a row, little-endian: of each entity its number (u32), when it first taught (i64, ms), how many outcomes of
    it taught (u8), and the log-odds of their scores, in eighths (i8 each, 0 where there is none).
    """

    def __init__(self, get: Callable[[bytes], bytes | None]) -> None:
        self._get = get
        #: Rows that changed since the last checkpoint, by stream and configuration.
        self._changed: dict[tuple[str, str], _Rows] = {}

    def teaches(self, stream: str, config: str, entity: int, z: float, now: int, memory_ms: int) -> bool:
        """Return whether an outcome of an entity teaches, and remember it if it does.

        ``stream, config``: the calibrator that is taught.
        ``entity``: from `number`.
        ``z``: log-odds of its score, see `place`.
        ``now``: stream time, ms.
        ``memory_ms``: how long an entity is remembered.
        """
        rows = self._changed.get((stream, config))
        if rows is None:
            rows = self._changed[stream, config] = _Rows(stream, config)
        slot = entity % ROWS
        row = rows.payloads.get(slot)
        if row is None:
            stored = self._get(rows.key(slot))
            row = b"" if stored is None else ENTITIES.open(stored, _whole)
        place = int(_STEPS * min(max(z, -_Z_CLIP), _Z_CLIP) + _LIFT + 0.5) - _LIFT  # `round`, without a call
        if row.find(_NUMBER.pack(entity)) < 0 and (not row or _since(row, len(row) - _ENTRY.size) <= now):
            while row and now - _since(row, 0) > memory_ms:
                row = row[_ENTRY.size :]
            row += _ENTRY.pack(entity, now, 1, place, 0, 0)
        else:
            kept = [each for each in _decode(row) if now - each[1] <= memory_ms]
            since, places = now, [place]
            for n, (other, began, taught) in enumerate(kept):
                if other == entity:
                    if len(taught) == MOST or min([abs(place - each) for each in taught]) < _STEPS * APART:
                        return False
                    since, places = began, [*taught, place]
                    del kept[n]
                    break
            kept.append((entity, since, places))
            kept.sort(key=_began)
            row = _encode(kept)
        rows.payloads[slot] = row if len(row) <= _MOST_BYTES else row[-_MOST_BYTES:]
        return True

    def changes(self) -> dict[bytes, bytes]:
        """Return the rows that changed since the last call."""
        changed, self._changed = self._changed, {}
        letter, version = ENTITIES.letter[0], ENTITIES.version
        return {
            rows.key(slot): seal(letter, version, row)
            for rows in changed.values()
            for slot, row in rows.payloads.items()
        }


class _Rows:
    """Payloads of the rows of one stream and configuration, by the rows' numbers, and the keys of these rows."""

    def __init__(self, stream: str, config: str) -> None:
        self.payloads: dict[int, bytes] = {}
        # A key is built for every row of a checkpoint; only the row's number differs.
        key = ENTITIES.key(stream, config, 0)
        end = len(key) - len(stream.encode())
        self._before: bytes = key[: end - _SLOT.size]
        self._after: bytes = key[end:]

    def key(self, slot: int) -> bytes:
        """Return the key of a row."""
        return self._before + _SLOT.pack(slot) + self._after


def place(raw: object, kind: int) -> float:
    """Return the log-odds of a raw forecast; of classes those of the likeliest, of numbers 0."""
    if kind == QUANTILES:
        return 0.0
    p: float = raw if isinstance(raw, float) else max(raw)  # type: ignore[call-overload]  # of classes
    return _Z_CLIP if p >= 1.0 else -_Z_CLIP if p <= 0.0 else math.log(p / (1.0 - p))


_Known = tuple[int, int, list[int]]


def _began(known: _Known) -> int:
    return known[1]


def _since(row: bytes, at: int) -> int:
    """Return when the entity of the entry at a place first taught."""
    since: int = _SINCE.unpack_from(row, at)[0]
    return since


def _whole(payload: bytes) -> bytes:
    """Return a payload; raises ValueError if an entry is cut."""
    if len(payload) % _ENTRY.size:
        raise ValueError(f"entries have {_ENTRY.size} bytes each, got {len(payload)}")
    return payload


def _encode(known: list[_Known]) -> bytes:
    made = [_ENTRY.pack(entity, since, len(places), *(places + [0] * MOST)[:MOST]) for entity, since, places in known]
    return b"".join(made)


def _decode(payload: bytes) -> list[_Known]:
    return [(entity, since, list(places[:n])) for entity, since, n, *places in _ENTRY.iter_unpack(payload)]


ENTITIES: Final = Kind[list[_Known]](
    "Y",
    "what entities taught",
    (STREAM, CONFIG, KeyPart("row", "H")),
    {2: Form(list, _encode, _decode)},
    Moves.TAUGHT,
    f"up to {ROWS:,} a stream whose forecasts name entities: what these taught lately",
)
