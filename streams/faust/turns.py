"""Turns: the partitions of a process are folded, noted and answered together.

At low rates a turn costs little more than a batch of one partition: one message of Faust, one request to the journal
of each broker, and one with the answers.

A router sends labels from each of its partitions to every partition of the outcomes. If its partitions went through a
backlog independently, the outcomes would jump back in time again and again, and a worker would learn labels after their
forecasts have matured. So in a backlog all partitions of a turn take records up to the same time, and the outputs are
sent together, sorted by time. The next turn begins when all are folded. Records within `SLACK` are no backlog.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic
from typing import Final

from faust.types import TP

from state.engine import OUTSTANDING
from state.witnesses import SLACK
from streams.records.merge import BEHIND, NEVER, Batch, PartitionBuffer, ReadPositions

#: Up to this many partitions may have full batches in a turn. With more, each gets a smaller share, which bounds
#: requests and waits.
FULL: Final = 4


class Turns:
    """Takes batches of all partitions.

    ``limit, size``: the most records in a batch, and the most bytes of their keys and values.
    ``patience``: how long a partition may hold back the others while its next record is unknown, s.
    ``together``: whether in a backlog all partitions take records up to the same time.
    """

    def __init__(
        self,
        limit: int,
        size: int,
        patience: float,
        *,
        together: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._limit, self._size, self._patience = limit, size, patience
        self._together, self._clock = together, clock
        #: Since when the next record of a topic-partition is unknown, s.
        self._since: dict[TP, float] = {}
        #: Number of the last turn.
        self._number = 0

    def take(self, buffers: Sequence[PartitionBuffer], reading: ReadPositions) -> list[Batch]:
        """Return the next batches, at most one for each partition; none if all wait.

        While `OUTSTANDING` turns are not answered, all partitions wait, even those that are in none of these turns: a
        turn of one partition costs as much as a turn of all.
        """
        if len({batch.turn for each in buffers for batch in each.out} - {0}) >= OUTSTANDING:
            return []
        until, share = NEVER, max(1, len(buffers) // FULL)
        limit, size = max(1, self._limit // share), max(1, self._size // share)
        if self._together and _backlog(buffers):
            if any(each.busy or len(each.out) == OUTSTANDING for each in buffers) or self._waits(buffers, reading):
                return []
            until = self._until(buffers, limit)
        taken = [each.take(limit, size, reading, self._patience, until=until) for each in buffers]
        batches = [batch for batch in taken if batch is not None]
        self._number += 1
        for batch in batches:
            batch.turn = self._number
        return batches

    def begin(self) -> None:
        """Forget all waits."""
        self._since.clear()

    def _waits(self, buffers: Sequence[PartitionBuffer], reading: ReadPositions) -> bool:
        """Whether the next record of a topic-partition is unknown and its patience has not ended."""
        now, unknown = self._clock(), list[TP]()
        for each in buffers:
            lacking = [tp for tp, queue in each.queues() if len(queue) <= BEHIND and not reading.caught_up(tp)]
            if lacking:
                each.awaited = lacking[0]  # then it is fetched, whatever else is buffered
            unknown += lacking
        self._since = {tp: self._since.get(tp, now) for tp in unknown}
        return any(now - since < self._patience for since in self._since.values())

    def _until(self, buffers: Sequence[PartitionBuffer], limit: int) -> int:
        """Return the time, ms, up to which every partition's records fit one batch."""
        share, until, first = limit // 2, NEVER, NEVER
        for each in buffers:
            for _, queue in each.queues():
                if queue:
                    first = min(first, queue[0].timestamp)
                    # A batch may end at a record if the next one is unknown.
                    some = islice(queue, max(min(len(queue) - BEHIND, share), 1))
                    until = min(until, max([record.timestamp for record in some]))
        return max(until, first)


def _backlog(buffers: Sequence[PartitionBuffer]) -> bool:
    """Whether the buffered records span more than `SLACK`."""
    queues = [queue for each in buffers for _, queue in each.queues() if queue]
    first = min([queue[0].timestamp for queue in queues], default=0)
    return any(queue[-1].timestamp - first > SLACK for queue in queues)
