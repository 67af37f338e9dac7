"""Quotas: how much a stream may send, so that a flood in one stream does not starve the others.

A rate is a token bucket. It holds as many tokens as the rate allows in its unit of time, starts full, and fills evenly.
There is a bucket for each stream and input topic. Streams that match no pattern share one quota, together with records
of unknown streams.

Refusals must be the same in every run: worker, recovery, replay and audit. So buckets fill by event time, and a refusal
depends only on earlier records of the same topic and on whether the event is known. It does not depend on how the two
topics interleave: an audit knows that only for answered forecasts.

The time of a topic is the latest event time of any stream. One record moves it by at most `SLACK`. So one clock that
runs ahead does not stop buckets for long, and made-up stream names do not get years of tokens. Dead letters have times
of their own, because unreadable records have only Kafka's time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from state.kind import PLAIN, STREAM, Kind, Moves
from state.witnesses import SEVERAL, SLACK

#: The limits of a quota, in stored order: first for forecasts, then for outcomes.
RECORDS: Final = 0
IDS: Final = 2
LETTERS: Final = 4
#: The times: of forecasts, of outcomes, and of the dead letters of each.
TIMES: Final = 4
OF_LETTERS: Final = 2
#: Reasons of dead letters that a quota refused.
REFUSED: Final = "quota"
REFUSED_ID: Final = "quota_ids"
#: Dead letters that are never withheld: their value is stored nowhere else.
WHOLE: Final = frozenset(("batch", "skipped", "parked_label"))

#: Units of one token. With these, a rate adds a whole number of units each millisecond.
_TOKEN: Final = 86_400_000
#: Level of a bucket without a rate: full, under any later rate.
_FULL: Final = -1
#: Most cached buckets; others are read again from the table.
_CACHED: Final = 4000
_BUCKETS: Final = Struct("<4q6q")
_CLOCKS: Final = Struct("<4q4B")
#: Stands for the stream in the key of the shared buckets.
SHARED: Final = "\0"
QUOTA: Final = Kind[bytes](
    "B",
    "the quota",
    (STREAM,),
    {1: PLAIN},
    Moves.LEFT,
    "one a stream that has a quota: what it may still send; a byte 0 instead of a stream for those that share one; "
    "without a stream one a partition with quotas: how late it is in each topic",
)


@dataclass(frozen=True)
class Rate:
    """A number of records in a unit of time: 1,000, 60,000, 3,600,000 or 86,400,000 ms."""

    count: int
    unit_ms: int


@dataclass(frozen=True)
class Quota:
    """Limits for each partition of each input topic; None: no limit."""

    #: Forecasts, and outcomes of events that have a label. The first outcome of a forecast is never refused.
    records: Rate | None = None
    #: Forecasts of new event ids, each of which makes a row; and outcomes of unknown events.
    ids: Rate | None = None
    #: Dead letters that hold their record. Beyond the rate, they give only the record's place.
    dead_letters: Rate | None = None


#: Reads a stored row by key; None where there is none.
Get = Callable[[bytes], bytes | None]
#: Returns the owner of the quota that limits a stream, and the quota; None without one. The shared owner is "".
QuotaOf = Callable[[str], tuple[str, Quota] | None]


class Buckets:
    """The buckets of one stream, or of those that share a quota.

    Raises CorruptFrame if the row is not intact.

    ``quota``: rates of the buckets.
    ``row``: as `encode` returned it, perhaps under another quota; None: all are full.
    """

    def __init__(self, quota: Quota, row: bytes | None = None) -> None:
        rates = [rate for rate in (quota.records, quota.ids, quota.dead_letters) for _ in range(2)]
        #: Whether each bucket has a rate, by limit plus topic. One without is never asked.
        self.limited = [rate is not None for rate in rates]
        self._most = [0 if rate is None else rate.count * _TOKEN for rate in rates]
        self._gains = [0 if rate is None else rate.count * (_TOKEN // rate.unit_ms) for rate in rates]
        self._levels = list(self._most)
        #: Time of the last fill, by the `TIMES`, ms.
        self._filled = [0] * TIMES
        if row is not None:
            self._decode(row)

    def fill(self, which: int, now: int) -> None:
        """Fill the buckets of one of the `TIMES` up to ``now``, ms."""
        was = self._filled[which]
        self._filled[which] = now
        passed = now - was
        if not was or passed <= 0:  # buckets start full; a time may also move back, see `Clocks.move`
            return
        if which < OF_LETTERS:
            self._gain(RECORDS + which, passed)
            self._gain(IDS + which, passed)
        else:
            self._gain(LETTERS + which - OF_LETTERS, passed)

    def _gain(self, at: int, passed: int) -> None:
        level, most = self._levels[at] + passed * self._gains[at], self._most[at]
        self._levels[at] = min(level, most)

    def has(self, at: int) -> bool:
        """Whether a bucket has a token, or no rate; ``at`` is its limit plus the topic."""
        return not self.limited[at] or self._levels[at] >= _TOKEN

    def take(self, at: int) -> None:
        """Take a token, if there is a rate."""
        if self.limited[at]:
            self._levels[at] -= _TOKEN

    def encode(self) -> bytes:
        """Return the row: the last fills by the `TIMES`, and the levels by limit and topic."""
        levels = [level if limited else _FULL for level, limited in zip(self._levels, self.limited, strict=True)]
        return QUOTA.seal(_BUCKETS.pack(*self._filled, *levels))

    def _decode(self, row: bytes) -> None:
        numbers = QUOTA.open(row, _BUCKETS.unpack)
        self._filled = list(numbers[:TIMES])
        for at, level in enumerate(numbers[TIMES:]):
            most = self._most[at]
            self._levels[at] = most if level == _FULL or level > most else level


class Clocks:
    """The present time, for each of the `TIMES`.

    Raises CorruptFrame if the row is not intact.

    ``row``: as `encode` returned it; None at first.
    """

    def __init__(self, row: bytes | None = None) -> None:
        #: The times, ms, 0 at first; and the number of records, up to `SEVERAL`.
        self.now = [0] * TIMES
        self._seen = [0] * TIMES
        if row is not None:
            self._decode(row)

    def move(self, which: int, ts: int) -> bool:
        """Move a time towards a record's, ms; return whether anything changed.

        It rises by at most `SLACK`. The first records may be far ahead, so until `SEVERAL` have come, it also falls to
        a record far behind.
        """
        now, seen = self.now[which], self._seen[which]
        if seen < SEVERAL:
            self._seen[which] = seen + 1
            if not seen or now - ts > SLACK:
                self.now[which] = ts
                return True
        if ts > now:
            self.now[which] = min(ts, now + SLACK)
        return ts > now or seen < SEVERAL

    def encode(self) -> bytes:
        """Return the row: the times, and how many records came."""
        return QUOTA.seal(_CLOCKS.pack(*self.now, *self._seen))

    def _decode(self, row: bytes) -> None:
        numbers = QUOTA.open(row, _CLOCKS.unpack)
        self.now = list(numbers[:TIMES])
        self._seen = list(numbers[TIMES:])


class Quotas:
    """The quotas of one partition, as a working copy.

    ``quota_of``: says what each stream is allowed.
    """

    def __init__(self, quota_of: QuotaOf, get: Get) -> None:
        self._quota_of = quota_of
        self._get = get
        self._clocks = Clocks(get(QUOTA.key()))
        self._moved = False
        #: Row key and buckets by stream; None without a quota. Streams that share a quota share the buckets.
        self._known: dict[str, tuple[bytes, Buckets] | None] = {}
        #: All buckets that were read, and the changed ones, by row key.
        self._read: dict[bytes, Buckets] = {}
        self._changed: dict[bytes, Buckets] = {}

    def move(self, which: int, ts: int) -> None:
        """Move one of the `TIMES` by a record, also by one that will be refused."""
        if self._clocks.move(which, ts):
            self._moved = True

    def refused(self, topic: int, stream: str, ts: int, new: bool) -> str:  # noqa: FBT001 - once an event
        """Return why a record is refused, or take its tokens and return empty text. A refused record takes none.

        ``topic``: `state.fence.FORECASTS` or `state.fence.OUTCOMES`.
        ``stream``: empty for an outcome whose event is not known.
        ``ts``: event time of the record, ms.
        ``new``: whether it makes a row, or turns an outcome's row into a forecast's.
        """
        self.move(topic, ts)
        found = self._filled(topic, stream)
        if found is None:
            return ""
        if not found.has(RECORDS + topic):
            return REFUSED
        if new:
            if not found.has(IDS + topic):
                return REFUSED_ID
            found.take(IDS + topic)
        found.take(RECORDS + topic)
        return ""

    def withheld(self, topic: int, stream: str, ts: int, reason: str) -> bool:
        """Take the tokens of a dead letter; return whether it may give only its record's place; see `refused`."""
        self.move(OF_LETTERS + topic, ts)
        found = None if reason in WHOLE else self._filled(OF_LETTERS + topic, stream)
        if found is None:
            return False
        if not found.has(LETTERS + topic):
            return True
        found.take(LETTERS + topic)
        return False

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the rows that changed since the last call."""
        rows: dict[bytes, bytes | None] = {key: found.encode() for key, found in self._changed.items()}
        if self._moved:
            rows[QUOTA.key()] = self._clocks.encode()
        self._moved = False
        self._changed.clear()
        if len(self._known) > _CACHED:
            self._known.clear()
            self._read.clear()
        return rows

    def _filled(self, which: int, stream: str) -> Buckets | None:
        """Return a stream's buckets, filled by one of the `TIMES`, to be changed; None without a quota."""
        if stream not in self._known:
            self._known[stream] = self._open(stream)
        known = self._known[stream]
        if known is None:
            return None
        key, found = known
        found.fill(which, self._clocks.now[which])
        self._changed[key] = found
        return found

    def _open(self, stream: str) -> tuple[bytes, Buckets] | None:
        under = self._quota_of(stream)
        if under is None:
            return None
        name, quota = under
        key = QUOTA.key(name or SHARED)
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = Buckets(quota, self._get(key))
        return key, found
