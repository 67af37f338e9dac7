"""The merge of any number of source partitions into one order, by record time: as good as can be, not repeatable.

Sources may have any keys and any numbers of partitions, so no order of them is repeatable. But a backlog must not be
sent on partition by partition: an hour of forecasts before their first label would be served by calibrators that have
learnt nothing of that hour. Nor may one record that is stamped ahead hold its partition back for as long: it is placed
by those behind it, as in `streams.records.merge`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from time import monotonic
from typing import Any

from aiokafka.structs import TopicPartition

from state.witnesses import SLACK
from streams.records.merge import BEHIND, believed_head


class SourceBuffers:
    """What was fetched of source partitions and not yet taken.

    ``patience``: how long a partition that is behind may hold the others back, s.
    ``records, size``: records of one partition, and bytes of all of them, beyond which no more is fetched.
    """

    def __init__(self, patience: float, records: int, size: int, clock: Callable[[], float] = monotonic) -> None:
        self._patience = patience
        self._records, self._size = records, size
        self._clock = clock
        self._buffers: dict[TopicPartition, deque[Any]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._held_since: float | None = None
        #: Partitions of which more has to be fetched to say when their first records are taken, at most `BEHIND` each.
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
        """Return the partitions of which no more is to be fetched for now."""
        share = self._size / max(len(self._buffers), 1)
        return {
            tp
            for tp, buffer in self._buffers.items()
            if tp not in self._awaited and (len(buffer) >= self._records or self._sizes[tp] >= share)
        }

    def held(self) -> dict[TopicPartition, int]:
        """Return how many records of each partition are buffered."""
        return {tp: len(buffer) for tp, buffer in self._buffers.items()}

    def take(self, limit: int, caught_up: Callable[[TopicPartition], bool]) -> list[tuple[TopicPartition, Any]]:
        """Take records by their Kafka timestamps, each partition's in their order.

        ``caught_up``: whether all that the brokers hold of a partition has been fetched. One that has nothing buffered
        and is not holds the others back, until their patience is at an end; so does one whose first record is far ahead
        of them, and of which too little is buffered to say whether it is believed.
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
            now, i = heappop(heads)
            tp = places[i]
            buffer = self._buffers[tp]
            record = buffer.popleft()
            self._sizes[tp] -= _size(record)
            taken.append((tp, record))
            if buffer and buffer[0].timestamp - now <= SLACK:
                heappush(heads, (buffer[0].timestamp, i))
            elif not (_settled(buffer, now) or impatient or caught_up(tp)):
                break
            elif buffer:
                heappush(heads, (_placed(buffer, now), i))
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
    """Whether it is known when the first record of a buffer is taken, whatever follows what is buffered."""
    return len(buffer) > BEHIND or (bool(buffer) and buffer[0].timestamp - now <= SLACK)


def _placed(buffer: deque[Any], now: int) -> int:
    """Return the time by which the first record of a buffer is taken, ms, if the earliest of all is of ``now``."""
    stamp = int(buffer[0].timestamp)
    return stamp if stamp - now <= SLACK else believed_head(buffer)


def _size(record: Any) -> int:  # noqa: ANN401 - aiokafka's
    return len(record.value or b"") + len(record.key or b"")
