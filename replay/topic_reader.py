"""Reads partitions of topics between given offsets, as workers read their inputs."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.config.settings import Settings
from streams.faust import unpacking
from streams.kafka import standstill
from streams.kafka.standstill import Standstill
from streams.kafka.topics import TopicsError
from streams.kafka.whole_topics import FETCH_BYTES
from streams.records.merge import KafkaRecord
from streams.records.skips import PoisonError

T = TypeVar("T")

#: How long a broker waits for records, ms. Only after that does it answer other requests.
FETCH_WAIT_MS: Final = 10


class Extent(NamedTuple):
    """Where a partition of a topic begins and ends: the first kept offset, and the next offset."""

    first: int
    end: int


class TopicReader:
    """Reads partitions of topics up to known ends. It is a context, and is connected inside it.

    ``settings``: which brokers to use.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._consumer: Any = None
        #: Records that workers skipped, and why: by topic and partition, then by offset.
        self.skipped: dict[tuple[str, int], dict[int, str]] = {}
        #: The most bytes that a batch of a topic may unpack to; None for no bound.
        self._unpacks: dict[str, int | None] = {}

    def __enter__(self) -> Self:
        try:
            self._run(self._start())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        if self._consumer is not None:
            self._run(self._consumer.stop())
        self._runner.close()

    async def _start(self) -> None:
        self._consumer = AIOKafkaConsumer(
            enable_auto_commit=False,
            auto_offset_reset="none",  # a deletion during reading must not go unnoticed
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            isolation_level="read_committed",  # as a worker reads its inputs
            **self._settings.client_options(),
        )
        await self._consumer.start()
        unpacking.bound(self._consumer, self._unpacks.get, lambda place: self.skipped.get(place, {}))

    def extents(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Extent]:
        """Return the extents of partitions. The ends are asked for one topic after another, in this order."""
        ends: dict[TopicPartition, int] = {}
        for _, each in groupby(places, attrgetter("topic")):
            ends |= self._run(self._consumer.end_offsets(list(each)))
        first = self._run(self._consumer.beginning_offsets(places))
        return {place: Extent(first[place], ends[place]) for place in places}

    def at(self, place: TopicPartition, timestamp: int) -> int | None:
        """Return the offset of the first record of a partition from a time (ms) on; None if all are earlier."""
        found = self._run(self._consumer.offsets_for_times({place: timestamp}))[place]
        return None if found is None else int(found.offset)

    def leave_out(self, skipped: Iterable[tuple[str, int, int, str]]) -> None:
        """Leave out records from now on: for each, topic, partition, offset and why."""
        for topic, number, offset, why in skipped:
            self.skipped.setdefault((topic, number), {})[offset] = why

    def stretches(
        self, places: Mapping[TopicPartition, tuple[int, int]], unpacked_bytes: int | None = None
    ) -> list[Iterator[KafkaRecord]]:
        """Return the records of several partitions, each between two offsets. Nothing else may be read meanwhile.

        ``unpacked_bytes``: most bytes that a batch may unpack to; None for no bound.
        """
        self._unpacks.update((place.topic, unpacked_bytes) for place in places)
        self.begin({place: first for place, (first, _) in places.items()})
        return [self.records(place, [(end, None)]) for place, (_, end) in places.items()]

    def begin(self, places: Mapping[TopicPartition, int]) -> None:
        """From now on read only these partitions, each from an offset."""
        self._run(self._assign(places))

    async def _assign(self, places: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign(list(places))
        for place, offset in places.items():
            self._consumer.seek(place, offset)

    def records(self, place: TopicPartition, stretches: Sequence[tuple[int, int | None]]) -> Iterator[KafkaRecord]:
        """Yield records; ``stretches``: up to which offsets, each with the most bytes that a batch may unpack to."""
        position = int(self._run(self._consumer.position(place)))
        still, (last, _) = Standstill(self._runner.get_loop().time), stretches[-1]
        for n, (end, limit) in enumerate(stretches):
            if n and position < end:
                self._unpacks[place.topic] = limit
                self._consumer.seek(place, position)  # earlier fetches had the previous limit
            while position < end:
                found, position = self._run(self._next(place))
                if found and found[-1].offset >= end:
                    position = end
                    yield from [each for each in found if each.offset < end]
                    break
                yield from found
                if still.at(last - position):
                    raise TopicsError(
                        f"{place.topic}/{place.partition} gave nothing for {standstill.STILL_SECONDS:g} s at offset "
                        f"{position}. Does the broker that leads it answer?",
                        lasting=False,
                    )

    async def _next(self, place: TopicPartition) -> tuple[list[KafkaRecord], int]:
        try:
            batches = await self._consumer.getmany(place, timeout_ms=500)
        except PoisonError as exc:
            raise TopicsError(str(exc)) from exc
        return batches.get(place, []), await self._consumer.position(place)

    def _run(self, done: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(done)
