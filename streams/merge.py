"""The merge of a partition's two input topics into one order, by record time.

A worker that catches up must not read an hour of forecasts before the first outcome: the order in which it learns
is part of the result. So the record with the smaller timestamp goes first, a forecast before an outcome of the same
millisecond, and a topic with nothing buffered holds the other back until it is known to have no more. Given which
offsets a batch spans, its order is a function of the records alone.

Records that were applied before and come again, behind the fence, go first and by themselves. Among new records a late
one would hold them up, and so change their order: what is learnt would depend on where a crash cut.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic

from aiokafka.structs import ConsumerRecord
from faust.types import TP

#: A record and its topic: `state.fence.FORECASTS` or `state.fence.OUTCOMES`.
Merged = tuple[int, ConsumerRecord[bytes | None, bytes | None]]

#: Epochs are never used again, not even by another lane of a partition that went and came back.
_EPOCHS = count()


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition, in the order in which they are folded.

    Attributes
    ----------
    partition
        Number of the partition.
    records
        At least one.
    ends
        Next offset of each topic-partition the records came from, to commit when all effects are acknowledged.
    epoch
        Which run of the lane the batch belongs to; a batch of an earlier one changes nothing any more.
    """

    partition: int
    records: list[Merged]
    ends: dict[TP, int]
    epoch: int


@dataclass(slots=True)
class Lane:
    """What is buffered of one partition. At most one batch of it is out at a time."""

    partition: int
    sources: Sequence[TP]
    epoch: int = field(default_factory=_EPOCHS.__next__)
    busy: bool = False
    #: Next offset of each topic that was not applied before the lane started.
    fence: tuple[int, int] = (0, 0)
    buffers: tuple[
        deque[ConsumerRecord[bytes | None, bytes | None]], deque[ConsumerRecord[bytes | None, bytes | None]]
    ] = field(default_factory=lambda: (deque(), deque()))
    #: Bytes of the keys and values in each buffer.
    sizes: list[int] = field(default_factory=lambda: [0, 0])
    held_since: float | None = None

    def add(self, topic: int, records: Sequence[ConsumerRecord[bytes | None, bytes | None]]) -> None:
        """Buffer records of a topic, in the order of their offsets."""
        self.buffers[topic].extend(records)
        self.sizes[topic] += sum(map(_size, records))

    def take(
        self,
        limit: int,
        size: int,
        caught_up: Callable[[TP], bool],
        patience: float,
        clock: Callable[[], float] = monotonic,
    ) -> Batch | None:
        """Return the next batch and mark the lane busy, or None while there is none to be had.

        Parameters
        ----------
        limit, size
            Most records, and most bytes of their keys and values; one record may be larger.
        caught_up
            Whether a topic-partition has nothing more to fetch, as far as is known.
        patience
            Seconds a topic that is not caught up may hold the other back.
        """
        if self.busy:
            return None
        records = self._again(limit, size) or self._new(limit, size, caught_up, patience, clock)
        if not records:
            return None
        self.held_since = None
        self.busy = True
        newest = dict(records)  # the last of each topic
        ends = {self.sources[topic]: record.offset + 1 for topic, record in newest.items()}
        return Batch(self.partition, records, ends, self.epoch)

    def _again(self, limit: int, size: int) -> list[Merged]:
        """Take records behind the fence."""
        records: list[Merged] = []
        for topic, (buffer, fence) in enumerate(zip(self.buffers, self.fence, strict=True)):
            while buffer and buffer[0].offset < fence and len(records) < limit and size > 0:
                record = buffer.popleft()
                taken = _size(record)
                self.sizes[topic] -= taken
                size -= taken
                records.append((topic, record))
        return records

    def _new(
        self, limit: int, size: int, caught_up: Callable[[TP], bool], patience: float, clock: Callable[[], float]
    ) -> list[Merged]:
        """Take new records by their time."""
        forecasts, outcomes = buffers = self.buffers
        sizes = self.sizes
        records: list[Merged] = []
        while len(records) < limit and size > 0:
            if forecasts and outcomes:
                topic = 0 if forecasts[0].timestamp <= outcomes[0].timestamp else 1
            elif not forecasts and not outcomes:
                break
            else:
                topic = 0 if forecasts else 1
                if not caught_up(self.sources[1 - topic]) and not self._out_of_patience(patience, clock):
                    break
            record = buffers[topic].popleft()
            taken = len(record.value or b"") + len(record.key or b"")
            sizes[topic] -= taken
            size -= taken
            records.append((topic, record))
        return records

    def _out_of_patience(self, patience: float, clock: Callable[[], float]) -> bool:
        now = clock()
        if self.held_since is None:
            self.held_since = now
        return now - self.held_since >= patience

    def restart(self) -> None:
        """Forget what is buffered and what is out; the records will be fetched again."""
        self.epoch = next(_EPOCHS)
        self.busy = False
        self.held_since = None
        self.sizes = [0, 0]
        for buffer in self.buffers:
            buffer.clear()


def _size(record: ConsumerRecord[bytes | None, bytes | None]) -> int:
    return len(record.value or b"") + len(record.key or b"")
