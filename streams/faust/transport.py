"""The batch transport: whole fetches instead of single messages, on Faust's own extension points.

Stock Faust spends about 60 µs of event-loop machinery on every message, loses queued events in a rebalance, and may
commit past records that are not processed. This consumer buffers fetched records, and merges the two topics of each
partition by time (`streams.records.merge`). It hands turns to the agent, with at most one batch of each partition, and
commits their offsets once they are acknowledged. Changelog records go to the table. Faust still owns the consumer
group, the assignment, the recovery and the life of the process.

The overridden methods are not documented API: faust-streaming is pinned to one version, and each override has a test of
its name.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, ClassVar, cast

from faust.tables.recovery import RebalanceAgain
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, Message
from mode import Service
from mode.utils.futures import notify

from state.journal import Journal
from streams.config.in_force import OtherArithmeticError
from streams.faust.buffering import Buffering
from streams.faust.contact import Contact
from streams.faust.fetching import LoopConsumer
from streams.faust.inputs import Inputs
from streams.faust.places import Places
from streams.faust.producing import BatchProducer, FaustProducer
from streams.faust.standbys import Standbys
from streams.faust.state_table import StateTable
from streams.faust.stores import DamagedStoreError
from streams.faust.turns import Turns
from streams.kafka.transactions import HeldBack
from streams.metrics.gauges import INPUTS
from streams.metrics.metric import Sample
from streams.records.merge import Batch, PartitionBuffer

#: Time between two looks, s: for forecasts that are due in quiet partitions, and for patience that has ended.
TICK_SECONDS, WANT_SECONDS = 0.1, 0.5


class BatchConsumer(Buffering):
    """Delivers batches; see the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Faust calls it
        super().__init__(*args, **kwargs)
        settings = self.inputs.settings
        # Each partition of a router writes to every partition of the outcomes.
        self._turns = Turns(
            settings.batch_records, settings.batch_bytes, settings.patience_seconds, together=bool(settings.routed)
        )
        self._committable: dict[TP, int] = {}
        self.held_back = HeldBack(self.inputs.settings.brokers)
        #: Offsets that the brokers have confirmed.
        self._confirmed: dict[TP, int] = {}
        #: When quiet partitions were last checked, s.
        self._ticked = 0.0
        #: Counts revocations, so that a task that takes partitions up can tell whether one happened meanwhile.
        self._revocations = 0

    def _new_consumer_thread(self) -> LoopConsumer:
        return LoopConsumer(self)

    # -- from the buffers to the agent -----------------------------------------------------------------------------

    def hand_out(self) -> None:
        """Hand out the next turn: a batch of every partition that has records and whose last batch is folded."""
        try:
            for turn in self._taken():
                with suppress(StopIteration):  # while the flow is on, it never waits, so it ends in this step
                    cast("Coroutine[None, None, None]", self.callback(self._message(turn))).send(None)
                    raise RuntimeError("Faust did not take a turn at once")
        except Exception as exc:  # noqa: BLE001 - after any error partitions stand still; Faust would only start the agent again
            self.inputs.failed(exc)
            return
        if self._throttled and self.flow_active:
            self._throttle()

    @Service.task
    async def _want(self) -> None:
        """Ask for a turn now and then: no event tells that the patience with a held-back partition has ended."""
        while not self.should_stop:
            self.hand_out()
            await asyncio.sleep(WANT_SECONDS)

    def _taken(self) -> list[list[Batch]]:
        """Take the next batch of each partition, unless the flow is stopped. A waiting batch is a turn of its own."""
        if not (self.flow_active and self.app.flow_control.is_active()):
            return []
        turn, alone = list[Batch](), []
        for batch in (*self._turns.take(list(self.partition_buffers.values()), self), *self._ticks()):
            if self.inputs.waits_for(batch):
                batch.turn = 0
                alone.append([batch])
            else:
                turn.append(batch)
        return [turn, *alone] if turn else alone

    def _ticks(self) -> Iterator[Batch]:
        """Yield an empty batch for each quiet partition in which something is due by the clock."""
        if self._ticked + TICK_SECONDS > monotonic():
            return
        self._ticked = monotonic()
        for partition, partition_buffer in self.partition_buffers.items():
            if partition_buffer.idle and all(map(self.caught_up, partition_buffer.sources)):
                now = self.inputs.tick(partition)
                if now:
                    yield partition_buffer.tick(now)

    def stop_flow(self) -> None:
        """Hand nothing out, and start anew when the flow resumes."""
        super().stop_flow()
        self._turns.begin()

    def _message(self, turn: list[Batch]) -> Message:
        batch = turn[0]
        tp, end = next(iter(batch.ends.items()), (TP(self.inputs.sources[0], batch.partition), 0))
        timestamp = batch.records[-1][1].timestamp if batch.records else batch.tick
        return self._made(tp, end - 1, timestamp, None, cast("bytes", turn))  # Faust passes the value on unchanged

    def holds(self, batch: Batch) -> bool:
        """Whether a batch's partition is still here, and was not taken up again after the batch was handed out."""
        partition_buffer = self.partition_buffers.get(batch.partition)
        return partition_buffer is not None and partition_buffer.epoch == batch.epoch

    # -- from the agent to the committed offsets -------------------------------------------------------------------

    def folded(self, turn: Sequence[Batch]) -> None:
        """Note that a turn is folded: the next batches of its partitions may follow."""
        for batch in turn:
            if self.holds(batch):
                self.partition_buffers[batch.partition].busy = False
        self._hand_out_more()

    def ack(self, message: Message) -> bool:
        """Note that a turn is answered. Its offsets may be committed, except those of partitions that have moved."""
        message.acked = True
        self._unacked_messages.discard(message)
        for batch in filter(self.holds, cast("list[Batch]", message.value)):
            try:
                self.partition_buffers[batch.partition].acknowledged(batch)
            except RuntimeError as exc:
                self.inputs.failed(exc)
                return False
            self._committable.update(batch.ends)
        self._hand_out_more()
        notify(self._waiting_for_ack)
        return True

    def _hand_out_more(self) -> None:
        """Hand out the next turn, if there are records for it."""
        if self._throttled or not all(each.empty for each in self.partition_buffers.values()):
            self.hand_out()

    def _filter_tps_with_pending_acks(self, topics: Iterable[object] | None = None) -> Iterator[TP]:
        return (tp for tp in self._committable if topics is None or tp in topics or tp.topic in topics)

    def _new_offset(self, tp: TP) -> int | None:
        return self._committable.get(tp)

    def _should_commit(self, tp: TP, offset: int) -> bool:
        return self._confirmed.get(tp, -1) < offset

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit, and note what was committed, because Faust counts a commit that failed in a rebalance as done."""
        done = await super()._commit(offsets)
        if done:
            self._confirmed.update(offsets)
        return done

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: Faust's check expects messages, not batches. The lag and the last update show the same."""

    def hold(self) -> None:
        """Hand nothing out until the flow is resumed, and drop the buffers. Their records are fetched again."""
        self.stop_flow()
        self.partition_buffers = {n: PartitionBuffer(n, each.sources) for n, each in self.partition_buffers.items()}

    async def watched(self) -> None:
        """Find out how many records are delayed by open transactions."""
        sources = [tp for each in list(self.partition_buffers.values()) for tp in each.sources]
        ends = {tp: found for tp in sources if (found := self._thread.stable_end(tp)) is not None}
        client = cast("BatchProducer", self.app.producer).client()
        await self.held_back.look(ends, client)

    def samples(self) -> Iterator[Sample]:
        """Yield the numbers of records fetched but not processed, and delayed by transactions; any thread may ask."""
        labels = dict(zip(self.inputs.sources, INPUTS, strict=True))
        for each in list(self.partition_buffers.values()):
            for tp, buffer, size in zip(each.sources, each.buffers, each.sizes, strict=True):
                of = labels[tp.topic], str(tp.partition)
                yield "buffered_records", of, float(len(buffer))
                yield "buffered_bytes", of, float(size)
                yield "fetch_paused", of, float(self.paused(tp))
                if (lag := self.lag(tp)) is not None:
                    yield "lag_records", of, float(lag)
        yield from self.held_back.samples(labels)

    # -- rebalances ------------------------------------------------------------------------------------------------

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Close the copies of assigned partitions, and let the recovery claim them."""
        self._ours = True
        standbys = cast("BatchTransport", self.transport).standbys
        if standbys is not None:
            served = {tp.partition for tp in assigned}
            try:
                await standbys.follow(self._assignor.copied - served, served)
            except Exception as exc:
                self.inputs.failed(exc)  # aiokafka would only log it, and nothing would be served
                raise
        self._copying = False
        self._asked_for = frozenset()
        self._assignor.lost.clear()
        self._assignor.needs.clear()
        await super().on_partitions_assigned(assigned, generation_id)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Let Faust finish and commit what is in flight, then forget the revoked partitions."""
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
            self.inputs.revoked(partition)  # also a partition that was claimed but not taken up
        self._revocations += 1  # a task that began to take them up has also lost them

    async def perform_seek(self) -> None:
        """Start every source partition after the last checkpoint of its state, whatever offset is committed.

        Records folded since the checkpoint are folded again in the journal's order, see `state.journal`. The flow is
        stopped first, and every buffer starts empty: stock Faust fetches meanwhile and then clears the queues, which
        loses records.
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
            self._thread.throttle([], resume)
        self._confirmed = {tp: offset for tp, offset in committed.items() if offset is not None}

    async def _taken_up(self, partitions: Mapping[int, Sequence[int]]) -> dict[int, tuple[tuple[int, int], Journal]]:
        """Take partitions up and return the results of `Inputs.applied`. Close them if they are revoked meanwhile.

        Raises RebalanceAgain if they are revoked, or if only another build can take one up.
        """
        revocations, taken_up, needs = self._revocations, {}, dict[int, int]()
        try:
            for partition, said in partitions.items():
                if not self.table.is_claimed(partition):  # a rebalance came while the partition was restored
                    raise RebalanceAgain
                try:
                    taken_up[partition] = await self.inputs.applied(partition, said)
                except OtherArithmeticError as exc:
                    needs[partition] = exc.version
                if revocations != self._revocations:
                    raise RebalanceAgain
            if needs:
                self.leave(needs)
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
    """The transport. Set its attributes before the start, and ``standbys`` if copies are kept."""

    Consumer: ClassVar[type[BatchConsumer]] = BatchConsumer
    Producer: ClassVar[type[FaustProducer]] = FaustProducer
    inputs: Inputs
    table: StateTable
    contact: Contact
    standbys: Standbys | None = None
