"""The merge of a partition's two input topics into one order, by record time.

A worker that catches up must not read an hour of forecasts before the first outcome: the order in which it learns
is part of the result. So the record with the smaller timestamp goes first, a forecast before an outcome of the same
millisecond, and a topic with nothing buffered holds the other back until it is known to have no more. Given which
offsets a batch spans, its order is a function of the records alone, of these and of the few behind them.

A record that is stamped ahead of its neighbours must not hold back its topic until the other one has come as far:
forecasts would be read, and expire, before their outcomes. So a head that is more than `SLACK` later than the other
one, and than most of the few records behind it, goes when the earliest of these would (`believed`). After a quiet
night the records behind the first one confirm it. Nothing is remembered: a restart anywhere finds the same order.
Where the records behind a head are not there yet, it waits for its time, and a batch ends before it: what comes behind
it later does not change the order of a batch that was made.

Records that were folded since the last checkpoint come again after a crash. They go along the journal, in the order in
which they went (`state.journal`). New ones wait until all of these are answered.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from time import monotonic
from typing import Final, Protocol

from faust.types import TP

from state.engine import OUTSTANDING
from state.journal import NONE, Entry, Journal, Last, last
from state.witnesses import SEVERAL, SLACK
from streams.sources.references import Headers


class ReadPositions(Protocol):
    """How far the topics have been read."""

    def caught_up(self, tp: TP) -> bool:
        """Whether a topic-partition has nothing more to fetch, as far as is known."""


class KafkaRecord(Protocol):
    """A record of a topic, however it was read."""

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

#: How many records behind a head are looked at: of a head and these, fewer than `SEVERAL` may be far ahead.
BEHIND: Final = 2 * (SEVERAL - 1)

#: Epochs are never used again, not even by another buffer of a partition that went and came back.
_EPOCHS: Final = count()


def believed(timestamp: int, behind: Iterable[int]) -> int:
    """Return the time by which a record is merged that is more than `SLACK` later than the head of the other topic.

    Parameters
    ----------
    timestamp
        Its Kafka timestamp, ms.
    behind
        Those of the next `BEHIND` records of its topic, ms; of fewer where there are no more.

    Returns
    -------
    int
        The earliest of those behind it, ms, if at least `SEVERAL` of them are more than `SLACK` earlier; else its own.
    """
    earlier = [each for each in behind if timestamp - each > SLACK]
    return min(earlier) if len(earlier) >= SEVERAL else timestamp


def believed_head(records: Iterable[KafkaRecord]) -> int:
    """Return the time by which the first of some records of a topic is merged, ms; see `believed`."""
    first, *behind = (record.timestamp for record in islice(records, BEHIND + 1))
    return believed(first, behind)


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition, in the order in which they are folded.

    Attributes
    ----------
    partition
        Number of the partition.
    records
        At least one, unless it is a tick.
    ends
        Next offset of each topic-partition the records came from, to commit when all effects are acknowledged.
    epoch
        Which run of the buffer the batch belongs to; a batch of an earlier one changes nothing any more.
    again
        The last journal entry it has records of, where they were folded before a crash; None: they are new.
    ended
        Whether it has the last of that entry's records.
    tick
        Where it has no records: up to which time stream time goes, ms.
    turn
        Number of the turn that it goes with; 0: it goes alone.
    """

    partition: int
    records: list[Merged]
    ends: dict[TP, int]
    epoch: int
    again: Entry | None = None
    ended: bool = True
    tick: int = 0
    turn: int = 0


class RewrittenError(ValueError):
    """An input does not hold the records any more that were applied.

    Parameters
    ----------
    place
        The topic-partition.
    offset
        Of the first record that is known to be another one.
    """

    def __init__(self, place: TP, offset: int) -> None:
        super().__init__(
            f"{place.topic}/{place.partition} offset {offset} is not the record that was applied before: the topic was "
            "cut, or made anew, and its offsets were given to other records. Restore the topic, or give the worker "
            "another TRUEUP_APP_ID"
        )


@dataclass(slots=True)
class PartitionBuffer:
    """What is buffered of one partition."""

    partition: int
    sources: Sequence[TP]
    epoch: int = field(default_factory=_EPOCHS.__next__)
    #: Whether a batch is being folded, and those that were taken and are not acknowledged.
    busy: bool = False
    out: deque[Batch] = field(default_factory=deque)
    #: Entries whose records are folded again before any other, and how many of the first one's records were taken.
    journal: deque[Entry] = field(default_factory=deque)
    taken: int = 0
    #: Offset and content of the last record of each topic that is in the rows, until it was read once more.
    known: list[tuple[int, Last]] = field(default_factory=lambda: [(-1, NONE), (-1, NONE)])
    buffers: tuple[deque[KafkaRecord], deque[KafkaRecord]] = field(default_factory=lambda: (deque(), deque()))
    #: Bytes of the keys and values in each buffer.
    sizes: list[int] = field(default_factory=lambda: [0, 0])
    held_since: float | None = None
    #: Of which source more has to be read to say when its head goes, at most `BEHIND` records; None: of neither.
    awaited: TP | None = None

    def begin(self, fence: Sequence[int], journal: Journal) -> None:
        """Begin behind the last checkpoint: with the next offset of each topic, and what was folded since."""
        self.journal.extend(journal.entries)
        self.known = [(offset - 1, each) for offset, each in zip(fence, journal.last, strict=True)]

    def add(self, topic: int, records: Sequence[KafkaRecord]) -> None:
        """Buffer records of a topic, in the order of their offsets.

        Raises
        ------
        RewrittenError
            If the first one has the offset of the last that is in the rows, and is another.
        """
        offset, known = self.known[topic]
        if records and records[0].offset <= offset:
            first, records = records[0], records[1:]
            if known not in (NONE, last(first.timestamp, first.value)):
                raise RewrittenError(self.sources[topic], first.offset)
        self.known[topic] = -1, NONE
        self.buffers[topic].extend(records)
        self.sizes[topic] += sum(map(_size, records))

    def queues(self) -> Iterator[tuple[TP, deque[KafkaRecord]]]:
        """Yield what is buffered of each topic."""
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
        """Return the next batch and mark the buffer busy, or None while there is none to be had.

        Parameters
        ----------
        limit, size
            Most records, and most bytes of their keys and values; one record may be larger.
        reading
            How far the topics have been read.
        patience
            Seconds a topic that is not caught up may hold the other back.
        until
            Take no new record of a later time, ms.
        """
        if self.busy or len(self.out) == OUTSTANDING:
            return None
        entry, tick = self.journal[0] if self.journal else None, 0
        if entry is not None:
            tick = entry.tick
            records = self._again(entry, limit, size)
        elif any(batch.again for batch in self.out):
            return None
        else:
            records = self._new(limit, size, reading, patience, clock, until)
        if not records and not tick:
            return None
        return self._made(records, entry, tick)

    @property
    def empty(self) -> bool:
        """Whether nothing is buffered."""
        return not (self.journal or any(self.buffers))

    @property
    def idle(self) -> bool:
        """Whether nothing is buffered and nothing is on its way."""
        return self.empty and not (self.busy or self.out)

    def tick(self, now: int) -> Batch:
        """Return a batch without records that lets stream time go on to a time, ms; to be asked while `idle`."""
        return self._made([], None, now)

    def _made(self, records: list[Merged], entry: Entry | None, tick: int) -> Batch:
        """Return a batch that is out from now on."""
        self.held_since = None
        self.busy = True
        ends: dict[TP, int] = {}
        for topic, record in reversed(records):  # the last of each topic
            if self.sources[topic] not in ends:
                ends[self.sources[topic]] = record.offset + 1
                if len(ends) == len(self.sources):
                    break
        batch = Batch(self.partition, records, ends, self.epoch, entry, not self.taken, tick)
        self.out.append(batch)
        return batch

    def acknowledged(self, batch: Batch) -> None:
        """Note that all effects of a batch are acknowledged.

        Raises
        ------
        RuntimeError
            If those of a batch before it are not: offsets are committed up to the end of this one.
        """
        if self.out.popleft() is not batch:
            raise RuntimeError(f"a batch of partition {self.partition} was acknowledged before the one that it follows")

    def _again(self, entry: Entry, limit: int, size: int) -> list[Merged]:
        """Take records of a journal entry, in its order.

        Raises
        ------
        RewrittenError
            If they are not the records that were folded.
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
        """Take new records by their time."""
        self.awaited = None
        forecasts, outcomes = self.buffers
        records: list[Merged] = []
        heads = [_time(forecasts), _time(outcomes)]
        #: Of a head that is far ahead of the other: the time it is merged by; None while nobody asked.
        ahead: list[int | None] = [None, None]
        #: Whether a head waits, and might not if more were known of what stands behind it.
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
        """Whether what stands behind the head of a topic is buffered, as far as there is any."""
        return len(self.buffers[topic]) > BEHIND or reading.caught_up(self.sources[topic])

    def _out_of_patience(self, patience: float, clock: Callable[[], float]) -> bool:
        now = clock()
        if self.held_since is None:
            self.held_since = now
        return now - self.held_since >= patience

    def restart(self) -> None:
        """Forget what is buffered and what is out; the records will be fetched again."""
        self.epoch = next(_EPOCHS)
        self.busy = False
        self.out.clear()
        self.journal.clear()
        self.taken = 0
        self.known = [(-1, NONE), (-1, NONE)]
        self.held_since = self.awaited = None
        self.sizes = [0, 0]
        for buffer in self.buffers:
            buffer.clear()


def _time(buffer: deque[KafkaRecord]) -> int:
    """Return when the first record of a buffer was written, ms; after everything else where there is none."""
    return buffer[0].timestamp if buffer else NEVER


def _size(record: KafkaRecord) -> int:
    return len(record.value or b"") + len(record.key or b"")
