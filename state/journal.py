"""The journal: which records were folded since the last checkpoint, and in which order.

A worker does not write the rows that a batch changed. It writes an entry that lists the batch's records and the order
of the two topics. The acknowledgement of this entry is the commit point. The next owner of the partition starts from
the rows of the last checkpoint and folds the same records in the same order. So it gets the same state and the same
answers. A checkpoint writes all changed rows. Entries before it are then no longer needed.

Entries are rows of the changelog: they have the same single writer, and are restored with the other rows. Their keys
form a ring, so new entries replace old ones, and compaction removes the old ones.

The order of a checkpoint's records also goes to a topic of its own, before the checkpoint. It is not compacted, so an
audit can fold the whole history along it. After a crash, a checkpoint may end at another record than the one that was
in progress. So entries of this topic may overlap. They always agree.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from state.kind import PLAIN, Kind, Moves

#: Keys of the ring. A checkpoint always comes long before there are so many entries.
SLOTS: Final = 1 << 12
_ENTRY: Final = Struct("<QQQQQQQQQQ16sqIqIqI")
_HEAD: Final = Struct("<QQQQqIqI")
_SLOT: Final = Struct(">H")


class Last(NamedTuple):
    """The last record of a topic in an entry: its Kafka timestamp, ms, and the CRC-32 of its value.

    If a topic is truncated, offsets are used again for other records. A reader notices this because `Last` differs.
    """

    timestamp: int
    crc: int


#: Stands for `Last` where an entry has no record of a topic.
NONE: Final = Last(-1, 0)


class Entry(NamedTuple):
    """One batch; in the topic of the journal, all batches from one checkpoint to the next."""

    #: Number of the entry. Numbers go on for all of a partition's life. For a checkpoint: of the first entry after it.
    number: int
    #: Next offsets of forecasts and of outcomes, before and after the batch.
    begins: tuple[int, int]
    ends: tuple[int, int]
    #: Records of both topics applied, this batch included.
    applied: int
    #: Number of the first entry whose outputs may not have been acknowledged when this entry was written.
    answered: int
    #: Next offset of each output topic, after the outputs of the entries before ``answered``; 0 for a router.
    said: tuple[int, int, int]
    #: Hash of the configuration in force, 16 bytes; see `streams.config.in_force`.
    config: bytes
    #: The last record of each topic.
    last: tuple[Last, Last]
    #: The topic of each record, in the order of folding: bytes 0 and 1.
    topics: bytes
    #: For a batch without records: the clock's time to which stream time moved, ms. Such an entry is the only one
    #: between two checkpoints.
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
        """Read a row; CorruptFrame if the frame is not an intact entry of this version."""
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


#: The first entry after the last checkpoint, and the entries since, by slot.
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
    """The journal as stored in a partition's rows."""

    #: Number of the next entry.
    number: int
    #: The last record of each topic in the rows of the last checkpoint.
    last: tuple[Last, Last]
    #: Entries after the last checkpoint.
    entries: list[Entry]
    #: The newest of these values in the last checkpoint and the entries, see `Entry`. A worker that folds the journal
    #: again may make a checkpoint between entries, with newer values than these entries have.
    answered: int = 0
    said: tuple[int, int, int] = (0, 0, 0)

    def ends(self, fence: tuple[int, int]) -> tuple[int, int]:
        """Return the next offsets after the entries; ``fence`` has those after the last checkpoint."""
        return self.entries[-1].ends if self.entries else fence


def last(timestamp: int, value: bytes | None) -> Last:
    """Return the `Last` of a record."""
    return Last(timestamp, crc32(value or b""))


def begun(entry: Entry, said: Sequence[int]) -> tuple[bytes, bytes]:
    """Return key and row, to be written with a checkpoint, that point to its entry in the journal's topic.

    They hold where the journal goes on, the last records before that, and ``said``, the ends of those records' outputs.
    """
    return JOURNAL.key(), JOURNAL.seal(_HEAD.pack(entry.number, *said, *entry.last[0], *entry.last[1]))


def read(get: Callable[[bytes], bytes | None]) -> Journal:
    """Read the journal from the rows of a partition.

    Raises CorruptFrame if a row is damaged.
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
