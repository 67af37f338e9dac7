"""Takes fetched records: inputs go to a buffer of their partition, changelog records go to the table."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from aiokafka.errors import OffsetOutOfRangeError
from faust.types import TP
from faust.types.tuples import ConsumerMessage
from mode import Service, ServiceT

from streams.faust.inputs import deleted, unread
from streams.faust.membership import Member
from streams.faust.stores import DamagedStoreError
from streams.records.merge import BEHIND, KafkaRecord, PartitionBuffer

#: Longest wait for fetched records before positions are checked again, s: control records move them without records.
FETCH_TIMEOUT = 0.2


class Buffering(Member):
    """A consumer that buffers what it fetches; see the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Faust calls it
        super().__init__(*args, **kwargs)
        self.partition_buffers: dict[int, PartitionBuffer] = {}
        self._throttled: set[TP] = set()
        #: Next offset to buffer of each source partition.
        self._handed: dict[TP, int] = {}
        #: Counts seeks, so that a fetch can tell whether one happened meanwhile.
        self._seeks = 0
        #: Partitions whose fetched records were dropped.
        self._dropped: set[TP] = set()
        #: Whether copies of assigned partitions may still be open. Until they are closed, nobody else may open the
        #: rows.
        self._copying = False

    def hand_out(self) -> None:
        """Hand out the next turn, if there are records for it."""
        raise NotImplementedError

    async def _drain_messages(self, fetcher: ServiceT) -> None:
        """Fetch until stopped: source records into the buffers, changelog records into the table."""
        stops = cast("Service", fetcher)
        try:
            while not (self.should_stop or stops.should_stop):
                await self._seek_back()
                # If it is cancelled just as the seek ends, `asyncio.wait_for` of Python 3.11 returns as if it were not.
                if not stops.should_stop:
                    await self._take_next()
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise
        except Exception as exc:  # noqa: BLE001 - after any error records are missing
            self.inputs.failed(exc)

    async def _take_next(self) -> None:
        seeks, taken = self._seeks, await self._fetched()
        for tp, fetched in taken.items():
            if seeks != self._seeks or not self.flow_active or not self._taken_in(tp):
                self._dropped.add(tp)
            elif self._is_changelog_tp(tp):
                await self._restore(tp, fetched)
            else:
                self._buffer(tp, fetched)
        if seeks == self._seeks and not self._dropped:
            # Only now are all records that left the fetcher in the buffers.
            self._note_positions()
        if self.flow_active:
            self._throttle()
            self.hand_out()

    def _taken_in(self, tp: TP) -> bool:
        """Whether records may be taken: of the changelog always, of inputs once their partition is taken up.

        Otherwise a recovery that a rebalance overtakes would let them through earlier.
        """
        return self._is_changelog_tp(tp) or tp.partition in self.partition_buffers

    async def _fetched(self) -> Mapping[TP, list[KafkaRecord]]:
        try:
            records, _ = await self._wait_next_records(FETCH_TIMEOUT)
        except OffsetOutOfRangeError as exc:
            await self._out_of_range(*exc.args)
            return {}
        return cast("Mapping[TP, list[KafkaRecord]]", records or {})

    async def _seek_back(self) -> None:
        """Seek back to records that were dropped.

        A fetch may be in flight while a rebalance or a recovery seeks elsewhere. Its records are dropped, because they
        may be from before the seek. But the fetcher counts them as delivered, and would go on after them.

        The stored offset of rows is read only while no other thread uses the database. Copies may be open elsewhere,
        and claimed partitions are vetted in another thread, which may set them aside.
        """
        if not self._dropped or self._copying or self._claims:
            return
        assigned = self.assignment()
        dropped = {tp for tp in self._dropped if tp in assigned}
        self._dropped.clear()
        try:
            positions = {
                tp: self.table.following(tp.partition) if self._is_changelog_tp(tp) else self._handed[tp]
                for tp in dropped
                if self._is_changelog_tp(tp) or tp in self._handed
            }
        except DamagedStoreError as exc:
            self.repair(exc)  # all assigned partitions seek again
            return
        if positions:
            await self._thread.seek_wait(positions)

    async def _out_of_range(self, positions: Mapping[TP, int]) -> None:
        """Go on with the first remaining record of partitions whose next record is gone.

        Raises DataLossError if the worker must stop on lost records, or the topic never had such an offset.
        """
        for tp, position in positions.items():
            earliest, end = (await self.earliest_offsets(tp))[tp], (await self.highwaters(tp))[tp]
            if self._thread.reach(tp)[0] != position:  # the partition has moved, or its position was changed meanwhile
                continue
            if not deleted(tp, position, earliest, end):
                continue
            known = self._buffer_of(tp.partition).known[self.inputs.sources.index(tp.topic)][0]
            # Records up to the known one were applied. They are only read once more.
            if (unread := max(position, known + 1)) < earliest:
                self._lose(tp, unread, earliest)
            await self.seek_wait({tp: earliest})
            self._handed[tp] = earliest

    def _lose(self, tp: TP, position: int, earliest: int) -> None:
        """Count records that were deleted before they were read, from a position up to the first that remains.

        Raises DataLossError if the worker must stop on it.
        """
        self.log.error(unread(tp, position, earliest, self.inputs.settings))
        self.inputs.lost(tp, earliest - position)

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Seek, and drop fetches that are in flight."""
        self._seeks += 1
        await super().seek_wait(partitions)
        self._seeks += 1

    def _buffer(self, tp: TP, records: list[KafkaRecord]) -> None:
        self._buffer_of(tp.partition).add(self.inputs.sources.index(tp.topic), records)
        self._handed[tp] = records[-1].offset + 1

    def _note_positions(self) -> None:
        for partition_buffer in self.partition_buffers.values():
            for tp in partition_buffer.sources:
                position, _ = self._thread.reach(tp)
                if position is not None:
                    self._handed[tp] = position

    def caught_up(self, tp: TP) -> bool:
        """Whether all records that the broker had at the last fetch are buffered or processed."""
        handed, (_, end) = self._handed.get(tp), self._thread.reach(tp)
        return handed is not None and end is not None and handed >= end

    def paused(self, tp: TP) -> bool:
        """Whether fetching of a source partition is paused because its buffer is full."""
        return tp in self._throttled

    def lag(self, tp: TP) -> int | None:
        """Return how many records are appended and not yet handed to the agent, if known."""
        handed, (_, end) = self._handed.get(tp), self._thread.reach(tp)
        partition_buffer = self.partition_buffers.get(tp.partition)
        if handed is None or end is None or partition_buffer is None:
            return None
        return max(end - handed, 0) + len(partition_buffer.buffers[self.inputs.sources.index(tp.topic)])

    def _buffer_of(self, partition: int) -> PartitionBuffer:
        partition_buffer = self.partition_buffers.get(partition)
        if partition_buffer is None:
            sources = [TP(topic, partition) for topic in self.inputs.sources]
            partition_buffer = self.partition_buffers[partition] = PartitionBuffer(partition, sources)
        return partition_buffer

    async def _restore(self, tp: TP, records: list[KafkaRecord]) -> None:
        """Write recovered records at once. Pass the last one to Faust's recovery, which shows its progress."""
        try:
            self.inputs.restore(tp, records)
        except DamagedStoreError as exc:
            self.repair(exc)
            return
        last = records[-1]
        message = self._made(tp, last.offset, last.timestamp, last.key, last.value)
        # A rebalance may stop the flow meanwhile, and the callback may wait for something that comes only after that.
        await self.wait_first(self.callback(message), self.suspend_flow.wait())

    def _made(self, tp: TP, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> ConsumerMessage:
        generation, seconds = self.app.consumer_generation_id, timestamp / 1000
        return ConsumerMessage(*tp, offset, seconds, 0, None, key, value, None, tp=tp, generation_id=generation)

    def _throttle(self) -> None:
        """Pause fetching of a topic that is far ahead of its partner or the agent; resume at half its buffer.

        Records that the merge waits for are always fetched, but only a few, because the batch before them may wait
        long, for example for a schema registry.
        """
        settings = self.inputs.settings
        limit, share = settings.buffer_records, settings.buffer_bytes / max(2 * len(self.partition_buffers), 1)
        fill = {
            tp: 0.0
            if partition_buffer.awaited == tp and len(buffer) <= BEHIND
            else max(len(buffer) / limit, size / share)
            for partition_buffer in self.partition_buffers.values()
            for tp, buffer, size in zip(
                partition_buffer.sources, partition_buffer.buffers, partition_buffer.sizes, strict=True
            )
        }
        pause = [tp for tp, full in fill.items() if full >= 1.0 and tp not in self._throttled]
        resume = [tp for tp in self._throttled if fill.get(tp, 0.0) <= 0.5]
        if pause or resume:
            self._throttled.update(pause)
            self._throttled.difference_update(resume)
            self._thread.throttle(pause, resume)
