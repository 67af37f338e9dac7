"""Which events of a replay are due, to mature or to leave: the queues of `state.expiry`, in memory."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from state.fence import MATURITY


@dataclass(slots=True, eq=False)
class WaitingQueue:
    """What waits for one role and for equally long: since when (stream time, ms), named by a count, whose row."""

    role: int
    ttl_ms: int
    entries: deque[tuple[int, int, str]] = field(default_factory=deque)
    popped: int = 0

    @property
    def due(self) -> float:
        """When the first entry is due, ms; never without one."""
        return self.entries[0][0] + self.ttl_ms if self.entries else inf


class Queues:
    """The queues of one partition.

    Attributes
    ----------
    soonest
        No entry is due before this stream time, ms.
    """

    def __init__(self) -> None:
        self._queues: dict[tuple[int, int], WaitingQueue] = {}
        #: What matures first; replaced, not changed, when a queue opens.
        self._order: list[WaitingQueue] = []
        self.soonest = inf

    def push(self, role: int, ttl_ms: int, now: int, named: int, event_id: str) -> None:
        """Enter a row that is due ``ttl_ms`` after now, under a count as its name."""
        queue = self._queues.get((role, ttl_ms))
        if queue is None:
            queue = self._queues[role, ttl_ms] = WaitingQueue(role, ttl_ms)
            self._order = sorted(self._queues.values(), key=lambda each: each.role != MATURITY)
        if not queue.entries:
            self.soonest = min(self.soonest, now + ttl_ms)
        queue.entries.append((now, named, event_id))

    def pop(self, queue: WaitingQueue) -> tuple[int, int, str]:
        """Remove the first entry of a queue, and return it; `settle` says when the next one is due."""
        queue.popped += 1
        return queue.entries.popleft()

    def settle(self) -> None:
        """Look up when the next entry is due, after some were removed."""
        self.soonest = min([each.due for each in self._order], default=inf)

    def due(self, now: int) -> Iterator[WaitingQueue]:
        """Yield each queue for as long as its first entry is due and was popped, as `state.expiry.Expiry.due` does.

        Rows that mature go first.
        """
        for queue in self._order:
            seen = -1
            while seen < queue.popped and queue.due <= now:
                seen = queue.popped
                yield queue
