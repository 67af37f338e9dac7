"""The fence: how far a partition's inputs were applied, and the counts that must add up.

One row a partition, written in the same record batch as every other row of a micro-batch. It is what makes a
redelivered record recognisable after a crash: an input offset below the fence was applied.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from state.frames import DAMAGE, damaged, seal, unseal
from state.keys import FENCE

VERSION: Final = 1
#: The input topics, in the order in which their next offsets stand in the fence.
FORECASTS: Final = 0
OUTCOMES: Final = 1

#: The fates of records and rows, in stored order. Everything that comes in is counted in exactly one of the first
#: eight; the last four say how rows left again.
FATES: Final = (
    "forecasts_issued",
    "forecasts_duplicate",
    "forecasts_dead",
    "outcomes_resolved",
    "outcomes_early",
    "outcomes_duplicate",
    "outcomes_conflicting",
    "outcomes_dead",
    "early_joined",
    "early_unusable",
    "expired_forecasts",
    "expired_outcomes",
)
ISSUED: Final = 0
FORECAST_DUPLICATE: Final = 1
FORECAST_DEAD: Final = 2
RESOLVED: Final = 3
EARLY: Final = 4
OUTCOME_DUPLICATE: Final = 5
OUTCOME_CONFLICTING: Final = 6
OUTCOME_DEAD: Final = 7
EARLY_JOINED: Final = 8
EARLY_UNUSABLE: Final = 9
EXPIRED_FORECAST: Final = 10
EXPIRED_OUTCOME: Final = 11

_HEAD: Final = Struct(f"<4q{len(FATES)}QH")
_QUEUE: Final = Struct("<QQQq")


@dataclass(slots=True)
class Queue:
    """Bounds of one expiry queue: entries ``head`` up to ``tail`` wait; the first is due at ``due`` ms."""

    ttl_ms: int
    head: int = 0
    tail: int = 0
    due: int = 0


@dataclass(slots=True)
class Fence:
    """What a partition has applied.

    Attributes
    ----------
    next
        Next offset to apply of ``forecasts`` and of ``outcomes``; 0 before the first record.
    stream_time
        Largest event time seen, ms since the epoch; 0 before the first record.
    applied
        Records applied so far, of both topics.
    fates
        A count for each of `FATES`.
    queues
        The expiry queues, one a time to live.
    """

    next: list[int] = field(default_factory=lambda: [0, 0])
    stream_time: int = 0
    applied: int = 0
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    queues: dict[int, Queue] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        """Issued forecasts that still wait for an outcome."""
        return self.fates[ISSUED] - self.fates[RESOLVED] - self.fates[EARLY_JOINED] - self.fates[EXPIRED_FORECAST]

    @property
    def early(self) -> int:
        """Parked outcomes that still wait for a forecast."""
        left = (EARLY_JOINED, EARLY_UNUSABLE, EXPIRED_OUTCOME)
        return self.fates[EARLY] - sum(self.fates[fate] for fate in left)

    def encode(self) -> bytes:
        """Return the row: the head, then every queue in the order in which it was opened."""
        parts = [
            _HEAD.pack(*self.next, self.stream_time, self.applied, *self.fates, len(self.queues)),
            *(_QUEUE.pack(q.ttl_ms, q.head, q.tail, q.due) for q in self.queues.values()),
        ]
        return seal(FENCE[0], VERSION, b"".join(parts))

    @classmethod
    def decode(cls, frame: bytes) -> "Fence":
        """Read a row written by `encode`.

        Raises
        ------
        CorruptFrame
            If the frame is not an intact fence of this version.
        """
        payload = unseal(FENCE[0], VERSION, frame)
        try:
            forecasts, outcomes, stream_time, applied, *fates, n = _HEAD.unpack_from(payload)
            queues = [Queue(*_QUEUE.unpack_from(payload, _HEAD.size + i * _QUEUE.size)) for i in range(n)]
        except DAMAGE as exc:
            raise damaged(FENCE[0], exc) from exc
        return cls([forecasts, outcomes], stream_time, applied, fates, {q.ttl_ms: q for q in queues})
