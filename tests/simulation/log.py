"""A partition of a topic of the model: record batches, and which of them are refused."""

import struct
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiokafka import errors
from aiokafka.record.default_records import DefaultRecordBatch

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
#: How many batches of a producer a log knows again.
KNOWN: Final = 5
#: Error codes.
OK, SEQUENCE, STALE = 0, errors.OutOfOrderSequenceNumber.errno, errors.InvalidProducerEpoch.errno


class Record(NamedTuple):
    """A record as it stands in a log, and who appended it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any
    by: str
    at: int


@dataclass
class Batch:
    """A record batch in a log: its bytes, who appended it, and its number among all appends of the cluster."""

    first: int
    end: int
    data: bytes
    by: str
    at: int


@dataclass
class Log:
    """A partition of a topic."""

    batches: list[Batch] = field(default_factory=list)
    #: With those that compaction has left out.
    all: list[Batch] = field(default_factory=list)
    begin: int = 0
    #: Of each producer id the newest epoch, the next sequence, and the first sequence and offset of its last batches.
    newest: dict[int, tuple[int, int, deque[tuple[int, int]]]] = field(default_factory=dict)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.batches[-1].end if self.batches else self.begin

    def append(self, data: bytes, by: str, at: int) -> tuple[int, int]:
        """Append a batch, and return an error code and the offset of its first record."""
        *_, last, _, _, producer, epoch, sequence, _ = _HEAD.unpack_from(data)
        count = last + 1
        if producer >= 0:
            known, following, batches = self.newest.get(producer, (-1, 0, deque[tuple[int, int]](maxlen=KNOWN)))
            if epoch < known:
                return STALE, -1
            if epoch == known:
                for first, offset in batches:
                    if first == sequence:
                        return OK, offset
                if sequence != following:
                    return SEQUENCE, -1
            elif known >= 0 and sequence:
                return SEQUENCE, -1
            else:
                batches = deque(maxlen=KNOWN)
            batches.append((sequence, self.end))
            self.newest[producer] = epoch, (sequence + count) % 2**31, batches
        offset = self.end
        self.batches.append(Batch(offset, offset + count, struct.pack(">q", offset) + data[8:], by, at))
        self.all.append(self.batches[-1])
        for wake in self.waiting:
            wake()
        self.waiting.clear()
        return OK, offset

    def read(self, offset: int, size: int) -> bytes:
        """Return the batches from an offset on, up to some bytes, but at least one."""
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].end > offset:
                high = middle
            else:
                low = middle + 1
        taken: list[bytes] = []
        for batch in self.batches[low:]:
            size -= len(batch.data)
            if taken and size < 0:
                break
            taken.append(batch.data)
        return b"".join(taken)

    def records(self, *, whole: bool = False) -> Iterable[Record]:
        """Yield every record; ``whole``: also what compaction has left out."""
        for batch in self.all if whole else self.batches:
            for each in DefaultRecordBatch(bytearray(batch.data)):
                yield Record(each.offset, each.timestamp, each.key, each.value, each.headers, batch.by, batch.at)

    def compact(self) -> None:
        """Leave out batches of which a later record has each key, and empty ones; a cleaner keeps offsets."""
        latest: dict[bytes | None, int] = {}
        for record in self.records():
            latest[record.key] = record.offset
        kept = set(latest.values())
        self.batches = [
            each for each in self.batches[:-1] if any(n in kept for n in range(each.first, each.end))
        ] + self.batches[-1:]
