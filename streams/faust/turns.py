"""Turns: the partitions of a router go through a backlog together, up to one time after another.

Labels go from every partition of a router to every partition of the outcomes. If each partition sent what it has by
itself, each would begin in the past again, and a worker would learn labels after their forecasts have matured. So in
a backlog all take records up to one time, and what these bring about is sent as one, by time. The next turn begins
when all are folded. What is buffered within `SLACK` is no backlog: then nobody waits for anybody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from time import monotonic
from typing import Any

from faust.types import TP

from state.engine import OUTSTANDING
from state.witnesses import SLACK
from streams.records.merge import BEHIND, NEVER, Batch, PartitionBuffer, ReadPositions


class Turn:
    """Batches whose outputs are sent together.

    Parameters
    ----------
    batches
        How many are to be folded.

    Attributes
    ----------
    outputs
        What those folded bring about, as far as it is not being sent.
    """

    def __init__(self, batches: int) -> None:
        self._folding = batches
        self._folded = asyncio.Event()
        self._sending: asyncio.Future[None] | None = None
        self.outputs: list[Any] = []

    @property
    def over(self) -> bool:
        """Whether nobody has to wait any more."""
        return self._folded.is_set()

    def folded(self) -> None:
        """Note that a batch is folded, or never will be."""
        self._folding -= 1
        if not self._folding:
            self.end()

    def end(self) -> None:
        """Let nobody wait: some batches may never be folded here."""
        self._folded.set()

    async def sent(self, send: Callable[[list[Any]], Awaitable[None]]) -> None:
        """Return when the outputs are acknowledged; the first that comes sends those of all. Raises as ``send``."""
        await self._folded.wait()
        if self.outputs:
            outputs, self.outputs = self.outputs, []
            self._sending = asyncio.ensure_future(send(outputs))
        if self._sending is not None:
            await asyncio.shield(self._sending)


class Turns:
    """Takes batches of all partitions.

    Parameters
    ----------
    limit, size
        Most records of a batch, and most bytes of their keys and values.
    patience
        How long a partition of which nothing is known may hold the others back, s.
    clock
        Returns the time, s.
    """

    def __init__(self, limit: int, size: int, patience: float, clock: Callable[[], float] = monotonic) -> None:
        self._limit, self._size, self._patience = limit, size, patience
        self._clock = clock
        self._turn: Turn | None = None
        #: Since when nothing is known of what a topic-partition holds next, s.
        self._since: dict[TP, float] = {}

    def take(self, buffers: Sequence[PartitionBuffer], reading: ReadPositions) -> list[Batch]:
        """Return the next batches, at most one of a partition; none while they are to wait."""
        if self._turn is not None and not self._turn.over:
            return []
        until, together = NEVER, _backlog(buffers)
        if together:
            if any(each.busy or len(each.out) == OUTSTANDING for each in buffers) or self._waits(buffers, reading):
                return []
            until = self._until(buffers)
        batches = [each.take(self._limit, self._size, reading, self._patience, until=until) for each in buffers]
        taken = [batch for batch in batches if batch is not None]
        if together and len(taken) > 1:
            self._turn = Turn(len(taken))
            for batch in taken:
                batch.turn = self._turn
        return taken

    def end(self) -> None:
        """Let nobody wait for batches that were taken, and begin anew."""
        if self._turn is not None:
            self._turn.end()
        self._since.clear()

    def _waits(self, buffers: Sequence[PartitionBuffer], reading: ReadPositions) -> bool:
        """Whether what a topic-partition holds next is not known, and there is patience left for it."""
        now, unknown = self._clock(), list[TP]()
        for each in buffers:
            lacking = [tp for tp, queue in each.queues() if len(queue) <= BEHIND and not reading.caught_up(tp)]
            if lacking:
                each.awaited = lacking[0]  # it is fetched, whatever else is buffered
            unknown += lacking
        self._since = {tp: self._since.get(tp, now) for tp in unknown}
        return any(now - since < self._patience for since in self._since.values())

    def _until(self, buffers: Sequence[PartitionBuffer]) -> int:
        """Return the time up to which every partition can be taken in one batch, ms."""
        share, until, first = self._limit // 2, NEVER, NEVER
        for each in buffers:
            for _, queue in each.queues():
                if queue:
                    first = min(first, queue[0].timestamp)
                    # A batch may end where it is not known what stands behind a record.
                    some = islice(queue, max(min(len(queue) - BEHIND, share), 1))
                    until = min(until, max([record.timestamp for record in some]))
        return max(until, first)


def _backlog(buffers: Sequence[PartitionBuffer]) -> bool:
    """Whether what is buffered spans more than `SLACK`."""
    queues = [queue for each in buffers for _, queue in each.queues() if queue]
    first = min([queue[0].timestamp for queue in queues], default=0)
    return any(queue[-1].timestamp - first > SLACK for queue in queues)
