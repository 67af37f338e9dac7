"""The journal: what was folded since the last checkpoint, and in which order.

A worker does not write the rows that a batch changed. It writes an entry that says which records the batch had and how
those of the two topics alternated. The acknowledgement of the entry is the commit point: whoever takes the partition up
next folds the same records in the same order, from the rows of the last checkpoint, and so has the same state and the
same answers. A checkpoint writes all rows that changed, and the entries before it are not needed any more.

Entries are rows of the changelog: they have the same single writer, and are restored with the other rows. Their keys
are those of a ring, so that new entries take the place of old ones and compaction removes these.

Before a checkpoint is written, the order of all that it has goes to a topic of its own, which is not compacted: an
audit folds a partition's history along it. After a crash a checkpoint may end elsewhere than the one that was begun
before. So what that topic says may overlap, and always agrees.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from state.kind import PLAIN, Kind, Moves

#: Keys of the ring. A checkpoint is made long before so many entries were written since the one before it.
SLOTS: Final = 1 << 12
_ENTRY: Final = Struct("<QQQQQQQQQQ16sqIqIqI")
_HEAD: Final = Struct("<QQQQqIqI")
_SLOT: Final = Struct(">H")


class Last(NamedTuple):
    """The last record of a topic in an entry: its Kafka timestamp, ms, and the CRC-32 of its value.

    Offsets are given to other records where a topic is cut and goes on. By this the reader notices.
    """

    timestamp: int
    crc: int


#: What stands in the place of `Last` where an entry has no record of a topic.
NONE: Final = Last(-1, 0)


class Entry(NamedTuple):
    """A batch; in the topic of the journal all batches from one checkpoint to the next.

    Attributes
    ----------
    number
        Of the entry: one more than of the entry before, over all of a partition's life. Of a checkpoint that of the
        first entry after it.
    begins, ends
        Next offset of forecasts and of outcomes before it, and after it.
    applied
        Records of both topics that are applied after it.
    answered
        Number of the first entry whose outputs had perhaps not been acknowledged when this one was written.
    said
        Next offset of each output topic, behind the outputs of the entries before ``answered``; a router's are 0.
    config
        Hash of the configuration in force, 16 bytes; see `streams.config.in_force`.
    last
        The last record of each topic.
    topics
        The topic of each record in the order in which they were folded: bytes 0 and 1.
    tick
        Where it has no records: the time by the worker's clock up to which stream time went, ms. It is the first entry
        after a checkpoint, and the only one before the next.
    """

    number: int
    begins: tuple[int, int]
    ends: tuple[int, int]
    applied: int
    answered: int
    said: tuple[int, int, int]
    config: bytes
    last: tuple[Last, Last]
    topics: bytes
    tick: int = 0

    @property
    def key(self) -> bytes:
        """Key of the row."""
        return _key(self.number)

    def encode(self) -> bytes:
        """Return the row."""
        head = _ENTRY.pack(
            self.number,
            *self.begins,
            *self.ends,
            self.applied,
            self.answered,
            *self.said,
            self.config,
            *self.last[0],
            *self.last[1],
            self.tick,
            len(self.topics),
        )
        bits = np.packbits(np.frombuffer(self.topics, np.uint8)).tobytes()
        return JOURNAL.seal(head + bits)

    @classmethod
    def decode(cls, frame: bytes) -> "Entry":
        """Read a row.

        Raises
        ------
        CorruptFrame
            If the frame is not an intact entry of this version.
        """
        return JOURNAL.open(frame, cls._of)

    @classmethod
    def _of(cls, payload: bytes) -> "Entry":
        number, f0, o0, f1, o1, applied, answered, *rest, n = _ENTRY.unpack_from(payload)
        s0, s1, s2, config, t0, c0, t1, c1, tick = rest
        bits = np.frombuffer(payload, np.uint8, -1, _ENTRY.size)
        if len(bits) != -(-n // 8):
            raise ValueError(f"{len(bits)} bytes for {n} records")
        topics, lasts = np.unpackbits(bits, count=n).tobytes(), (Last(t0, c0), Last(t1, c1))
        return cls(number, (f0, o0), (f1, o1), applied, answered, (s0, s1, s2), config, lasts, topics, tick)


#: The first entry after the last checkpoint, and behind a slot the entries since.
JOURNAL: Final = Kind[Entry](
    "Z",
    "the journal",
    (),
    {1: PLAIN},
    Moves.OUTSIDE,
    "one a partition: the number of the first journal entry after the last checkpoint; behind a slot (2 bytes) one a "
    "batch since then, and older ones: the journal",
)


class Journal(NamedTuple):
    """What a partition's rows say of the journal.

    Attributes
    ----------
    number
        Of the next entry.
    last
        The last record of each topic in the rows of the last checkpoint.
    entries
        What was folded since.
    answered, said
        The later of what the last checkpoint and the entries say: see `Entry`. Whoever folds the journal again makes
        checkpoints amid entries that know of less.
    """

    number: int
    last: tuple[Last, Last]
    entries: list[Entry]
    answered: int = 0
    said: tuple[int, int, int] = (0, 0, 0)

    def ends(self, fence: tuple[int, int]) -> tuple[int, int]:
        """Return the next offset of each topic after the entries, by those after the last checkpoint."""
        return self.entries[-1].ends if self.entries else fence


def last(timestamp: int, value: bytes | None) -> Last:
    """Return what an entry says of the last record of a topic."""
    return Last(timestamp, crc32(value or b""))


def begun(entry: Entry, said: Sequence[int]) -> tuple[bytes, bytes]:
    """Return key and row, written with a checkpoint, which is an entry of the journal's topic.

    They say where the journal goes on, the last records before, and where the outputs of these end: ``said``.
    """
    return JOURNAL.key(), JOURNAL.seal(_HEAD.pack(entry.number, *said, *entry.last[0], *entry.last[1]))


def read(get: Callable[[bytes], bytes | None]) -> Journal:
    """Read what stands in the rows of a partition.

    Parameters
    ----------
    get
        Reads a stored row by key; None where there is none.

    Raises
    ------
    CorruptFrame
        If a row is damaged.
    """
    number, before, known = 0, (NONE, NONE), (0, (0, 0, 0))
    row = get(JOURNAL.key())
    if row is not None:
        number, s0, s1, s2, t0, c0, t1, c1 = JOURNAL.open(row, _HEAD.unpack)
        before, known = (Last(t0, c0), Last(t1, c1)), (number, (s0, s1, s2))
    entries: list[Entry] = []
    while (row := get(_key(number))) is not None and (entry := Entry.decode(row)).number == number:
        entries.append(entry)
        known = max(known, (entry.answered, entry.said))
        number += 1
    return Journal(number, before, entries, *known)


def _key(number: int) -> bytes:
    return JOURNAL.letter + _SLOT.pack(number % SLOTS)
