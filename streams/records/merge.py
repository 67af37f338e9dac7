"""Merges the two input topics of a partition into one order, by record time.

A worker that catches up must not read an hour of forecasts before the first outcome: the order in which it learns is
part of the result. So the record with the smaller timestamp goes first; in the same millisecond, a forecast before an
outcome. A topic with an empty buffer holds the other back until it is known to have no more records. The order of a
batch depends only on its records and on the few behind them.

A record may have a timestamp ahead of its neighbours. It must not hold back its topic until the other topic has come as
far: forecasts would be read, and expire, before their outcomes. So the first record of a topic is checked if it is more
than `SLACK` later than that of the other topic. If it is also more than `SLACK` later than several of the few records
behind it, it is merged by the earliest time of these (`believed`). After a quiet night, the records behind it are as
late as it is, and it is merged by its own time. Nothing is remembered, so a restart anywhere finds the same order. If
the records behind it have not come yet, it waits for its time, and a batch ends before it. So records that come later
do not change the order of a batch.

Records that were folded since the last checkpoint come again after a crash. They are folded in the order of the journal
(`state.journal`), before any new record.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from time import monotonic
from typing import Final, Protocol

from aiokafka.structs import TopicPartition

from state.engine import OUTSTANDING
from state.journal import NONE, Entry, Journal, Last, last
from state.witnesses import SEVERAL, SLACK
from streams.sources.references import Headers


class ReadPositions(Protocol):
    """How far the topics have been read."""

    def caught_up(self, tp: TopicPartition) -> bool:
        """Whether a topic-partition has nothing more to fetch, as far as known."""


class KafkaRecord(Protocol):
    """A record of a topic, whoever read it."""

    @property
    def offset(self) -> int:
        """Its place in the partition."""

    @property
    def timestamp(self) -> int:
        """The Kafka timestamp, ms."""

    @property
    def key(self) -> bytes | None:
        """The key."""

    @property
    def value(self) -> bytes | None:
        """The value."""

    @property
    def headers(self) -> Headers:
        """The headers."""


#: A record and its topic: `state.fence.FORECASTS` or `state.fence.OUTCOMES`.
Merged = tuple[int, KafkaRecord]

#: Later than any Kafka timestamp, ms.
NEVER: Final = 1 << 63

#: Number of records behind a head that are looked at. Of the head and these, fewer than `SEVERAL` may be far ahead.
BEHIND: Final = 2 * (SEVERAL - 1)

#: Source of epochs. They are never used twice, not even by a new buffer of the same partition.
_EPOCHS: Final = count()


def believed(timestamp: int, behind: Iterable[int]) -> int:
    """Return the time at which to merge a record that is more than `SLACK` later than the other topic's head.

    Returns the earliest timestamp behind it, ms, if at least `SEVERAL` are more than `SLACK` earlier; otherwise
    its own.

    ``timestamp``: its Kafka timestamp, ms.
    ``behind``: timestamps of the next `BEHIND` records of its topic, ms; fewer if there are no more.
    """
    earlier = [each for each in behind if timestamp - each > SLACK]
    return min(earlier) if len(earlier) >= SEVERAL else timestamp


def believed_head(records: Iterable[KafkaRecord]) -> int:
    """Return the time by which the first of some records of a topic is merged, ms; see `believed`."""
    first, *behind = (record.timestamp for record in islice(records, BEHIND + 1))
    return believed(first, behind)


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition, in the order in which they are folded."""

    #: Number of the partition.
    partition: int
    #: The records: at least one, unless the batch is a tick.
    records: list[Merged]
    #: Next offset of each source topic-partition, to commit when all effects are acknowledged.
    ends: dict[TopicPartition, int]
    #: The run of the buffer to which the batch belongs. Batches of earlier runs no longer have an effect.
    epoch: int
    #: If the records were folded before a crash: the last journal entry that has some of them. None: they are new.
    again: Entry | None = None
    #: Whether it has the last record of that entry.
    ended: bool = True
    #: For a batch without records: the time to which stream time moves, ms.
    tick: int = 0
    #: Number of the batch's turn; 0 if it is not in a turn with others.
    turn: int = 0


class RewrittenError(ValueError):
    """An input no longer holds the records that were applied.

    ``place``: the topic-partition.
    ``offset``: offset of the first record that is known to differ.
    """

    def __init__(self, place: TopicPartition, offset: int) -> None:
        super().__init__(
            f"{place.topic}/{place.partition} offset {offset} is not the record that was applied before: the topic was "
            "cut, or recreated, and its offsets were given to other records. Restore the topic, or give the worker "
            "another TRUEUP_APP_ID"
        )


@dataclass(slots=True)
class PartitionBuffer:
    """The buffered records of one partition. A new buffer takes its place if they have to be fetched again."""

    partition: int
    sources: Sequence[TopicPartition]
    epoch: int = field(default_factory=_EPOCHS.__next__)
    #: Whether a batch is being folded; and the batches that are not acknowledged yet.
    busy: bool = False
    out: deque[Batch] = field(default_factory=deque)
    #: Journal entries whose records are folded again first; and how many records of the first entry were taken.
    journal: deque[Entry] = field(default_factory=deque)
    taken: int = 0
    #: Offset and content of each topic's last applied record, until it has been read once more.
    known: list[tuple[int, Last]] = field(default_factory=lambda: [(-1, NONE), (-1, NONE)])
    buffers: tuple[deque[KafkaRecord], deque[KafkaRecord]] = field(default_factory=lambda: (deque(), deque()))
    #: Bytes of the keys and values in each buffer.
    sizes: list[int] = field(default_factory=lambda: [0, 0])
    held_since: float | None = None
    #: The topic-partition that needs more records to place its head, at most `BEHIND`; None if neither does.
    awaited: TopicPartition | None = None

    def begin(self, fence: Sequence[int], journal: Journal) -> None:
        """Begin after the last checkpoint, at its next offsets and with the journal's entries."""
        self.journal.extend(journal.entries)
        self.known = [(offset - 1, each) for offset, each in zip(fence, journal.last, strict=True)]

    def add(self, topic: int, records: Sequence[KafkaRecord]) -> None:
        """Buffer records of a topic, in the order of their offsets.

        Raises RewrittenError if the first record has the offset of the last applied one, and differs from it.
        """
        offset, known = self.known[topic]
        if records and records[0].offset <= offset:
            first, records = records[0], records[1:]
            if known not in (NONE, last(first.timestamp, first.value)):
                raise RewrittenError(self.sources[topic], first.offset)
        self.known[topic] = -1, NONE
        self.buffers[topic].extend(records)
        self.sizes[topic] += sum(map(_size, records))

    def queues(self) -> Iterator[tuple[TopicPartition, deque[KafkaRecord]]]:
        """Yield the buffered records of each topic."""
        return zip(self.sources, self.buffers, strict=True)

    def take(
        self,
        limit: int,
        size: int,
        reading: ReadPositions,
        patience: float,
        clock: Callable[[], float] = monotonic,
        *,
        until: int = NEVER,
    ) -> Batch | None:
        """Return the next batch and mark the buffer busy; None if there is none.

        ``limit, size``: the most records, and the most bytes of their keys and values; a single record may be larger.
        ``reading``: how far the topics have been read.
        ``patience``: seconds that a topic that lags behind may hold the other back.
        ``until``: take no new record with a later time, ms.
        """
        if self.busy or len(self.out) == OUTSTANDING:
            return None
        entry, tick = self.journal[0] if self.journal else None, 0
        if entry is not None:
            tick = entry.tick
            records = self._again(entry, limit, size)
        elif self.behind:
            return None
        else:
            records = self._new(limit, size, reading, patience, clock, until)
        if not records and not tick:
            return None
        return self._made(records, entry, tick)

    @property
    def behind(self) -> bool:
        """Whether there are still records to be folded again that were answered before; another thread may ask."""
        return bool(self.journal) or any(batch.again for batch in list(self.out))

    @property
    def empty(self) -> bool:
        """Whether nothing is buffered."""
        return not (self.journal or any(self.buffers))

    @property
    def idle(self) -> bool:
        """Whether nothing is buffered and nothing is in progress."""
        return self.empty and not (self.busy or self.out)

    def tick(self, now: int) -> Batch:
        """Return a batch without records that moves stream time to a time, ms; call it while `idle`."""
        return self._made([], None, now)

    def _made(self, records: list[Merged], entry: Entry | None, tick: int) -> Batch:
        """Return a batch. It counts as taken from now on."""
        self.held_since = None
        self.busy = True
        ends: dict[TopicPartition, int] = {}
        for topic, record in reversed(records):  # last record of each topic
            if self.sources[topic] not in ends:
                ends[self.sources[topic]] = record.offset + 1
                if len(ends) == len(self.sources):
                    break
        batch = Batch(self.partition, records, ends, self.epoch, entry, not self.taken, tick)
        self.out.append(batch)
        return batch

    def acknowledged(self, batch: Batch) -> None:
        """Note that all effects of a batch are acknowledged.

        Raises RuntimeError if an earlier batch is not acknowledged: offsets are committed up to the end of this one.
        """
        if self.out.popleft() is not batch:
            raise RuntimeError(f"a batch of partition {self.partition} was acknowledged before the one that it follows")

    def _again(self, entry: Entry, limit: int, size: int) -> list[Merged]:
        """Take records of a journal entry, in its order.

        Raises RewrittenError if they are not the records that were folded.
        """
        records: list[Merged] = []
        while len(records) < limit and size > 0 and self.taken < len(entry.topics):
            topic = entry.topics[self.taken]
            buffer = self.buffers[topic]
            if not buffer:
                break
            record = buffer.popleft()
            taken = _size(record)
            self.sizes[topic] -= taken
            size -= taken
            self.taken += 1
            is_last = entry.topics.find(topic, self.taken) < 0
            if is_last != (record.offset == entry.ends[topic] - 1) or (
                is_last and entry.last[topic] != last(record.timestamp, record.value)
            ):
                raise RewrittenError(self.sources[topic], record.offset)
            records.append((topic, record))
        if self.taken == len(entry.topics):
            self.taken = 0
            self.journal.popleft()
        return records

    def _new(
        self,
        limit: int,
        size: int,
        reading: ReadPositions,
        patience: float,
        clock: Callable[[], float],
        until: int,
    ) -> list[Merged]:
        """Take new records in the order of their times."""
        self.awaited = None
        forecasts, outcomes = self.buffers
        records: list[Merged] = []
        heads = [_time(forecasts), _time(outcomes)]
        #: Believed time of each head that is far ahead; None until needed.
        ahead: list[int | None] = [None, None]
        #: Whether a head waits only because too few of the records behind it are known.
        guessed = [False, False]
        free = False
        while len(records) < limit and size > 0 and (forecasts or outcomes):
            topic = 0 if heads[0] <= heads[1] else 1
            if not (forecasts and outcomes):
                if not free:
                    free = reading.caught_up(self.sources[1 - topic]) or self._out_of_patience(patience, clock)
                    if not free:
                        break
            elif heads[1 - topic] - heads[topic] > SLACK:
                later = 1 - topic
                time = ahead[later]
                if time is None:
                    if not (self._knows_behind(later, reading) or self._out_of_patience(patience, clock)):
                        self.awaited = self.sources[later]
                        break
                    time = ahead[later] = believed_head(self.buffers[later])
                if time < heads[topic] or (time == heads[topic] and not later):
                    topic = later
                elif len(self.buffers[later]) <= BEHIND:
                    guessed[later] = True
            if guessed[topic]:
                break
            buffer = outcomes if topic else forecasts
            if heads[topic] > until and believed_head(buffer) > until:
                break
            record = buffer.popleft()
            heads[topic] = _time(buffer)
            ahead[topic] = None
            taken = _size(record)
            self.sizes[topic] -= taken
            size -= taken
            records.append((topic, record))
        return records

    def _knows_behind(self, topic: int, reading: ReadPositions) -> bool:
        """Whether the records behind a topic's head are buffered, as far as there are any."""
        return len(self.buffers[topic]) > BEHIND or reading.caught_up(self.sources[topic])

    def _out_of_patience(self, patience: float, clock: Callable[[], float]) -> bool:
        now = clock()
        if self.held_since is None:
            self.held_since = now
        return now - self.held_since >= patience


def _time(buffer: deque[KafkaRecord]) -> int:
    """Return the timestamp of a buffer's first record, ms. For an empty buffer it is later than all others."""
    return buffer[0].timestamp if buffer else NEVER


def _size(record: KafkaRecord) -> int:
    return len(record.value or b"") + len(record.key or b"")
