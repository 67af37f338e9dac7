"""Quotas: how much a stream may send, so that one that floods starves nobody.

A rate is a token bucket: it holds as many tokens as the rate allows in its unit of time, is full at first, and fills
evenly. Buckets stand by stream and input topic. Streams that no pattern of the configuration names share one quota, and
so do records whose stream is not known.

What is refused must be the same in every run: in a worker, after a crash, in a replay and in an audit. So buckets fill
by event time, and what becomes of a record depends on the records of its own topic that stand before it, and on whether
its event is known. How the two topics were interleaved does not matter: an audit knows that of answered forecasts only.
The time of a topic is the latest event time that any stream has brought. One record moves it by `SLACK` at most, so one
clock that runs ahead stops no bucket for long, and names that were made up cannot claim years of tokens. Dead letters
have a time of their own, because records that cannot be read have no event time but that of Kafka.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from state.kind import PLAIN, STREAM, Kind, Moves
from state.witnesses import SEVERAL, SLACK

#: The limits of a quota, in stored order: each stands twice, for forecasts and for outcomes.
RECORDS: Final = 0
IDS: Final = 2
LETTERS: Final = 4
#: The times that are kept: of forecasts, of outcomes, of the dead letters of each.
TIMES: Final = 4
OF_LETTERS: Final = 2
#: Why a record is refused: dead letters have these reasons.
REFUSED: Final = "quota"
REFUSED_ID: Final = "quota_ids"
#: Dead letters that are always whole: their value says what stands nowhere else under their offset.
WHOLE: Final = frozenset(("batch", "skipped", "parked_label"))

#: What one record takes. A rate's tokens are counted in such parts that a millisecond adds a whole number of them.
_TOKEN: Final = 86_400_000
#: Level of a bucket that has no rate: full, whatever the rate will be.
_FULL: Final = -1
#: Buckets kept between batches; beyond this they are read again from the table.
_CACHED: Final = 4000
_BUCKETS: Final = Struct("<4q6q")
_CLOCKS: Final = Struct("<4q4B")
#: Stands for a stream in the key of the buckets that streams share which no pattern names.
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
    """So many in a unit of time: 1,000, 60,000, 3,600,000 or 86,400,000 ms."""

    count: int
    unit_ms: int


@dataclass(frozen=True)
class Quota:
    """What may come, in each partition of each input topic; None: any number.

    Attributes
    ----------
    records
        Forecasts, and outcomes of events that have a label. The first outcome of a forecast is never refused.
    ids
        Forecasts of event ids that were not answered yet, each of which makes a row; and outcomes of unknown events.
    dead_letters
        Dead letters that hold their record. Those beyond the rate say where it stands, and no more.
    """

    records: Rate | None = None
    ids: Rate | None = None
    dead_letters: Rate | None = None


#: Reads a stored row by key; None where there is none.
Get = Callable[[bytes], bytes | None]
#: Returns whose quota a stream is under, and the quota; None if it has none. Streams that share one have the name "".
QuotaOf = Callable[[str], tuple[str, Quota] | None]


class Buckets:
    """The buckets of one stream, or of those that share a quota.

    Parameters
    ----------
    quota
        How fast they fill and what they hold.
    row
        As `encode` returned it, perhaps under another quota; None: all are full.

    Raises
    ------
    CorruptFrame
        If the row is not intact.
    """

    def __init__(self, quota: Quota, row: bytes | None = None) -> None:
        rates = [rate for rate in (quota.records, quota.ids, quota.dead_letters) for _ in range(2)]
        #: By limit and topic; what has no rate holds and gains nothing, and is not asked.
        self.limited = [rate is not None for rate in rates]
        self._most = [0 if rate is None else rate.count * _TOKEN for rate in rates]
        self._gains = [0 if rate is None else rate.count * (_TOKEN // rate.unit_ms) for rate in rates]
        self._levels = list(self._most)
        #: When the buckets of each of the `TIMES` were filled last, ms.
        self._filled = [0] * TIMES
        if row is not None:
            self._decode(row)

    def fill(self, which: int, now: int) -> None:
        """Let time pass up to ``now``, ms, in the buckets of one of the `TIMES`."""
        was = self._filled[which]
        self._filled[which] = now
        passed = now - was
        if not was or passed <= 0:  # it is full at first; and of the first records the time was taken back
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
        """Whether there is a token, or no rate; ``at`` is a limit plus the topic."""
        return not self.limited[at] or self._levels[at] >= _TOKEN

    def take(self, at: int) -> None:
        """Take one, if there is a rate."""
        if self.limited[at]:
            self._levels[at] -= _TOKEN

    def encode(self) -> bytes:
        """Return the row: when they were filled, by the `TIMES`, and how full they are, by limit and topic."""
        levels = [level if limited else _FULL for level, limited in zip(self._levels, self.limited, strict=True)]
        return QUOTA.seal(_BUCKETS.pack(*self._filled, *levels))

    def _decode(self, row: bytes) -> None:
        numbers = QUOTA.open(row, _BUCKETS.unpack)
        self._filled = list(numbers[:TIMES])
        for at, level in enumerate(numbers[TIMES:]):
            most = self._most[at]
            self._levels[at] = most if level == _FULL or level > most else level


class Clocks:
    """How late it is, by each of the `TIMES`.

    Parameters
    ----------
    row
        As `encode` returned it; None at first.

    Raises
    ------
    CorruptFrame
        If the row is not intact.
    """

    def __init__(self, row: bytes | None = None) -> None:
        #: The time, ms, 0 at first; and how many records came, up to `SEVERAL`.
        self.now = [0] * TIMES
        self._seen = [0] * TIMES
        if row is not None:
            self._decode(row)

    def move(self, which: int, ts: int) -> bool:
        """Move a time by a record's, ms; return whether anything changed.

        It rises by `SLACK` at most. The first records may be far ahead: until `SEVERAL` have come, it falls to
        one that is far behind.
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

    Parameters
    ----------
    quota_of
        Says what each stream is allowed.
    get
        Reads a stored row by key; None where there is none.
    """

    def __init__(self, quota_of: QuotaOf, get: Get) -> None:
        self._quota_of = quota_of
        self._get = get
        self._clocks = Clocks(get(QUOTA.key()))
        self._moved = False
        #: By stream, with the key of their row; None where it has no quota. Streams that share one share the buckets.
        self._known: dict[str, tuple[bytes, Buckets] | None] = {}
        #: By the key of their row: all that were read, and those that changed.
        self._read: dict[bytes, Buckets] = {}
        self._changed: dict[bytes, Buckets] = {}

    def move(self, which: int, ts: int) -> None:
        """Let a record move one of the `TIMES`, whatever becomes of it."""
        if self._clocks.move(which, ts):
            self._moved = True

    def refused(self, topic: int, stream: str, ts: int, new: bool) -> str:  # noqa: FBT001 - once an event
        """Take a record, and return why it is refused; empty if it is not. One that is refused takes nothing.

        Parameters
        ----------
        topic
            `state.fence.FORECASTS` or `state.fence.OUTCOMES`.
        stream
            Empty for an outcome whose event is not known.
        ts
            Event time of the record, ms.
        new
            Whether a row is to be made, or to be turned from an outcome's into a forecast's.
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
        """Take a dead letter, and return whether it is to say no more than where its record stands; see `refused`."""
        self.move(OF_LETTERS + topic, ts)
        found = None if reason in WHOLE else self._filled(OF_LETTERS + topic, stream)
        if found is None:
            return False
        if not found.has(LETTERS + topic):
            return True
        found.take(LETTERS + topic)
        return False

    def changes(self) -> dict[bytes, bytes | None]:
        """Return the rows to write since the last call."""
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
        """Return the buckets of a stream, full by one of the `TIMES` and about to change; None if it has no quota."""
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
