"""What a worker's and a router's engines have in common: stream time, queues, counts, and rows of checkpoints.

An engine is a deterministic fold of records over the rows of one partition. So it reads no clock and no environment,
and never lets the size of a batch show in what it does: the same records in the same order give the same rows, however
they were cut into batches.
"""

from collections.abc import Iterable
from typing import Any, Final

from state.effects import Changes, Effects
from state.expiry import Expiry
from state.fence import FENCE, MATURITY, Fence, Queue
from state.kind import Get
from state.witnesses import SLACK, WITNESSES, Entry, Witnesses

#: Most rows the sweep removes before a record. A record adds at most one queue entry, so two catch up.
SWEEP: Final = 2
#: Most forecasts that mature before a record. More fall due at once only where stream time jumps. The bound keeps what
#: one record changes within one batch of the changelog.
RIPE: Final = 64


class Fold:
    """The working copy of one partition's state; a subclass says what records mean.

    What changed is kept in it until `checkpoint` makes rows of it. Records that were folded since the last checkpoint
    are to be folded again after a crash, in the same order.

    Parameters
    ----------
    get
        Reads a stored row by key. It must see every row of earlier checkpoints.

    Attributes
    ----------
    fence
        How far the inputs are applied, stream time, and what became of records; with what is not committed yet.
    """

    def __init__(self, get: Get) -> None:
        self._get: Get = get
        self.reset()

    def reset(self) -> None:
        """Forget everything since the last checkpoint."""
        row = self._get(FENCE.key())
        self.fence = Fence() if row is None else Fence.decode(row)
        self._expiry = Expiry(self._get, self.fence)
        self._witnesses = Witnesses(self._get(WITNESSES.key()))
        self.begin()

    def begin(self) -> None:
        """Begin a batch, whose records `apply` takes in one part or in several."""
        self._effects = Effects()
        self._outputs: list[Any] = []
        self._fates = self.fence.fates.copy()

    def apply(self, records: Iterable[Any]) -> list[Any]:
        """Apply records in order, and return what they bring about."""
        raise NotImplementedError

    def end(self) -> Effects:
        """Return the effects of the batch, but for the outputs and the rows."""
        effects = self._effects
        effects.fates = [after - was for after, was in zip(self.fence.fates, self._fates, strict=True)]
        return effects

    def tick(self, now: int, most: int = RIPE) -> list[Any]:
        """Move stream time on to a clock's time, ms, and return what matures by then; a batch of its own.

        At most ``most`` forecasts mature; the rest with the next tick or the next records. A tick that does not move
        stream time changes nothing.
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
        """The first forecast that waits matures at this stream time, ms; infinite if none does."""
        return self._expiry.ripens

    def checkpoint(self, changes: Changes | None = None) -> Changes:
        """Return the rows that changed since the last checkpoint, in ``changes`` if that is given."""
        made = self.freeze(changes)
        for _ in made.slices():
            pass
        return made

    def freeze(self, changes: Changes | None = None) -> Changes:
        """Return what `checkpoint` does, with most of the rows still to be made; those before are to be made by now."""
        raise NotImplementedError

    @property
    def weight(self) -> int:
        """About how many bytes of rows have changed since the last checkpoint."""
        raise NotImplementedError

    @property
    def event_weight(self) -> int:
        """About how many bytes of rows one record may change."""
        raise NotImplementedError

    def _ordered(self) -> dict[bytes, bytes | None]:
        """Return the rows of queues, witnesses and fence that changed since the last checkpoint."""
        rows = self._expiry.changes()
        rows.update(self._witnesses.changes())
        rows[FENCE.key()] = self.fence.encode()
        return rows

    def _advance(self, ts: int) -> None:
        """Move stream time forward, let forecasts mature, and let go of rows that fell due."""
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
        """Put a row into the queue of a role; it waits until stream time has come near its record's."""
        fence = self.fence
        if ts > fence.stream_time:
            self._witnesses.hold(Entry(role, ttl_ms, fence.applied, event_id))
        else:
            self._expiry.push(role, ttl_ms, fence.applied, event_id)

    def _mature(self, queue: Queue) -> None:
        """Let the first forecast of a queue mature."""
        raise NotImplementedError

    def _leave_queue(self, queue: Queue) -> None:
        """Let the row of a queue's first entry leave."""
        raise NotImplementedError
