"""The common part of the engines of worker and router: stream time, queues, counts, and rows of checkpoints.

An engine is a deterministic fold of records over the rows of one partition. It reads no clock and no environment. The
size of a batch must not matter: the same records in the same order give the same rows.
"""

from collections.abc import Iterable
from typing import Any, Final

from state.effects import Changes, Effects
from state.expiry import Expiry
from state.fence import FENCE, MATURITY, Fence, QueueBounds
from state.kind import Get
from state.witnesses import SLACK, WITNESSES, WaitingEntry, Witnesses

#: The most rows that are removed before a record. A record adds at most one queue entry, so removing two works off any
#: backlog.
SWEEP: Final = 2
#: The most forecasts that mature before a record. More fall due at once only if stream time jumps. The bound keeps one
#: record's changes within one batch of the changelog.
RIPE: Final = 64


class Fold:
    """The working copy of one partition's state; a subclass handles the records.

    It keeps changes until `checkpoint` makes rows of them. After a crash, records since the last checkpoint must be
    folded again in the same order.

    ``get``: reads a stored row by key. It must see every row of earlier checkpoints.
    """

    def __init__(self, get: Get) -> None:
        self._get: Get = get
        self.reset()

    def reset(self) -> None:
        """Forget everything since the last checkpoint."""
        row = self._get(FENCE.key())
        #: The fence: progress of the inputs, stream time, and counts; uncommitted records included.
        self.fence = Fence() if row is None else Fence.decode(row)
        self._expiry = Expiry(self._get, self.fence)
        self._witnesses = Witnesses(self._get(WITNESSES.key()))
        self.begin()

    def begin(self) -> None:
        """Begin a batch. `apply` takes its records in one part or several."""
        self._effects = Effects()
        self._outputs: list[Any] = []
        self._fates = self.fence.fates.copy()

    def apply(self, records: Iterable[Any]) -> list[Any]:
        """Apply records in order, and return the outputs."""
        raise NotImplementedError

    def end(self) -> Effects:
        """Return the effects of the batch, except outputs and rows."""
        effects = self._effects
        effects.fates = [after - was for after, was in zip(self.fence.fates, self._fates, strict=True)]
        return effects

    def tick(self, now: int, most: int = RIPE) -> list[Any]:
        """Move stream time on to a clock's time (ms), as a batch of its own; return the outputs of what matures.

        At most ``most`` forecasts mature; the rest mature with later ticks or records. A tick that does not move stream
        time changes nothing.
        """
        self._outputs = []
        fence = self.fence
        if now <= fence.stream_time:
            return self._outputs
        fence.stream_time = now
        self._witnesses.settle(fence, self._expiry)
        for ripe, queue in enumerate(self._expiry.due()):
            if queue.role != MATURITY or ripe == most:
                break
            self._mature(queue)
        return self._outputs

    @property
    def ripens(self) -> float:
        """Stream time, ms, at which the first waiting forecast matures; infinite if none waits."""
        return self._expiry.ripens

    def checkpoint(self, changes: Changes | None = None) -> Changes:
        """Return the rows that changed since the last checkpoint, added to ``changes`` if given."""
        made = self.freeze(changes)
        for _ in made.slices():
            pass
        return made

    def freeze(self, changes: Changes | None = None) -> Changes:
        """Return a checkpoint, as `checkpoint` does, but with most rows still to be packed.

        The rows of the last freeze must be packed before.
        """
        raise NotImplementedError

    @property
    def weight(self) -> int:
        """Approximate bytes of the rows that changed since the last checkpoint."""
        raise NotImplementedError

    @property
    def full(self) -> bool:
        """Whether the changes since the last checkpoint take too much memory; False for an engine without a limit."""
        return False

    @property
    def event_weight(self) -> int:
        """Approximate bytes of rows that one record may change."""
        raise NotImplementedError

    def _ordered(self) -> dict[bytes, bytes | None]:
        """Return the rows of queues, witnesses and fence that changed since the last checkpoint."""
        rows = self._expiry.changes()
        rows.update(self._witnesses.changes())
        rows[FENCE.key()] = self.fence.encode()
        return rows

    def _advance(self, ts: int) -> None:
        """Move stream time forward; let forecasts mature and due rows leave."""
        fence, expiry = self.fence, self._expiry
        if ts > fence.stream_time:
            if ts - fence.stream_time > SLACK or self._witnesses.waiting:
                self._witnesses.follow(ts, fence, expiry)
            else:
                fence.stream_time = ts
        if fence.stream_time < expiry.soonest:
            return
        swept = ripe = 0
        for queue in expiry.due():
            if queue.role == MATURITY:
                self._mature(queue)
                ripe += 1
                if ripe == RIPE:
                    return
            else:
                self._leave_queue(queue)
                swept += 1
                if swept == SWEEP:
                    return

    def _enter(self, role: int, ttl_ms: int, event_id: str, ts: int) -> None:
        """Put a row into the queue of a role. Its entry waits while the record is far ahead of stream time."""
        fence = self.fence
        if ts > fence.stream_time:
            self._witnesses.hold(WaitingEntry(role, ttl_ms, fence.applied, event_id))
        else:
            self._expiry.push(role, ttl_ms, fence.applied, event_id)

    def _mature(self, queue: QueueBounds) -> None:
        """Mature the first forecast of a queue."""
        raise NotImplementedError

    def _leave_queue(self, queue: QueueBounds) -> None:
        """Remove the row of a queue's first entry."""
        raise NotImplementedError
