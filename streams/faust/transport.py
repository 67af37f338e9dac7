"""The batch transport: whole fetches instead of single messages, on Faust's own extension points.

Stock Faust spends about 60 µs of event-loop machinery on every message, loses queued events in a rebalance, and
commits past gaps. This consumer replaces that path: it buffers what is fetched, merges each partition's two topics
by time (`records.merge`), hands the agent one batch of a partition at a time, and commits the offsets of a batch
once it is acknowledged. Changelog records go straight to the table. Faust still owns the consumer group, the
assignment, the recovery and the life of the process.

The methods overridden are not documented API: faust-streaming is pinned to one version, and each override has a
test of its name.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, ClassVar, cast

from aiokafka.errors import OffsetOutOfRangeError
from faust.tables.recovery import RebalanceAgain
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, Message
from faust.types.tuples import ConsumerMessage
from mode import Service, ServiceT

from state.journal import Journal
from streams.faust.contact import Contact
from streams.faust.fetching import Thread
from streams.faust.inputs import DataLossError, Inputs
from streams.faust.membership import Member
from streams.faust.places import Places
from streams.faust.producing import BatchProducer
from streams.faust.standbys import Standbys
from streams.faust.stores import DamagedStoreError
from streams.faust.turns import Turn, Turns
from streams.kafka.transactions import HeldBack
from streams.records.merge import BEHIND, Batch, KafkaRecord, PartitionBuffer, RewrittenError

#: How long to wait for fetched records before looking at positions again, s: control records move them silently.
FETCH_TIMEOUT = 0.2
#: How often to look whether something falls due by the clock where nothing comes, s, and whether patience ran out.
TICK_SECONDS, WANT_SECONDS = 0.1, 0.5


class BatchConsumer(Member):
    """Delivers batches; see the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Faust calls it
        super().__init__(*args, **kwargs)
        self.partition_buffers: dict[int, PartitionBuffer] = {}
        settings = self.inputs.settings
        # Each partition of a router writes to every partition of the outcomes.
        self._turns = Turns(
            settings.batch_records, settings.batch_bytes, settings.patience_seconds, together=bool(settings.routed)
        )
        self._committable: dict[TP, int] = {}
        self.held_back = HeldBack(self.inputs.settings.brokers)
        #: Offsets the brokers have confirmed.
        self._confirmed: dict[TP, int] = {}
        self._throttled: set[TP] = set()
        #: When it was last looked whether quiet partitions have something to do, s.
        self._ticked = 0.0
        #: Next offset of each source partition that has not been buffered here yet.
        self._handed: dict[TP, int] = {}
        #: Counts seeks, so that a fetch knows whether one came between.
        self._seeks = 0
        #: Partitions whose fetched records were dropped.
        self._dropped: set[TP] = set()
        self._wanted = asyncio.Event()
        #: Whether copies of what is assigned may be open here: until they are let go of, nobody else opens the rows.
        self._copying = False
        #: Counts revocations, so that who takes partitions up knows whether one came between.
        self._revocations = 0

    def _new_consumer_thread(self) -> Thread:
        return Thread(self, loop=self.loop, beacon=self.beacon)

    # -- from the brokers to the buffers ---------------------------------------------------------------------------

    async def _drain_messages(self, fetcher: ServiceT) -> None:
        """Fetch until stopped: source records into the buffers, changelog records into the table."""
        try:
            while not (self.should_stop or cast("Service", fetcher).should_stop):
                await self._seek_back()
                await self._take_next()
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise
        except Exception as exc:  # noqa: BLE001 - whatever it is, records are missing now
            self.inputs.failed(exc)

    async def _take_next(self) -> None:
        """Take what was fetched next."""
        seeks, taken = self._seeks, await self._fetched()
        for tp, fetched in taken.items():
            if seeks != self._seeks or not self.flow_active or not self._taken_in(tp):
                self._dropped.add(tp)
            elif self._is_changelog_tp(tp):
                await self._restore(tp, fetched)
            else:
                self._buffer(tp, fetched)
        if seeks == self._seeks and not self._dropped:
            # Only now is everything that left the fetcher in the buffers.
            self._note_positions()
        if self.flow_active:
            await self._throttle()
            self._wanted.set()

    def _taken_in(self, tp: TP) -> bool:
        """Whether records of a topic-partition may be taken: those of inputs once the partition is taken up.

        A recovery that a rebalance has overtaken lets them flow before that.
        """
        return self._is_changelog_tp(tp) or tp.partition in self.partition_buffers

    async def _fetched(self) -> Mapping[TP, list[KafkaRecord]]:
        """Return the next records of each partition."""
        try:
            records, _ = await self._wait_next_records(FETCH_TIMEOUT)
        except OffsetOutOfRangeError as exc:
            await self._out_of_range(*exc.args)
            return {}
        return cast("Mapping[TP, list[KafkaRecord]]", records or {})

    async def _seek_back(self) -> None:
        """Go back to records that were dropped.

        A fetch may be on its way while a rebalance or a recovery seeks elsewhere. What it brings cannot be told from
        what should have come, so it is dropped; but the fetcher believes it delivered, and would go on behind it.

        Rows are asked how far they reach only while this thread alone has them. Copies may be open elsewhere, and what
        is claimed is vetted in another thread, which may be setting it aside.
        """
        if not self._dropped or self._copying or self._claims:
            return
        assigned = self.assignment()
        dropped = {tp for tp in self._dropped if tp in assigned}
        self._dropped.clear()
        try:
            positions = {
                tp: self.inputs.restored(tp.partition) if self._is_changelog_tp(tp) else self._handed[tp]
                for tp in dropped
                if self._is_changelog_tp(tp) or tp in self._handed
            }
        except DamagedStoreError as exc:
            self.repair(exc)  # all that was assigned is sought anew
            return
        if positions:
            await self._thread.seek_wait(positions)

    async def _out_of_range(self, positions: Mapping[TP, int]) -> None:
        """Go on with the first record that is left of partitions whose next record is not there.

        Raises
        ------
        DataLossError
            If the worker is to stop on lost records, or there never was such an offset in the topic.
        """
        for tp, position in positions.items():
            earliest, end = (await self.earliest_offsets(tp))[tp], (await self.highwaters(tp))[tp]
            if self._thread.reach(tp)[0] != position:  # it has moved, or somebody has sought elsewhere meanwhile
                continue
            if position >= earliest:
                raise DataLossError(
                    f"{tp.topic}/{tp.partition} was read up to offset {position}, but it ends at {end} now: was the "
                    "topic made anew? Restore it, or give the worker another TRUEUP_APP_ID"
                )
            self._lose(tp, position, earliest)
            await self.seek_wait({tp: earliest})
            self._handed[tp] = earliest

    def _lose(self, tp: TP, position: int, earliest: int) -> None:
        """Count records that were deleted unread, from a position up to the first that is left.

        Raises
        ------
        DataLossError
            If the worker is to stop on it.
        """
        message = (
            f"{earliest - position} records of {tp.topic}/{tp.partition} from offset {position} were deleted unread: "
            "lengthen the topic's retention; TRUEUP_DATA_LOSS=continue goes on without them"
        )
        if self.inputs.settings.data_loss == "stop":
            raise DataLossError(message)
        self.log.error(message)
        self.inputs.lost(tp, earliest - position)

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Seek, and let fetches that are on their way be dropped."""
        self._seeks += 1
        await super().seek_wait(partitions)
        self._seeks += 1

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:  # noqa: ASYNC109, ARG002 - Faust's name
        """Not used: `_drain_messages` takes whole fetches."""
        raise NotImplementedError
        yield

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
        """Whether everything the broker had at the last fetch is buffered or gone from here."""
        handed, (_, end) = self._handed.get(tp), self._thread.reach(tp)
        return handed is not None and end is not None and handed >= end

    def paused(self, tp: TP) -> bool:
        """Whether fetching of a source partition is stopped because enough of it is buffered."""
        return tp in self._throttled

    def lag(self, tp: TP) -> int | None:
        """Return how many records are appended and not yet handed to the agent, where known."""
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
        """Write recovered records at once, and show Faust's recovery the last one, which tells it how far it is."""
        try:
            self.inputs.restore(tp, records)
        except DamagedStoreError as exc:
            self.repair(exc)
            return
        await self._deliver(self._to_message(tp, records[-1]))

    async def _throttle(self) -> None:
        """Stop fetching what is far ahead of its partner or of the agent, start again when it has drained to half.

        What the merge waits for is fetched in any case: a few records, however large. No more: the batch before it may
        wait for long, for a schema registry say, and so does the merge.
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
            await self._thread.throttle(pause, resume)

    # -- from the buffers to the agent -----------------------------------------------------------------------------

    @Service.task
    async def _dispatch(self) -> None:
        """Hand out a turn: a batch of every partition that has records and whose last one is folded."""
        while not self.should_stop:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                turns = self._taken()
            except RewrittenError as exc:
                self.inputs.failed(exc)
                return
            for turn in turns:
                await self._deliver(self._message(turn))
            if self._throttled and self.flow_active:
                await self._throttle()

    @Service.task
    async def _want(self) -> None:
        """Ask for a turn now and then: patience with partitions that are held back runs out without an event."""
        while not self.should_stop:
            self._wanted.set()
            await asyncio.sleep(WANT_SECONDS)

    def _taken(self) -> list[Turn]:
        """Take the next batch of each partition, while the flow goes on. One that has to wait is a turn of its own."""
        if not self.flow_active:
            return []
        turn, alone = Turn(), []
        for batch in (*self._turns.take(list(self.partition_buffers.values()), self), *self._ticks()):
            if self.inputs.waits_for(batch):
                alone.append(Turn([batch]))
            else:
                turn.append(batch)
        return [turn, *alone] if turn else alone

    def _ticks(self) -> Iterator[Batch]:
        """Yield a batch without records of each partition that is quiet and where something falls due by the clock."""
        if self._ticked + TICK_SECONDS > monotonic():
            return
        self._ticked = monotonic()
        for partition, partition_buffer in self.partition_buffers.items():
            if partition_buffer.idle and all(map(self.caught_up, partition_buffer.sources)):
                now = self.inputs.tick(partition)
                if now:
                    yield partition_buffer.tick(now)

    def stop_flow(self) -> None:
        """Hand nothing out, and begin anew after it."""
        super().stop_flow()
        self._turns.begin()

    async def _deliver(self, message: Message) -> None:
        """Hand a message to Faust, unless the flow stops meanwhile."""
        held_up = self.app.topics._tp_to_callback_lock.locked()  # type: ignore[attr-defined]  # noqa: SLF001
        if self.flow_active and self.app.flow_control.is_active() and not held_up:
            # Mostly to its end at once; a queue that is full is emptied, or cleared in a rebalance.
            await self.callback(message)
        else:
            await self.wait_first(self.callback(message), self.suspend_flow.wait())

    def _message(self, turn: Turn) -> Message:
        batch = turn[0]
        tp, end = next(iter(batch.ends.items()), (TP(self.inputs.sources[0], batch.partition), 0))
        timestamp = batch.records[-1][1].timestamp if batch.records else batch.tick
        return self._made(tp, end - 1, timestamp, None, cast("bytes", turn))  # Faust hands the value on as it is

    def _to_message(self, tp: TP, record: KafkaRecord) -> ConsumerMessage:
        return self._made(tp, record.offset, record.timestamp, record.key, record.value)

    def _made(self, tp: TP, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> ConsumerMessage:
        generation = self.app.consumer_generation_id
        seconds = timestamp / 1000
        return ConsumerMessage(
            tp.topic, tp.partition, offset, seconds, 0, None, key, value, None, tp=tp, generation_id=generation
        )

    def holds(self, batch: Batch) -> bool:
        """Whether a batch's partition is still here, and has not been taken up anew since the batch was handed out."""
        partition_buffer = self.partition_buffers.get(batch.partition)
        return partition_buffer is not None and partition_buffer.epoch == batch.epoch

    # -- from the agent to the committed offsets -------------------------------------------------------------------

    def folded(self, turn: Turn) -> None:
        """Note that a turn is folded: the next batches of its partitions may be, too."""
        for batch in turn:
            if self.holds(batch):
                self.partition_buffers[batch.partition].busy = False
        self._want_more()

    def _want_more(self) -> None:
        """Ask for the next turn, if it would have something."""
        if self._throttled or not all(each.empty for each in self.partition_buffers.values()):
            self._wanted.set()

    def ack(self, message: Message) -> bool:
        """Note that all effects of a turn, and of those before it, are acknowledged: its offsets may be committed."""
        if not isinstance(message.value, Turn):
            return bool(super().ack(message))
        if message.acked:
            return True
        message.acked = True
        self._unacked_messages.discard(message)
        for batch in message.value:
            if self.holds(batch):
                try:
                    self.partition_buffers[batch.partition].acknowledged(batch)
                except RuntimeError as exc:
                    self.inputs.failed(exc)
                    return False
                self._committable.update(batch.ends)
        self._want_more()
        if self._waiting_for_ack is not None and not self._waiting_for_ack.done():
            self._waiting_for_ack.set_result(None)
        return True

    def _filter_tps_with_pending_acks(self, topics: Iterable[object] | None = None) -> Iterator[TP]:
        return (tp for tp in self._committable if topics is None or tp in topics or tp.topic in topics)

    def _new_offset(self, tp: TP) -> int | None:
        return self._committable.get(tp)

    def _should_commit(self, tp: TP, offset: int) -> bool:
        return self._confirmed.get(tp, -1) < offset

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit, and note what was: Faust takes offsets whose commit failed in a rebalance for committed."""
        done = await super()._commit(offsets)
        if done:
            self._confirmed.update(offsets)
        return done

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: Faust's check looks for messages where there are batches. See lag and last update instead."""

    def hold(self) -> None:
        """Hand nothing out until the flow is resumed, and drop what is buffered: it is fetched again."""
        self.stop_flow()
        for partition_buffer in self.partition_buffers.values():
            partition_buffer.restart()

    async def watched(self) -> None:
        """Look what lies behind open transactions."""
        sources = [tp for each in list(self.partition_buffers.values()) for tp in each.sources]
        ends = {tp: found for tp in sources if (found := self._thread.stable_end(tp)) is not None}
        client = cast("BatchProducer", self.app.producer)._ensure_producer().client  # noqa: SLF001 - of this folder
        await self.held_back.look(ends, client)

    # -- rebalances ------------------------------------------------------------------------------------------------

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Let go of the copies of what was assigned, and let recovery claim it."""
        self._ours = True
        standbys = cast("BatchTransport", self.transport).standbys
        if standbys is not None:
            served = {tp.partition for tp in assigned}
            try:
                await standbys.follow(self._assignor.copied - served, served)
            except Exception as exc:
                self.inputs.failed(exc)  # aiokafka only logs it, and nothing would be served
                raise
        self._copying = False
        self._asked_for = frozenset()
        self._assignor.lost.clear()
        await super().on_partitions_assigned(assigned, generation_id)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish what is in flight and commit it (Faust), then forget the partitions that leave."""
        self._ours = self._repairing = False
        self._copying = True
        self._revocations += 1
        await super().on_partitions_revoked(revoked)
        await self.inputs.checkpoint()
        await asyncio.gather(*self._claims, return_exceptions=True)
        for tp in revoked:
            self._committable.pop(tp, None)
            self._throttled.discard(tp)
            self._handed.pop(tp, None)
        for partition in {tp.partition for tp in revoked}:
            self.partition_buffers.pop(partition, None)
            self.inputs.revoked(partition)  # one that was claimed and not taken up, too
        self._revocations += 1  # who began to take them up meanwhile has lost them, too

    async def perform_seek(self) -> None:
        """Start every source partition behind the last checkpoint of its state, whatever offset is committed.

        What was folded since goes along the journal, see `state.journal`.

        Stock Faust lets the fetcher run meanwhile and clears the queues afterwards, which loses what was queued; so
        the flow is stopped first, and every buffer starts over.
        """
        self.hold()
        self._committable.clear()
        sources = [tp for tp in self.assignment() if tp.topic in self.inputs.sources]
        partitions = sorted({tp.partition for tp in sources})
        outputs = {n: [TP(topic, n) for topic in self.inputs.outputs] for n in partitions}
        asked = [*sources, *(tp for tps in outputs.values() for tp in tps)]
        committed, earliest, ends = await asyncio.gather(
            self._thread.committed(sources), self.earliest_offsets(*sources), self.highwaters(*asked)
        )
        try:
            taken_up = await self._taken_up({n: [ends[tp] for tp in tps] for n, tps in outputs.items()})
            places = Places(self.inputs, taken_up, committed, earliest, ends)
            await places.whole(self.highwaters)
            for tp, applied in places.lost().items():
                self._lose(tp, applied, earliest[tp])
                await places.forgo(tp)
            positions = places.positions()
        except RebalanceAgain:
            raise
        except DamagedStoreError as exc:
            self.repair(exc)
            raise RebalanceAgain from exc
        except Exception as exc:
            self.inputs.failed(exc)
            raise
        for partition, (fences, journal) in taken_up.items():
            self._buffer_of(partition).begin(fences, journal)
        self._handed.update(positions)
        await self.seek_wait(positions)
        new = places.uncommitted()
        if new and await self._commit(new):
            committed |= new
        if self._throttled:
            resume, self._throttled = list(self._throttled), set()
            await self._thread.throttle([], resume)
        self._confirmed = {tp: offset for tp, offset in committed.items() if offset is not None}

    async def _taken_up(self, partitions: Mapping[int, Sequence[int]]) -> dict[int, tuple[tuple[int, int], Journal]]:
        """Take partitions up and return what `Inputs.applied` does; let go of them if they are revoked meanwhile.

        Raises
        ------
        RebalanceAgain
            If they are.
        """
        revocations, taken_up = self._revocations, {}
        try:
            for partition, said in partitions.items():
                if not self.inputs.claimed(partition):  # a recovery that a rebalance has overtaken
                    raise RebalanceAgain
                taken_up[partition] = await self.inputs.applied(partition, said)
                if revocations != self._revocations:
                    raise RebalanceAgain
        except Exception:
            if revocations != self._revocations:
                raise RebalanceAgain from None
            raise
        finally:
            if revocations != self._revocations:
                again = {tp.partition for tp in self.assignment()} if self._ours else set()
                for partition in set(partitions) - again:  # what was assigned again may have been claimed again
                    self.inputs.revoked(partition)
        return taken_up


class BatchTransport(driver.Transport):
    """The transport; ``inputs`` and ``contact`` must be set before the start, ``standbys`` where there are any."""

    Consumer: ClassVar[type[BatchConsumer]] = BatchConsumer
    Producer: ClassVar[type[BatchProducer]] = BatchProducer
    inputs: Inputs
    contact: Contact
    standbys: Standbys | None = None
