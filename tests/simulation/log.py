"""A partition of a topic of the model: record batches, which are refused, and which are deleted or lost."""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiokafka import errors
from aiokafka.record.default_records import DefaultRecordBatch

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
#: How it begins: first offset, length, epoch of the leader.
_BEGIN: Final = struct.Struct(">q4si")
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
    #: With those that compaction has left out, and that were deleted.
    all: list[Batch] = field(default_factory=list)
    #: The first offset that was not deleted.
    begin: int = 0
    #: Where each epoch of its leader begins, and the tail that it had when the last one began, which is lost.
    epochs: list[int] = field(default_factory=lambda: [0])
    lost: list[Batch] = field(default_factory=list)
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
        head = _BEGIN.pack(offset, data[8:12], len(self.epochs) - 1)
        self.batches.append(Batch(offset, offset + count, head + data[_BEGIN.size :], by, at))
        self.all.append(self.batches[-1])
        self._wake()
        return OK, offset

    def _wake(self) -> None:
        for wake in self.waiting:
            wake()
        self.waiting.clear()

    def trim(self, offset: int) -> None:
        """Delete what stands before an offset, as retention does."""
        self.begin = max(self.begin, min(offset, self.end))
        self.batches = [each for each in self.batches if each.end > self.begin]

    def cut(self, batches: int) -> None:
        """Lose the last batches, as in a power loss: in the leader's next epoch others get their offsets."""
        self.lost = self.batches[-batches:]
        del self.batches[-batches:], self.all[-batches:]
        self.epochs.append(self.end)
        self._wake()

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return the last epoch of its leader up to one, and where that ended."""
        epoch = min(epoch, len(self.epochs) - 1)
        return epoch, (*self.epochs, self.end)[epoch + 1]

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
        """Yield every record; ``whole``: also what compaction has left out, and what was deleted."""
        if whole:
            return _records(self.all)
        return (each for each in _records(self.batches) if each.offset >= self.begin)

    @property
    def tail(self) -> list[Record]:
        """The records of the tail that it has lost."""
        return list(_records(self.lost))

    def compact(self) -> None:
        """Leave out batches of which a later record has each key, and empty ones; a cleaner keeps offsets.

        The last batch stands for the last segment: it is not cleaned, and its records count for no other.
        """
        kept = set({record.key: record.offset for record in _records(self.batches[:-1])}.values())
        self.batches = [
            each for each in self.batches[:-1] if any(n in kept for n in range(each.first, each.end))
        ] + self.batches[-1:]


def _records(batches: Iterable[Batch]) -> Iterator[Record]:
    for batch in batches:
        for each in DefaultRecordBatch(bytearray(batch.data)):
            yield Record(each.offset, each.timestamp, each.key, each.value, each.headers, batch.by, batch.at)
