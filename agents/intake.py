"""The intake: reads source topics with any keys, and writes trueup's own records with keys of its own.

It has no state. An offset is committed once all records made of earlier source records are acknowledged. So a record
may be sent twice, with the same bytes and the same origin. The ledger ignores a repeated forecast, the router a
repeated route or label. A forecast is acknowledged before its route is sent, so that a label rarely overtakes it.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from time import monotonic
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from agents import __version__, deaths
from agents.notices import Notices
from agents.notices import path as noticed
from agents.readers import Readers
from agents.sending import Probe, Sender
from agents.taken_up import TakenUp
from agents.topology import STOPPING, log_end
from agents.worker import FAILED, MISCONFIGURED, abort, collect_rarely, stand, stop_asked, tell
from streams.config import output_ids
from streams.config.settings import Settings, SettingsError
from streams.faust import offsets
from streams.faust.client import ask_for_topics, hasten
from streams.faust.client import stop as stop_consumer
from streams.faust.contact import Contact
from streams.faust.fetching import COMPANY, Rest, guard
from streams.faust.producing import BatchProducer, identity_of
from streams.kafka import owners, topics
from streams.kafka.source_merge import SourceBuffers
from streams.kafka.transactions import HeldBack
from streams.metrics.metric import Sample
from streams.metrics.mirror import ChangeSource
from streams.metrics.routing import IntakeGauges
from streams.records.making import Maker
from streams.records.merge import BEHIND
from streams.records.output_avro import AvroValues
from streams.records.skips import PoisonError

log = logging.getLogger("trueup")

#: Longest wait for new records before the loop does other work, and longest wait of a broker for records, ms.
WAIT_MS: Final = 200
FETCH_WAIT_MS: Final = 100
#: Seconds between two checks whether the topics are still the same.
LOOK_SECONDS: Final = 60.0


class Intake(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no type hints
    """Reads sources and writes canonical records; see the module.

    ``settings``: every setting. Intake reads the sources that the worker does not read itself.
    """

    def __init__(self, settings: Settings, gauges: IntakeGauges, probe: Probe = lambda _: None) -> None:
        self._settings = settings
        self._notices = Notices(noticed(settings, "intake"))
        self._gauges = gauges
        self._probe = probe
        #: Makes the records to send from source records.
        self.maker = Maker(settings)
        self._taken = TakenUp(settings, self.maker)
        self._sender = Sender(self.maker, gauges, self._notices, probe, self._taken.done.update)
        self._buffers = SourceBuffers(settings.patience_seconds, settings.buffer_records, settings.buffer_bytes)
        #: Fetched records that wait until a schema is loaded.
        self._unread: dict[TopicPartition, list[Any]] = {}
        self._loading: asyncio.Task[None] | None = None
        #: Delays fetches, so that several records are fetched together; None until intake reads.
        self._rest: Rest | None = None
        #: Whether more records are buffered than the last batch could take.
        self._more = False
        self._committing = monotonic()
        self._moving = True
        self._serving = False
        #: Whether intake was told to stop.
        self.stopping = False
        #: Watches open transactions in the sources, and the records behind them.
        self._held_back = HeldBack(settings.brokers)
        #: Whether brokers answer.
        self.contact = Contact(settings.brokers)

    @property
    def failure(self) -> BaseException | None:
        """The error that ended intake, or None."""
        return self._sender.failure

    @property
    def unready(self) -> str:
        """Why intake does not read all records, in words without secrets; empty if it reads all."""
        if self.stopping:
            return STOPPING
        if self.contact.lost:
            return self.contact.lost
        if waits := self.maker.schemas.wait.said:
            return waits
        return "" if self._serving else "no partition is read"

    # -- from the brokers ------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Read and send until ``stop`` is set, then commit.

        Raises SettingsError if the registry refuses or lacks the schema of answers. Raises DataLossError if records
        were deleted before they were read, or a source topic was recreated. Raises RewrittenError if a source topic was
        truncated behind the reader. Raises PartitionsError if a canonical topic has another number of partitions than
        when records were sent to it. Raises PoisonError if a record cannot be read or mapped. Raises KafkaError or
        TimeoutError if records or offsets are not acknowledged.
        """
        settings, labels = self._settings, ("calibrated",) if self._settings.policies.answering else ()
        known = await output_ids.awaited(settings, labels, self.maker.schemas.wait, stop)
        if known is None:
            return
        self.maker.values = AvroValues(known.schema_ids) if known.schema_ids else None
        async with AsyncExitStack() as stack:
            options = self._settings.client_options()
            producer = await stack.enter_async_context(self._made_producer(options))
            self._producer = producer
            self._sender.producer = BatchProducer(
                settings, self.contact, lambda: producer.client, lambda: identity_of(producer)
            )
            self._consumer = self._made_consumer(options)
            stack.push_async_callback(stop_consumer, self._consumer)
            await self._consumer.start()
            taken, topics_read = self._taken, list(self.maker.readers)
            taken.read = guard(
                self._consumer, topics_read, lambda _: settings.unpacked_bytes, lambda tp: taken.skipped.get(tp, {})
            )
            self._rest = Rest(self._consumer, settings.latency_ms / 1000, topics_read)
            await taken.know(self._producer.client)
            self._consumer.subscribe(topics_read, listener=self)
            looked = monotonic()
            self._notices.happened(f"intake started, version {__version__}")
            while not stop.is_set():
                if self.failure is not None:
                    raise self.failure
                await self._step()
                self._tell()
                if monotonic() - looked > LOOK_SECONDS:
                    await taken.look(self._producer.client)
                    looked = monotonic()
            self.stopping = True
            await self._land()

    def _made_producer(self, options: dict[str, Any]) -> AIOKafkaProducer:
        settings = self._settings
        producer = AIOKafkaProducer(
            acks="all",
            enable_idempotence=True,
            max_request_size=settings.batch_bytes + 100_000,
            request_timeout_ms=int(settings.request_seconds * 1000),
            **options,
        )
        hasten(producer.client, settings.attempt_seconds, self.contact)
        return producer

    def _made_consumer(self, options: dict[str, Any]) -> AIOKafkaConsumer:
        settings = self._settings
        consumer = AIOKafkaConsumer(
            group_id=settings.intake_group,
            group_instance_id=settings.instance_id,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            session_timeout_ms=int(settings.session_seconds * 1000),
            heartbeat_interval_ms=int(settings.session_seconds * 100),
            request_timeout_ms=int(max(settings.session_seconds, 40.0) * 1000),
            metadata_max_age_ms=int(LOOK_SECONDS * 1000),  # a source topic may have got new partitions
            fetch_max_wait_ms=FETCH_WAIT_MS,
            **options,
        )
        # Two heartbeats may fail before the session ends.
        hasten(consumer, min(settings.attempt_seconds, settings.session_seconds / 3), self.contact)
        return consumer

    async def _step(self) -> None:
        fetched = await self._fetched()
        if self._moving:
            return
        for tp, records in fetched.items():
            self._buffers.add(tp, records)
            self._taken.following[tp] = records[-1].offset + 1
        await self._sender.room()
        for tp, n in self._buffers.held().items():
            # After the last record there may be markers of transactions.
            if n <= BEHIND and not self._unread and not self._caught_up(tp):
                self._taken.following[tp] = await self._consumer.position(tp)
        if not self._moving:
            batch = self._buffers.take(self._settings.batch_records, self._caught_up)
            self._more = len(batch) == self._settings.batch_records
            if batch:
                self._sender.send(batch)
        if monotonic() - self._committing >= self._settings.commit_seconds:
            ask_for_topics(self._consumer)
            await self._commit()
            await self._look_behind()

    async def _fetched(self) -> dict[TopicPartition, list[Any]]:
        """Return, for each partition, the next records whose schemas are loaded."""
        if self._loading is not None:
            await asyncio.wait({self._loading}, timeout=WAIT_MS / 1000)
            if not self._loading.done():
                return {}
            self._loading.result()
            self._loading, (fetched, self._unread) = None, (self._unread, {})
            return fetched
        full = self._buffers.full() & self._consumer.assignment()
        self._consumer.pause(*full)
        self._consumer.resume(*(self._consumer.paused() - full))
        try:
            # Not in a task of its own, so that fetched records are in the buffer before the partitions can move.
            fetched = await self._consumer.getmany(timeout_ms=1 if self._more else WAIT_MS)
            if self._rest is not None and sum(map(len, fetched.values())) >= COMPANY:
                self._rest.end()
            lacking = self.maker.lacking(fetched)
        except OffsetOutOfRangeError as exc:
            await self._taken.go_on_behind(self._consumer, exc.args[0])
            return {}
        except PoisonError:
            if not self._moving:
                raise
            await asyncio.sleep(WAIT_MS / 1000)  # they are fetched again when the skips are known
            return {}
        if not lacking:
            return dict(fetched)
        self._unread = dict(fetched)
        self._loading = asyncio.create_task(self.maker.schemas.load(lacking))
        return {}

    def _caught_up(self, tp: TopicPartition) -> bool:
        end = self._consumer.last_stable_offset(tp)
        return end is not None and self._taken.following.get(tp, 0) >= end

    def _tell(self) -> None:
        """Report what needs attention, see `agents.notices`."""
        for topic, readers in self.maker.readers.items():
            for reader in readers:
                if reader.far_off:
                    more = self._notices.far_off(topic, reader.far_off, reader.far_off_said)
                    self._gauges.far_off(reader.name, more)
        why = self.unready
        self._notices.stands(f"intake not ready: {why}" if why else "intake ready")
        self._notices.tell()

    async def _land(self) -> None:
        await self._sender.land()
        if self.failure is None:
            await self._commit()

    async def _commit(self) -> None:
        self._committing = monotonic()
        new = self._taken.due()
        if not new:
            return
        try:
            await self._consumer.commit(new)
        except (CommitFailedError, IllegalStateError) as exc:
            log.info("offsets are left to the new owners of the partitions: %s", type(exc).__name__)
            return
        self._taken.committed.update({tp: offset for tp, (offset, _) in new.items()})
        self._probe(3)

    # -- partitions that move --------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:  # noqa: ARG002 - all of them
        """Finish and commit what is in flight. The new owner reads buffered records again."""
        self._moving, self._serving = True, False
        self._buffers.assign(())
        self._unread = {}
        try:
            await self._land()
        except Exception as exc:  # noqa: BLE001 - aiokafka would only log it
            self._sender.failure = exc

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Start at the committed offsets."""
        try:
            await self._take_up(list(assigned))
        except Exception as exc:  # noqa: BLE001 - as above
            self._sender.failure = exc

    async def _take_up(self, assigned: list[TopicPartition]) -> None:
        taken = self._taken
        await taken.know(self._producer.client)
        stored, first = {}, {}
        if assigned:
            stored = await offsets.committed(self._producer, self._settings.intake_group, assigned, None)
            first = await self._consumer.beginning_offsets(assigned)
        await taken.begin(assigned, stored, first, self._producer)
        for tp in assigned:  # seek to committed offsets, too: since the assignment, records were fetched and dropped
            self._consumer.seek(tp, taken.following[tp])
        self._unread = {}  # drop records that were fetched since the assignment; they are fetched again
        self._buffers.assign(assigned)
        self._moving = False
        self._serving = bool(assigned)

    async def _look_behind(self) -> None:
        ends = {}
        for tp in self._taken.following:
            with suppress(IllegalStateError):
                stable, end = self._consumer.last_stable_offset(tp), self._consumer.highwater(tp)
                if stable is not None and end is not None:
                    ends[tp] = stable, end
        await self._held_back.look(ends, self._producer.client)

    def samples(self) -> Iterator[Sample]:
        """Yield the gauges, but no counters."""
        yield "ready", (), float(not self.unready)
        yield "registry_waiting_seconds", (), self.maker.schemas.wait.seconds
        yield "raw_answers", (), float(self._sender.raw_answers)
        for what in ("header", "field"):
            readers = (reader for each in self.maker.readers.values() for reader in each)
            yield "uncarried", (what,), float(sum(reader.left_out(what) for reader in readers))
        yield from self._held_back.samples({})
        held = self._buffers.held()
        yield "held_partitions", (), len(held)
        for tp, n in held.items():
            labels = (tp.topic, str(tp.partition))
            yield "buffered_records", labels, n
            with suppress(KafkaError, IllegalStateError):
                end = self._consumer.last_stable_offset(tp)
                if end is not None and tp in self._taken.following:
                    yield "lag_records", labels, max(end - self._taken.following[tp], 0) + n


def run(settings: Settings, *, probe: Probe = lambda _: None) -> int:
    """Run an intake until SIGTERM or SIGINT, and return its exit status; see `agents.worker.run`."""
    names = [mode.source.name for mode in settings.modes if not mode.direct]
    if not names:
        log.error(
            "no source is for the intake: [sources.NAME] in TRUEUP_STREAMS names them; see docs/explanation/routing.md"
        )
        return MISCONFIGURED
    return stand(settings, _checked, lambda readers: _serve(settings, names, probe, readers))


async def _checked(settings: Settings) -> list[str]:
    """Return what is wrong with the topics or their owners."""
    return await topics.lacking(settings) or await owners.claim(settings)


async def _serve(settings: Settings, names: Sequence[str], probe: Probe, readers: Readers) -> int:
    collect_rarely()

    def samples() -> Iterator[Sample]:
        yield from intake.samples()
        yield "failed_logins", (), float(readers.failed_logins)

    gauges = IntakeGauges(__version__, dict.fromkeys(names), samples, settings.application)
    intake = Intake(settings, gauges, probe)
    readers.measure(gauges.registry)
    readers.answer(ChangeSource(gauges.exposition))
    tell(settings, readers.port)
    stop = stop_asked()

    def failed(exc: Exception) -> None:
        if not intake.stopping:
            log_end(exc)
            abort()

    reporting = asyncio.create_task(readers.report(lambda: intake.unready, lambda: intake.failure is None, failed))
    watching = asyncio.create_task(intake.contact.watch())
    try:
        await intake.run(stop)
    except SettingsError:
        raise
    except Exception as exc:  # noqa: BLE001 - any error ends the stage
        log_end(exc)
        if isinstance(exc, PoisonError):
            log.critical("%s", deaths.told(settings.data_dir, exc.place))
        return FAILED
    finally:
        for task in (reporting, watching):
            task.cancel()
    log.info("stopped")
    return 0
