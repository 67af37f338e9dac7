"""The fence: how far a partition's inputs are applied, and counts that must add up.

Each partition has one such row, written with all other rows of a checkpoint. After a crash the inputs are read again
from its offsets.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from state.kind import PLAIN, Kind, Moves

#: The input topics, in the order of their offsets in the fence.
FORECASTS: Final = 0
OUTCOMES: Final = 1

#: The fates of records and rows, in stored order. Each input record has exactly one of the first eleven. The others
#: count what happened to rows.
FATES: Final = (
    "forecasts_issued",
    "forecasts_duplicate",
    "forecasts_dead",
    "outcomes_resolved",
    "outcomes_waiting",
    "outcomes_early",
    "outcomes_duplicate",
    "outcomes_revised",
    "outcomes_stale",
    "outcomes_dead",
    "outcomes_erased",
    "early_joined",
    "early_waiting",
    "early_unusable",
    "matured",
    "implied",
    "expired_forecasts",
    "expired_outcomes",
)
ISSUED: Final = 0
FORECAST_DUPLICATE: Final = 1
FORECAST_DEAD: Final = 2
#: An outcome that was learnt at once.
RESOLVED: Final = 3
#: An outcome that is kept until its forecast matures.
WAITING: Final = 4
#: An outcome whose forecast has not come.
EARLY: Final = 5
OUTCOME_DUPLICATE: Final = 6
#: An outcome that replaced a label, whether that was learnt or not.
OUTCOME_REVISED: Final = 7
#: An outcome that is older than the label it would replace.
OUTCOME_STALE: Final = 8
OUTCOME_DEAD: Final = 9
#: A record that erased an event, or an outcome of an erased event.
OUTCOME_ERASED: Final = 10
#: An early outcome whose forecast came: it is learnt, or kept until the forecast matures.
EARLY_JOINED: Final = 11
EARLY_WAITING: Final = 12
EARLY_UNUSABLE: Final = 13
#: An event that was learnt at maturity: with its outcome, or with the label that silence implies. A kept outcome of an
#: erased event counts as `MATURED`.
MATURED: Final = 14
IMPLIED: Final = 15
#: A row that left without its partner: its time to live had passed, or its event was erased.
EXPIRED_FORECAST: Final = 16
EXPIRED_OUTCOME: Final = 17
#: How many of `FATES`, from the first on, count forecasts; and how many count records of either topic.
FORECAST_FATES: Final = 3
INPUT_FATES: Final = 11

#: Roles of queues. This one: a forecast matures.
MATURITY: Final = 0
#: A row expires.
EXPIRY: Final = 1
#: A matured row expires. The applied count at maturity identifies these entries.
MATURED_EXPIRY: Final = 2
#: A resolved row expires that may be revised for longer than the time to live.
REVISION: Final = 3

_HEAD: Final = Struct(f"<4q{len(FATES)}QH")
_QUEUE: Final = Struct("<BQQQq")


@dataclass(slots=True)
class QueueBounds:
    """Bounds of one queue: entries ``head`` up to ``tail`` wait for ``role``; the first one is due at ``due``, ms."""

    role: int
    ttl_ms: int
    head: int = 0
    tail: int = 0
    due: int = 0


@dataclass(slots=True)
class Fence:
    """What a partition has applied."""

    #: Next offset to apply of ``forecasts`` and of ``outcomes``; 0 before the first record.
    next: list[int] = field(default_factory=lambda: [0, 0])
    #: Largest event time, ms since the epoch, without records far ahead (`state.witnesses`); 0 at first.
    stream_time: int = 0
    #: Records applied so far, of both topics.
    applied: int = 0
    #: A count for each of `FATES`.
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    #: The queues, by role and time to live, ms.
    queues: dict[tuple[int, int], QueueBounds] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        """Issued forecasts whose outcome is unknown."""
        left = (RESOLVED, WAITING, EARLY_JOINED, EARLY_WAITING, IMPLIED, EXPIRED_FORECAST)
        return self.fates[ISSUED] - sum([self.fates[fate] for fate in left])

    @property
    def waiting(self) -> int:
        """Outcomes that wait for their forecast to mature."""
        return self.fates[WAITING] + self.fates[EARLY_WAITING] - self.fates[MATURED]

    @property
    def early(self) -> int:
        """Early outcomes that still wait for a forecast."""
        left = (EARLY_JOINED, EARLY_WAITING, EARLY_UNUSABLE, EXPIRED_OUTCOME)
        return self.fates[EARLY] - sum([self.fates[fate] for fate in left])

    def encode(self) -> bytes:
        """Return the row: the head, then all queues in the order in which they were opened."""
        parts = [
            _HEAD.pack(*self.next, self.stream_time, self.applied, *self.fates, len(self.queues)),
            *(_QUEUE.pack(q.role, q.ttl_ms, q.head, q.tail, q.due) for q in self.queues.values()),
        ]
        return FENCE.seal(b"".join(parts))

    @classmethod
    def decode(cls, frame: bytes) -> "Fence":
        """Read a row written by `encode`; CorruptFrame if the frame is not an intact fence of this version."""
        return FENCE.open(frame, cls._of)

    @classmethod
    def _of(cls, payload: bytes) -> "Fence":
        forecasts, outcomes, stream_time, applied, *fates, n = _HEAD.unpack_from(payload)
        if len(payload) != _HEAD.size + n * _QUEUE.size:
            raise ValueError(f"a fence of {n} queues has {_HEAD.size + n * _QUEUE.size} bytes, got {len(payload)}")
        queues = [QueueBounds(*_QUEUE.unpack_from(payload, _HEAD.size + i * _QUEUE.size)) for i in range(n)]
        return cls([forecasts, outcomes], stream_time, applied, fates, {(q.role, q.ttl_ms): q for q in queues})


FENCE: Final = Kind[Fence]("F", "the fence", (), {3: PLAIN}, Moves.ANEW, "one a partition: the fence")
