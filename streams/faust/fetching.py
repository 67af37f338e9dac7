"""How a worker fetches: aiokafka's consumer on the worker's own loop, which pauses after a fetch of few records.

Faust runs the consumer in a thread. There each step of a fetch waits for the interpreter while a batch is folded: at
10,000 events/s the median delay was twice as long, and a worker took a tenth more of a processor.

This module uses private parts of aiokafka where it has no public way. Each such place has a test.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import aiokafka
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchResult, OffsetResetStrategy
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.threads import QueueServiceThread
from mode.utils.futures import maybe_async

from streams.faust import offsets, unpacking
from streams.faust.client import ask_for_topics, hasten, idle_ms, stop
from streams.kafka.metadata import end_of_epoch
from streams.records.merge import KafkaRecord, RewrittenError

if TYPE_CHECKING:
    from streams.faust.transport import BatchConsumer, BatchTransport

#: Longest wait of a fetch at the broker for new records, ms. The broker answers at once when it has some. The second
#: wait is used while partitions are paused: when they resume, their broker may still hold a fetch of other partitions.
FETCH_WAIT_MS, PAUSED_WAIT_MS = 400, 100
#: Pause before a leader is asked again, s.
BACKOFF = 0.1
#: After a fetch of fewer records there is a pause: records that come meanwhile share the cost of the next turn.
COMPANY = 500


class CheckedFetches(unpacking.Fetches):
    """aiokafka's buffer of fetched records. Records are kept as they were read, not copied one by one.

    ``limit, skips``: as in `unpacking.Fetches`.
    ``topics``: topics whose log must not change behind the reader: see `Lineage`.
    """

    def __init__(self, limit: unpacking.SizeLimit, skips: unpacking.Skips, of: Fetcher, topics: Iterable[str]) -> None:
        super().__init__(limit, skips, unpacking.Aside(of))
        self._topics = frozenset(topics)
        #: How far each partition was read.
        self.read: defaultdict[TopicPartition, unpacking.Read] = defaultdict(unpacking.Read)
        #: Fetches from a new leader epoch, until `Lineage` has checked them.
        self.doubted: dict[TopicPartition, FetchResult] = {}

    def __setitem__(self, tp: TopicPartition, fetched: object) -> None:
        """Keep a fetch of a partition, or hold it back to be checked."""
        if isinstance(fetched, FetchResult) and tp.topic in self._topics:
            records, read = fetched._partition_records._records, self.read[tp]  # noqa: SLF001 - as in `prepare`
            records.read = read
            if read.epoch not in (-1, records.epoch):
                self.doubted[tp] = fetched
                return
        super().__setitem__(tp, fetched)

    def believe(self, tp: TopicPartition, fetched: FetchResult) -> None:
        """Keep a fetch that was held back."""
        super().__setitem__(tp, fetched)

    def prepare(self, tp: TopicPartition, fetched: FetchResult) -> None:
        """Bound what a fetch of a partition unpacks to, and keep its records."""
        super().prepare(tp, fetched)
        fetched._partition_records._consumer_record = _as_read  # noqa: SLF001 - where the copies are made


def _as_read(_: TP, record: KafkaRecord) -> KafkaRecord:
    return record


class Inline:
    """Replaces mode's thread: the service runs on the loop that starts it."""

    def __init__(self, service: "LoopConsumer") -> None:
        self._service = service

    def start(self) -> None:
        """Begin."""
        self._serving = asyncio.get_running_loop().create_task(self._service._serve())  # noqa: SLF001 - as mode's does
        self._serving.add_done_callback(self._served)

    def _served(self, serving: "asyncio.Task[None]") -> None:
        """Wake those who wait for the end of the service, also if it failed while stopping, as mode's thread does."""
        if not serving.cancelled():
            serving.exception()  # it was reported when it was raised
        self._service.set_shutdown()

    def stop(self) -> None:
        """Do nothing: the service has ended."""


class LoopConsumer(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread without the thread, with additional methods for the batch consumer.

    ``consumer``: Faust's consumer, made on the running loop.
    """

    def __init__(self, consumer: "BatchConsumer") -> None:
        loop = asyncio.get_running_loop()
        super().__init__(consumer, loop=loop, thread_loop=loop, Worker=Inline, beacon=consumer.beacon)

    async def call_thread(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call a method of the consumer; Faust would hand it to the thread."""
        return await maybe_async(fun(*args, **kwargs))

    def close(self) -> None:
        """Do nothing. Faust calls this when partitions move during a stop, and the stop itself closes the consumer.

        Faust's method would close connections during a commit, which then retries for ever, and not stop the fetcher.
        """

    async def _gather_remaining_tasks(self) -> None:
        """Do nothing, because the other tasks of the loop do not belong to the consumer."""

    async def on_start(self) -> None:
        """Start the consumer."""
        await super().on_start()
        inputs = cast("BatchConsumer", self.consumer).inputs
        consumer = self._ensure_consumer()
        guard(consumer, inputs.sources, inputs.settings.unpacks, inputs.skipped)
        self._rest = Rest(consumer, inputs.settings.latency_ms / 1000, inputs.sources)

    async def on_thread_stop(self) -> None:
        """Stop the consumer, whatever it waits for. Faust's method would wait for ever for a cancelled consumer."""
        await QueueServiceThread.on_thread_stop(self)
        if self._consumer is not None:
            await stop(self._consumer)

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Faust sets it only with transactions of its own. Records of aborted transactions get no answer.
        consumer._isolation_level = "read_committed"  # noqa: SLF001 - as above
        settings = cast("BatchConsumer", self.consumer).inputs.settings
        # Two heartbeats may fail before the session ends.
        attempt = min(settings.attempt_seconds, settings.session_seconds / 3)
        self._idle_ms = idle_ms(attempt, FETCH_WAIT_MS)
        consumer._fetch_max_wait_ms = self._idle_ms  # noqa: SLF001 - Faust has no setting for it
        hasten(consumer, attempt, cast("BatchTransport", transport).contact)
        return consumer

    async def getmany(
        self,
        active_partitions: set[TP] | None,
        timeout: float,  # noqa: ASYNC109 - Faust's signature
    ) -> Mapping[TP, list[KafkaRecord]]:
        """Fetch directly. Faust's queue of calls would take ten tasks."""
        consumer, active = self._ensure_consumer(), active_partitions or set()
        most = consumer._max_poll_records  # noqa: SLF001 - no public way to ask
        records = await self._fetch_records(consumer, active, 0, most)
        if not records and self.consumer.flow_active:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await consumer._fetcher._create_fetch_waiter()  # noqa: SLF001 - it would wait in three tasks' steps
            records = await self._fetch_records(consumer, active, 0, most)
        if sum(map(len, records.values())) >= COMPANY:
            self._rest.end()
        return cast("Mapping[TP, list[KafkaRecord]]", records)

    async def committed(self, tps: Iterable[TP]) -> dict[TP, int | None]:
        """Return the group's committed offsets, or None if there are none. Wait for brokers as long as it takes."""
        asked, group = list(tps), cast("BatchConsumer", self.consumer).inputs.settings.app_id
        found = await offsets.committed(self._ensure_consumer(), group, asked, None)
        return {tp: found[tp].offset if tp in found else None for tp in asked}

    def throttle(self, pause: list[TP], resume: list[TP]) -> None:
        """Pause some partitions and resume others."""
        consumer = self._ensure_consumer()
        assigned = consumer.assignment()
        consumer.pause(*(driver.ensure_aiokafka_TP(tp) for tp in pause if tp in assigned))
        consumer.resume(*(driver.ensure_aiokafka_TP(tp) for tp in resume if tp in assigned))
        wait_ms = min(PAUSED_WAIT_MS, self._idle_ms) if consumer.paused() else self._idle_ms
        consumer._fetcher._fetch_max_wait_ms = wait_ms  # noqa: SLF001 - as above

    def rejoin(self) -> None:
        """Make the group assign its partitions anew."""
        self._ensure_consumer()._coordinator.request_rejoin()  # noqa: SLF001 - no public way to ask

    def ask_for_topics(self) -> None:
        """Ask for topics that the group leader does not know, see `streams.faust.client.ask_for_topics`."""
        ask_for_topics(self._ensure_consumer())

    def expelled(self) -> BaseException | None:
        """Return why the consumer has left its group for good, or None.

        aiokafka raises such an error only in its public methods, and Faust calls none of them.
        """
        coordinator = self._consumer and self._consumer._coordinator  # noqa: SLF001 - no public way to ask
        if coordinator is None or coordinator._closing.done():  # noqa: SLF001 - as above
            return None
        task = coordinator._coordination_task  # noqa: SLF001 - as above
        if task.done() and not task.cancelled():
            return cast("BaseException", task.exception() or RuntimeError("the coordination ended"))
        return cast("BaseException | None", coordinator._pending_exception)  # noqa: SLF001 - as above

    def reach(self, tp: TP) -> tuple[int | None, int | None]:
        """Return the next offset to hand over, and the end of the partition at the last fetch, if known.

        The end is where an open transaction begins, because later records cannot be read yet.
        """
        state = self._state(tp)
        if state is None:
            return None, None
        end = state.highwater if state.lso is None or state.lso < 0 else state.lso
        return (state.position if state.has_valid_position else None), end

    def stable_end(self, tp: TP) -> tuple[int, int] | None:
        """Return the last stable offset and the end of a partition at the last fetch, if known."""
        state = self._state(tp)
        return None if state is None or state.lso is None or state.highwater is None else (state.lso, state.highwater)

    def _state(self, tp: TP) -> Any:  # noqa: ANN401 - aiokafka's
        subscription = self._ensure_consumer()._subscription.subscription  # noqa: SLF001 - no public way to ask
        assignment = subscription and subscription.assignment
        return None if assignment is None or tp not in assignment.tps else assignment.state_value(tp)


class Rest:
    """Makes a fetcher pause after each fetch of some topics, unless the fetch brought many records.

    Without the pause, a fetch would bring only the first record that comes, and the others would follow one by one.

    ``topics``: topics whose records are folded in turns. Restoring rows does not pause.
    """

    def __init__(self, consumer: aiokafka.AIOKafkaConsumer, seconds: float, topics: Iterable[str]) -> None:
        fetcher: Fetcher = consumer._fetcher  # noqa: SLF001 - it has no hook
        self._fetcher, self._seconds, self._topics = fetcher, seconds, frozenset(topics)
        self._awake = asyncio.Event()
        self._fetch = fetcher._proc_fetch_request  # noqa: SLF001 - as above
        fetcher._proc_fetch_request = self._fetched  # noqa: SLF001 - as above

    def end(self) -> None:
        """End the pause at once."""
        self._awake.set()

    async def _fetched(self, assignment: Any, node: int, request: Any) -> bool:  # noqa: ANN401 - aiokafka's
        """Fetch, wake the readers, pause, and fetch again from this broker. Nobody else asks this broker meanwhile."""
        task = cast("asyncio.Task[bool]", asyncio.current_task())
        task.add_done_callback(self._again)
        records = self._fetcher._records  # noqa: SLF001 - as above
        while request is not None:
            before = set(records)
            if await self._fetch(assignment, node, request):
                unpacking.wake(self._fetcher)
                if any(tp.topic in self._topics for tp in records if tp not in before):
                    await self._pause()
            request = self._following(assignment, node) if assignment.active and not task.cancelling() else None
        return False  # waiting readers are awake already

    async def _pause(self) -> None:
        """Wait for more records. Taking records meanwhile does not make a fetch due."""
        fetcher = self._fetcher
        waiting, fetcher._wait_consume_future = fetcher._wait_consume_future, None  # noqa: SLF001 - as above
        self._awake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._awake.wait()
        fetcher._wait_consume_future = fetcher._wait_consume_future or waiting  # noqa: SLF001 - as above

    def _following(self, assignment: Any, node: int) -> Any:  # noqa: ANN401 - aiokafka's
        """Return the next request to a broker, or None if the fetcher first has to look at what this broker needs."""
        fetcher = self._fetcher
        fetcher._in_flight.discard(node)  # noqa: SLF001 - as above
        due = dict(fetcher._get_actions_per_node(assignment)[0])  # noqa: SLF001 - as above
        fetcher._in_flight.add(node)  # noqa: SLF001 - as above
        if due.keys() - {node}:
            self._again()
        return due.get(node)

    def _again(self, _: object = None) -> None:
        """Make the fetcher look for the next fetch at once, not only after its timeout of 0.2 s."""
        self._fetcher._notify(self._fetcher._wait_consume_future)  # noqa: SLF001 - as above


class Lineage:
    """Makes a fetcher raise if a log was cut behind the reader, so that its offsets now belong to other records.

    If a fetch has another leader epoch than the one before, the leader is asked where that epoch ended.
    """

    def __init__(self, fetcher: Fetcher, records: CheckedFetches) -> None:
        self._fetcher, self._records, self._fetch = fetcher, records, fetcher._proc_fetch_request  # noqa: SLF001 - it has no hook
        fetcher._records, fetcher._proc_fetch_request = records, self._fetched  # noqa: SLF001 - as above

    async def _fetched(self, *request: Any) -> bool:  # noqa: ANN401 - aiokafka's
        brought: bool = await self._fetch(*request)
        while self._records.doubted:
            tp, fetched = self._records.doubted.popitem()
            read = self._records.read[tp]
            following = read.following
            try:
                end = await end_of_epoch(self._fetcher._client, tp, read.epoch)  # noqa: SLF001 - as above
            except KafkaError:  # the records that are dropped here are fetched again
                self._fetcher._client.force_metadata_update()  # noqa: SLF001 - as above
                await asyncio.sleep(BACKOFF)
                continue
            if tp in self._records or read.following != following:  # another fetch has brought these records meanwhile
                continue
            if end < following:
                self._fetcher._set_error(tp, RewrittenError(TP(*tp), max(end, 0)))  # noqa: SLF001 - as above
            else:
                self._records.believe(tp, fetched)
        return brought


def report_lost_positions(fetcher: Fetcher, topics: Iterable[str]) -> None:
    """Make a fetcher raise if an offset of some topics is out of range, instead of going to the first record.

    aiokafka has one setting for this case and for partitions without a committed offset. Partitions without a committed
    offset still begin with the first record, and so do all partitions of other topics.
    """
    set_error, topics = fetcher._set_error, frozenset(topics)  # noqa: SLF001 - aiokafka has no hook for it

    def decide(tp: TopicPartition, error: Exception) -> None:
        reset = isinstance(error, OffsetOutOfRangeError) and tp.topic not in topics
        if reset or isinstance(error, NoOffsetForPartitionError):
            state = fetcher._subscriptions.subscription.assignment.state_value(tp)  # noqa: SLF001 - as above
            if state is not None:  # otherwise the partition has moved meanwhile
                state.await_reset(OffsetResetStrategy.EARLIEST)
        else:
            set_error(tp, error)

    fetcher._default_reset_strategy = OffsetResetStrategy.NONE  # noqa: SLF001 - as above
    fetcher._set_error = decide  # noqa: SLF001 - as above


def guard(
    consumer: AIOKafkaConsumer, topics: Iterable[str], limit: unpacking.SizeLimit, skips: unpacking.Skips
) -> defaultdict[TopicPartition, unpacking.Read]:
    """Bound what a consumer unpacks, leave out what is skipped, and raise where records were deleted or cut.

    Call it after the consumer has started, before partitions are assigned to it. A partition without a committed offset
    begins with its first record.

    Returns how far each partition was read. A caller that goes on from a committed offset notes that offset there.
    """
    fetcher = consumer._fetcher  # noqa: SLF001 - aiokafka has no setting for what follows
    records = CheckedFetches(limit, skips, fetcher, topics)
    Lineage(fetcher, records)
    report_lost_positions(fetcher, topics)
    return records.read
