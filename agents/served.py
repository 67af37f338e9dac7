"""A served partition: its terms, its progress, its waiting checkpoint, and folded records not acknowledged yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, NamedTuple, Self

from state import journal
from state.effects import Changes
from state.events import Rejected
from state.fence import Fence
from state.fold import Fold
from state.journal import Entry, Journal
from state.witnesses import SLACK
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust.outputs import LABELS, Heard, OutputBatch
from streams.records.merge import Batch, Merged

#: The most records and the most batches between two checkpoints.
CHECKPOINT_RECORDS, CHECKPOINT_BATCHES = 20_000, 1000


@dataclass(frozen=True)
class Terms:
    """The terms under which records are folded: settings, the decoder made from them, and the settings' hash.

    See `streams.config.in_force`.
    """

    settings: Settings
    decoder: Any
    config: bytes

    @classmethod
    def of(cls, settings: Settings, decoder: Any) -> Self:  # noqa: ANN401 - of its own events
        """Return the terms of some settings."""
        return cls(settings, decoder, bytes.fromhex(in_force.digest(in_force.described(settings))))


class Frozen(NamedTuple):
    """A checkpoint that is not written yet."""

    #: The rows that changed. Most are encoded later, while other records are served.
    changes: Changes
    #: Its journal entry.
    entry: Entry
    #: Offsets of later outputs that are already in the topics, see `Heard.offsets`.
    left: Sequence[int | None]
    #: Next offset of each output topic after the outputs of the entries before it, when those are acknowledged.
    said: tuple[int, int, int]


@dataclass(eq=False)
class ServedPartition:
    """A partition that was taken up."""

    #: Terms of the records. After a crash, the terms in force before it, until those records are folded again.
    terms: Terms
    #: Number of the next journal entry.
    number: int = 0
    #: Number of the first entry whose outputs may not be acknowledged yet.
    answered: int = 0
    #: The value of ``answered`` when the partition was taken up. Outputs of earlier entries are not sent again.
    told: int = 0
    #: Next offset of each output topic, after the outputs of the entries before ``answered``.
    said: tuple[int, int, int] = (0, 0, 0)
    #: Outputs behind ``said``, for records that are folded again; None if not read yet, or if all are folded.
    heard: Heard | None = None
    #: Number of the first entry after the last checkpoint.
    written: int = 0
    #: Next offset of each input: at the last checkpoint, and now.
    begins: tuple[int, int] = (0, 0)
    ends: tuple[int, int] = (0, 0)
    #: The last folded record of each input.
    last: list[journal.Last] = field(default_factory=lambda: [journal.NONE, journal.NONE])
    #: The topic of each record since the last checkpoint, in order.
    order: bytearray = field(default_factory=bytearray)
    #: When the first record since the last checkpoint was folded, s of a monotonic clock.
    since: float = 0.0
    #: Whether all records of the last entry are folded.
    whole: bool = True
    #: Whether the last records came at about the time that they state.
    live: bool = False
    #: The checkpoint to write when the entries before it are answered.
    waiting: Frozen | None = None
    #: The engine with the partition's state.
    engine: Fold = field(init=False)

    @classmethod
    def after(cls, found: Journal, terms: Terms, said: tuple[int, int, int]) -> Self:
        """Return a partition whose journal has these entries and whose output topics end at ``said``."""
        number, entries = found.number - len(found.entries), found.entries
        answered, said = (found.answered, found.said) if entries else (0, said)
        return cls(terms, number, answered, answered, said, written=number, last=list(found.last))

    def opened(self, engine: Fold) -> None:
        """Begin with the state of the last checkpoint."""
        self.engine = engine
        first, second = engine.fence.next
        self.begins = self.ends = first, second

    def read(self, stored: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
        """Return a function that reads a row from the waiting checkpoint, or otherwise from the table."""

        def get(key: bytes) -> bytes | None:
            if self.waiting is not None and self.waiting.changes.has(key):
                row: bytes | None = self.waiting.changes.rows[key]
                return row
            return stored(key)

        return get

    def took(self, records: Sequence[Merged]) -> bytes:
        """Note folded records; return the topic of each, in order."""
        topics = bytes([topic for topic, _ in records])
        if not self.order:
            self.since = monotonic()
        first, second = self.engine.fence.next
        self.ends = first, second
        self.order += topics
        seen = set[int]()
        for topic, record in reversed(records):
            if topic not in seen:
                self.last[topic] = journal.last(record.timestamp, record.value)
                seen.add(topic)
                if len(seen) == len(self.last):
                    break
        return topics

    def folded(self, batch: Batch, records: Sequence[Merged]) -> Entry | None:
        """Note folded records of a batch; return their journal entry, or None if the journal has it already."""
        begins, topics = self.ends, self.took(records)
        if batch.again is not None:
            self.number, self.whole = batch.again.number + batch.ended, batch.ended
            return None
        entry = self.entry(begins, topics)
        self.number += 1
        self.live = abs(time() * 1000 - self.engine.fence.stream_time) <= SLACK
        return entry

    def forgo(self, found: Journal) -> None:
        """Skip the journal entries since the last checkpoint."""
        self.ends, self.last = found.ends(self.ends), [journal.NONE, journal.NONE]
        self.engine.fence.next[:] = self.ends
        self.number = self.answered = found.number

    def entry(self, begins: tuple[int, int], topics: bytes, tick: int = 0) -> Entry:
        """Return the journal entry for the records folded since some offsets, or for a tick."""
        forecasts, outcomes = self.last
        applied, config = self.engine.fence.applied, self.terms.config
        known = self.answered, self.said, config
        return Entry(self.number, begins, self.ends, applied, *known, (forecasts, outcomes), topics, tick)

    def hears(self, ends: Mapping[str, int]) -> None:
        """Note the present ends of output topics, by their labels."""
        first, second, third = (ends.get(label, end) for label, end in zip(LABELS, self.said, strict=True))
        self.said = first, second, third

    def answers(self, number: int) -> None:
        """Note that the outputs of all entries below a number are acknowledged."""
        self.answered = max(self.answered, number)
        if self.waiting is not None and self.answered <= self.waiting.entry.number:  # later outputs do not belong to it
            self.waiting = self.waiting._replace(said=self.said)

    def freeze(self, tick: int = 0) -> None:
        """Make a checkpoint. It then waits to be written."""
        left = [None, None, None] if self.heard is None else self.heard.offsets
        entry = self.entry(self.begins, bytes(self.order), tick)
        self.waiting = Frozen(self.engine.freeze(), entry, left, self.said)
        self.begins = self.ends
        self.order.clear()

    def ripe(self, behind: int) -> int:
        """Return the time ``behind`` the clock, ms, if something in this partition is due by then; otherwise 0."""
        now = int(time() * 1000 - behind)
        due = bool(behind) and self.live and self.engine.fence.stream_time < now and self.engine.ripens <= now
        return now if due else 0

    def unsaid(self, batch: Batch) -> bool:
        """Whether outputs of a batch may be missing: the batch is new, or its acknowledgement was not noted."""
        return batch.again is None or batch.again.number >= self.told

    def unheard(self, batch: Batch) -> bool:
        """Whether a batch is folded again while its outputs in the topics have not been read."""
        return self.heard is None and batch.again is not None and self.unsaid(batch)

    @property
    def ready(self) -> bool:
        """Whether there are records for a checkpoint, and no checkpoint waits."""
        return bool(self.order) and self.whole and self.waiting is None

    @property
    def behind(self) -> bool:
        """Whether a checkpoint waits, and the next one will be due soon."""
        return self.waiting is not None and (
            len(self.order) >= CHECKPOINT_RECORDS // 2
            or self.number - self.waiting.entry.number >= CHECKPOINT_BATCHES // 2
        )

    def late(self, settings: Settings) -> bool:
        """Whether new batches must wait for the checkpoint, because there are too many rows or journal entries."""
        return self.waiting is not None and (
            self.engine.weight > settings.enough_bytes // 2
            or self.engine.full
            or self.number - self.written >= journal.SLOTS // 2
        )

    def due(self, settings: Settings) -> bool:
        """Whether a checkpoint is due and can be made."""
        return self.ready and (
            len(self.order) >= CHECKPOINT_RECORDS
            or self.number - self.written >= CHECKPOINT_BATCHES
            or monotonic() - self.since >= settings.checkpoint_seconds
            or self.engine.weight > settings.enough_bytes
            or self.engine.full
        )


@dataclass(frozen=True)
class Folded:
    """Records of a batch that the engine has applied."""

    #: The batch.
    batch: Batch
    #: Its partition.
    served: ServedPartition
    #: Outputs to produce.
    outputs: OutputBatch
    #: Their journal entry; None if the journal has it already.
    entry: Entry | None
    #: Number of the first journal entry after these records.
    number: int
    #: The engine's effects.
    effects: Any
    #: The dead letters.
    rejected: list[Rejected]
    #: Fence of the state that includes these records.
    fence: Fence


@dataclass(frozen=True)
class FoldedTurn:
    """A turn whose records are applied. Nothing of it is in the journal yet, unless it was there before a crash."""

    #: When its folding began to wait, s of a monotonic clock.
    started: float
    #: Its batches.
    parts: list[Folded]


def committed(fence: Fence) -> Fence:
    """Return a copy of a fence. The engine changes its own fence while it folds records that may never be committed."""
    return Fence.decode(fence.encode())
