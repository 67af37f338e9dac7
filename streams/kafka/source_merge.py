"""Merges any number of source partitions into one order by record time. The order cannot be repeated.

Sources may have any keys and any number of partitions, so their order cannot be repeated. But a backlog must not be
sent on partition by partition: an hour of forecasts would come before the first label, and calibrators would learn
nothing in that hour. And one record with a future timestamp must not hold back its partition: the records behind it
decide its place, as in `streams.records.merge`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from time import monotonic
from typing import Any

from aiokafka.structs import TopicPartition

from state.witnesses import SLACK
from streams.records.merge import BEHIND, believed_head


class SourceBuffers:
    """The fetched records of source partitions that have not been taken yet.

    ``patience``: how long partitions that lag behind may hold back the others, s.
    ``records, size``: fetching stops at this many records of one partition, or this many bytes of all.
    """

    def __init__(self, patience: float, records: int, size: int, clock: Callable[[], float] = monotonic) -> None:
        self._patience = patience
        self._records, self._size = records, size
        self._clock = clock
        self._buffers: dict[TopicPartition, deque[Any]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._held_since: float | None = None
        #: Partitions that need more records, at most `BEHIND` each, to decide when their first record is taken.
        self._awaited: set[TopicPartition] = set()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin anew with these partitions."""
        self._buffers = {tp: deque() for tp in sorted(partitions)}
        self._sizes = dict.fromkeys(self._buffers, 0)
        self._held_since = None
        self._awaited = set()

    def add(self, tp: TopicPartition, records: Sequence[Any]) -> None:
        """Buffer records of a partition, in the order of their offsets."""
        if tp in self._buffers:
            self._buffers[tp].extend(records)
            self._sizes[tp] += sum(map(_size, records))

    def full(self) -> set[TopicPartition]:
        """Return the partitions that need no fetch for now."""
        share = self._size / max(len(self._buffers), 1)
        return {
            tp
            for tp, buffer in self._buffers.items()
            if tp not in self._awaited and (len(buffer) >= self._records or self._sizes[tp] >= share)
        }

    def held(self) -> dict[TopicPartition, int]:
        """Return the number of buffered records by partition."""
        return {tp: len(buffer) for tp, buffer in self._buffers.items()}

    def take(self, limit: int, caught_up: Callable[[TopicPartition], bool]) -> list[tuple[TopicPartition, Any]]:
        """Take records in order of Kafka timestamps; each partition keeps its own order.

        ``caught_up``: whether all records that the brokers have of a partition have been fetched. Until patience ends,
        a partition that has not caught up holds back the others in two cases: its buffer is empty, or its first record
        is far ahead and too few records behind it are buffered to judge that.
        """
        taken: list[tuple[TopicPartition, Any]] = []
        first = min((buffer[0].timestamp for buffer in self._buffers.values() if buffer), default=0)
        self._awaited = {tp for tp, buffer in self._buffers.items() if not (_settled(buffer, first) or caught_up(tp))}
        impatient = bool(self._awaited) and self._out_of_patience()
        if self._awaited and not impatient:
            return taken
        places = list(self._buffers)
        heads = [(_placed(self._buffers[tp], first), i) for i, tp in enumerate(places) if self._buffers[tp]]
        heapify(heads)
        while heads and len(taken) < limit:
            now, i = heads[0]
            tp = places[i]
            buffer = self._buffers[tp]
            record = buffer.popleft()
            self._sizes[tp] -= _size(record)
            taken.append((tp, record))
            if buffer and buffer[0].timestamp - now <= SLACK:
                heapreplace(heads, (buffer[0].timestamp, i))
            elif not (_settled(buffer, now) or impatient or caught_up(tp)):
                break
            elif buffer:
                heapreplace(heads, (_placed(buffer, now), i))
            else:
                heappop(heads)
        self._held_since = None
        return taken

    def _out_of_patience(self) -> bool:
        if not any(self._buffers.values()):
            self._held_since = None
            return False
        now = self._clock()
        if self._held_since is None:
            self._held_since = now
        return now - self._held_since >= self._patience


def _settled(buffer: deque[Any], now: int) -> bool:
    """Whether the place of a buffer's first record is decided, whatever records come after the buffered ones."""
    return len(buffer) > BEHIND or (bool(buffer) and buffer[0].timestamp - now <= SLACK)


def _placed(buffer: deque[Any], now: int) -> int:
    """Return the time by which a buffer's first record is ordered, ms. ``now``: time of the earliest record of all."""
    stamp = int(buffer[0].timestamp)
    return stamp if stamp - now <= SLACK else believed_head(buffer)


def _size(record: Any) -> int:  # noqa: ANN401 - aiokafka's
    return len(record.value or b"") + len(record.key or b"")
