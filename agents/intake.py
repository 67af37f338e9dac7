"""The intake: reads source topics of any keys, and writes what trueup knows under keys of trueup's own.

It has no state. Offsets are committed when everything that was made of the records before them is acknowledged. So a
record may be sent twice, and is then the same bytes with the same origin: the ledger drops a forecast, the router a
route or a label. A forecast is acknowledged before its route is sent, so that a label rarely overtakes it.
"""

import asyncio
import json
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from time import monotonic, perf_counter, time
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from agents import __version__, deaths
from agents.notices import Notices
from agents.notices import path as noticed
from agents.readers import Readers, ReadersError
from agents.topology import STOPPING, log_end
from agents.worker import FAILED, MISCONFIGURED, abort, collect_rarely, listening, stop_asked, tell
from streams.config import in_force, output_ids
from streams.config.settings import Settings, SettingsError
from streams.faust.client import listen
from streams.faust.client import stop as stop_consumer
from streams.faust.contact import Contact
from streams.faust.outputs import PackedBatch
from streams.faust.producing import RecordBatch
from streams.faust.source_consumer import guard
from streams.faust.state_table import PartitionsError
from streams.faust.transport import DataLossError
from streams.faust.unpacking import Read
from streams.kafka import codecs, owners, provenance, topics
from streams.kafka.source_merge import SourceBuffers
from streams.kafka.transactions import HeldBack
from streams.kafka.whole_topics import batches
from streams.metrics.mirror import Source
from streams.metrics.routing import IntakeGauges
from streams.metrics.sample import Sample
from streams.records import skips
from streams.records.canonical import Reader
from streams.records.making import Maker, Making
from streams.records.merge import BEHIND
from streams.records.output_avro import AvroValues
from streams.records.skips import PoisonError
from streams.sources.formats import asks_registry
from streams.sources.mapping import Mapping
from streams.sources.registry import SchemaId
from streams.sources.schemas import Schemas

log = logging.getLogger("trueup")

#: Longest wait for new records, ms; the loop looks at other things then.
WAIT_MS: Final = 200
#: Batches that may be on their way: one is sent while the next is read.
FLYING: Final = 2
#: Source records mapped and packed at a time. What is made of so many stays in a processor's own cache
#: (python -m tests.bench.parts).
PART: Final = 250
#: How often it is asked whether topics are what they were, s.
LOOK_SECONDS: Final = 60.0

#: Called with the number of the step just finished; tests kill the process here. 1: first records acknowledged,
#: 2: routes acknowledged, 3: offsets committed.
Probe = Callable[[int], None]


class Producer(AIOKafkaProducer):  # type: ignore[misc]  # aiokafka ships no type hints
    """A producer whose batches take records by the hundred.

    Parameters
    ----------
    settings
        Sizes and codec.
    contact
        Is told what brokers answer.
    options
        Further settings of aiokafka's.
    """

    def __init__(self, settings: Settings, contact: Contact, options: dict[str, Any]) -> None:
        super().__init__(
            bootstrap_servers=",".join(settings.brokers),
            acks="all",
            enable_idempotence=True,
            max_request_size=settings.batch_bytes + 100_000,
            request_timeout_ms=int(settings.request_seconds * 1000),
            **options,
        )
        listen(self.client, contact)
        self._batch_bytes, self._codec = settings.batch_bytes, codecs.NUMBERS[settings.compression]

    def create_batch(self) -> RecordBatch:
        """Return an empty batch."""
        return RecordBatch(self._batch_bytes, self._codec)


class Sending:
    """What a batch of source records became, packed.

    Parameters
    ----------
    packed
        Makes room for what is sent together.

    Attributes
    ----------
    first, then
        What is sent first, and what follows when that is acknowledged.
    ends
        Next offset of each source partition.
    """

    def __init__(self, packed: Callable[[], PackedBatch]) -> None:
        self.first, self.then = packed(), packed()
        self.ends: dict[TopicPartition, int] = {}
        self.records = self.raw_answers = 0
        self.started = perf_counter()

    def add(self, making: Making) -> None:
        """Add what some records became."""
        for to, made in ((self.first, making.first), (self.then, making.then)):
            for (label, partition), records in made.items():
                to.pack(label, partition, records)
        self.ends |= making.ends
        self.raw_answers += making.raw_answers


class Intake(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no type hints
    """Reads sources and writes canonical records; see the module.

    Parameters
    ----------
    settings
        Every setting; of its sources those that the worker does not read.
    gauges
        Counts.
    probe
        Called after each step.
    """

    def __init__(self, settings: Settings, gauges: IntakeGauges, probe: Probe = lambda _: None) -> None:
        self._settings = settings
        self._notices = Notices(noticed(settings, "intake"))
        self._gauges = gauges
        self._probe = probe
        self._mapping = in_force.mapping(settings)
        self._owner = settings.owner
        self.schemas = Schemas(settings.registry)
        #: Records that were fetched and name schemas that are being loaded.
        self._unread: dict[TopicPartition, list[Any]] = {}
        self._loading: asyncio.Task[None] | None = None
        #: Readers by topic, and those of them whose records name schemas of a registry.
        self.readers: dict[str, list[Reader]] = defaultdict(list)
        self._asking: dict[str, list[Reader]] = defaultdict(list)
        for mode in settings.modes:
            if not mode.direct:
                mapping = Mapping(mode.source, self.schemas)
                reader = Reader(mode.source.name, mode.source.role, mapping, settings.policies, settings.limits)
                self.readers[mode.topic].append(reader)
                if asks_registry(mode.source.table):
                    self._asking[mode.topic].append(reader)
        #: Makes of source records what is sent.
        self.maker = Maker(self.readers, settings.limits)
        self.topics = {
            "forecasts": settings.forecasts,
            "routes": settings.routes,
            "labels": settings.labels,
            "dead-letters": settings.dead_letters,
            "configurations": settings.configurations,
        }
        if settings.policies.answering:
            self.topics["calibrated"] = settings.calibrated
        self._buffers = SourceBuffers(settings.patience_seconds, settings.buffer_records, settings.buffer_bytes)
        self._flying: deque[asyncio.Task[None]] = deque()
        #: Next offset of each partition to buffer; to commit; and as it was committed.
        self._following: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        #: What operators left out, and why, by its offset.
        self._skipped: dict[TopicPartition, dict[int, str]] = {}
        #: How far the partitions were read, and in which epoch of their leaders.
        self._read: defaultdict[TopicPartition, Read] = defaultdict(Read)
        self._raw_answers = 0
        self._committing = monotonic()
        self._moving = True
        self.failure: BaseException | None = None
        self._serving = False
        #: Whether it was told to stop.
        self.stopping = False
        #: What lies behind open transactions of the sources.
        self._held_back = HeldBack(settings.brokers)
        #: Whether brokers answer.
        self.contact = Contact(settings.brokers)

    @property
    def registry_seconds(self) -> float:
        """How long the schema registry has been waited for, s; 0 if it is not."""
        return self.schemas.wait.seconds

    @property
    def unready(self) -> str:
        """Why it does not read all that comes, in words that anybody may read; empty: it does."""
        if self.stopping:
            return STOPPING
        if self.contact.lost:
            return self.contact.lost
        if waits := self.schemas.wait.said:
            return waits
        return "" if self._serving else "no partition is read"

    # -- from the brokers ------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Read and send until ``stop``, then commit.

        Raises
        ------
        SettingsError
            If the registry refuses the schema of answers, or has none.
        DataLossError
            If records were deleted before they were read, or a source topic was made anew.
        RewrittenError
            If a source topic was cut behind what was read of it.
        PartitionsError
            If a canonical topic has another number of partitions than when records were sent to it.
        PoisonError
            If a record cannot be read or mapped.
        KafkaError, TimeoutError
            If records or offsets are not acknowledged.
        """
        settings, labels = self._settings, ("calibrated",) if self._settings.policies.answering else ()
        known = await output_ids.awaited(settings, labels, self.schemas.wait, stop)
        if known is None:
            return
        self.registered(known)
        async with AsyncExitStack() as stack:
            options = self._settings.security.client_options()
            self._producer = await stack.enter_async_context(Producer(settings, self.contact, options))
            self._consumer = self._made_consumer(options)
            await self._consumer.start()
            stack.push_async_callback(stop_consumer, self._consumer)
            self._admin = AIOKafkaAdminClient(bootstrap_servers=self._servers, **options)
            await self._admin.start()
            stack.push_async_callback(self._admin.close)
            self._read = guard(self._consumer, self.readers, settings.unpacked_bytes, self._left_out_of)
            self.know(*await self._asked())
            self._consumer.subscribe(list(self.readers), listener=self)
            looked = monotonic()
            while not stop.is_set():
                if self.failure is not None:
                    raise self.failure
                await self._step()
                self._tell()
                if monotonic() - looked > LOOK_SECONDS:
                    await self._look()
                    looked = monotonic()
            self.stopping = True
            await self._land()

    @property
    def _servers(self) -> str:
        return ",".join(self._settings.brokers)

    def _made_consumer(self, options: dict[str, Any]) -> AIOKafkaConsumer:
        settings = self._settings
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=settings.intake_group,
            group_instance_id=settings.instance_id,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            session_timeout_ms=int(settings.session_seconds * 1000),
            heartbeat_interval_ms=int(settings.session_seconds * 100),
            request_timeout_ms=int(max(settings.session_seconds, 40.0) * 1000),
            metadata_max_age_ms=int(LOOK_SECONDS * 1000),  # a source topic may have got partitions
            fetch_max_wait_ms=100,
            **options,
        )
        listen(consumer, self.contact)
        return consumer

    async def _step(self) -> None:
        """Fetch, and send on what may be."""
        fetched = await self._fetched()
        if self._moving:
            return
        for tp, records in fetched.items():
            self._buffers.add(tp, records)
            self._following[tp] = records[-1].offset + 1
        while len(self._flying) >= FLYING:
            await self._flying[0]
        for tp, n in self._buffers.held().items():
            # Behind the last may be marks of transactions.
            if n <= BEHIND and not self._unread and not self._caught_up(tp):
                self._following[tp] = await self._consumer.position(tp)
        if not self._moving:
            batch = self._buffers.take(self._settings.batch_records, self._caught_up)
            if batch:
                before = self._flying[-1] if self._flying else None
                self._flying.append(asyncio.create_task(self._deliver(self._packed(batch), before)))
        if monotonic() - self._committing >= self._settings.commit_seconds:
            await self._commit()
            await self._look_behind()

    async def _fetched(self) -> dict[TopicPartition, list[Any]]:
        """Return the next records of each partition whose schemas are there."""
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
            # Without a task of its own: what it returns is buffered before the partitions can move.
            fetched = await self._consumer.getmany(timeout_ms=WAIT_MS if not self._flying else 1)
            lacking = self._lacking(fetched)
        except OffsetOutOfRangeError as exc:
            await self._out_of_range(exc.args[0])
            return {}
        except PoisonError:
            if not self._moving:
                raise
            await asyncio.sleep(WAIT_MS / 1000)  # it is fetched again once it is known what is left out
            return {}
        if not lacking:
            return dict(fetched)
        self._unread = dict(fetched)
        self._loading = asyncio.create_task(self.schemas.load(lacking))
        return {}

    def _lacking(self, fetched: dict[TopicPartition, list[Any]]) -> dict[SchemaId, str]:
        """Return the schemas that records name and that are not loaded, each with a source that names it."""
        lacking: dict[SchemaId, str] = {}
        for tp, records in fetched.items():
            for reader in self._asking.get(tp.topic, ()):
                for record in records:
                    try:
                        lacking.update(dict.fromkeys(reader.lacking(record), reader.name))
                    except Exception as exc:
                        raise PoisonError(tp.topic, tp.partition, record.offset) from exc
        return lacking

    def _caught_up(self, tp: TopicPartition) -> bool:
        end = self._consumer.last_stable_offset(tp)
        return end is not None and self._following.get(tp, 0) >= end

    async def _out_of_range(self, positions: dict[TopicPartition, int]) -> None:
        """Go on with the first record that is left, if that is allowed."""
        first = await self._consumer.beginning_offsets(list(positions))
        for tp, position in positions.items():
            earliest = first[tp]
            said = (
                f"{earliest - position} records of {tp.topic}/{tp.partition} from offset {position} were deleted "
                "unread: lengthen the topic's retention; TRUEUP_DATA_LOSS=continue goes on without them"
            )
            if position >= earliest:
                said = f"{tp.topic}/{tp.partition} was read up to {position}, which it does not have: was it made anew?"
            if position >= earliest or self._settings.data_loss == "stop":
                raise DataLossError(said)
            log.error(said)
            self._consumer.seek(tp, earliest)

    # -- what it becomes -------------------------------------------------------------------------------------------

    def registered(self, settings: Settings) -> None:
        """Take the settings with the ids of the schemas of answers, before the first batch."""
        self.maker.values = AvroValues(settings.schema_ids) if settings.schema_ids else None

    def know(self, widths: dict[str, int], ids: dict[str, str]) -> None:
        """Take how many partitions the topics sent to have, by their labels, and the ids of the source topics."""
        self.maker.know(widths, ids)

    def make(self, batch: Sequence[tuple[TopicPartition, Any]], now: int) -> Making:
        """Return what source records become, and count them; see `Maker.make`."""
        making = self.maker.make(batch, now)
        for fate, n in making.fates.items():
            self._gauges.mapped(*fate, n)
        for tp, offset, reason in making.rejected:
            self._notices.dead(tp.topic, tp.partition, offset, reason)
        return making

    def _tell(self) -> None:
        """Say what somebody should look at, see `agents.notices`."""
        for topic, readers in self.readers.items():
            for reader in readers:
                if reader.far_off:
                    more = self._notices.far_off(topic, reader.far_off, reader.far_off_said)
                    self._gauges.far_off(reader.name, more)
        self._notices.tell()

    def _packed(self, batch: Sequence[tuple[TopicPartition, Any]]) -> Sending:
        """Return what a batch becomes, packed a part at a time."""
        sending, now = Sending(self._empty), int(time() * 1000)
        for at in range(0, len(batch), PART):
            part = batch[at : at + PART]
            try:
                sending.add(self.make(part, now))
            except Exception as exc:
                raise (self._poison(part, now) or exc) from exc
        sending.records = len(batch)
        return sending

    def _poison(self, part: Sequence[tuple[TopicPartition, Any]], now: int) -> PoisonError | None:
        """Find the record that cannot be mapped or packed, by taking them one by one; nothing of it is kept."""
        for tp, record in part:
            try:
                Sending(self._empty).add(self.maker.make([(tp, record)], now))
            except Exception:  # noqa: BLE001 - whatever it is, it ended the part
                return PoisonError(tp.topic, tp.partition, record.offset)
        return None

    def _empty(self) -> PackedBatch:
        return PackedBatch(self.topics, self._producer.create_batch, self._append, self._gauges.produced)

    # -- to the brokers --------------------------------------------------------------------------------------------

    async def _deliver(self, sending: Sending, before: "asyncio.Task[None] | None") -> None:
        """Send a batch after the one before it, and note that its offsets may be committed.

        Of each partition one record batch goes after another: while a partition has no leader the client gives up the
        first of several and may still send the next. The router would then take the records of the first, which are
        sent again, for copies.
        """
        try:
            if before is not None:
                await before
            if self.failure is not None:
                return
            await sending.first.send()
            self._probe(1)
            await sending.then.send()
            self._probe(2)
            self._done.update(sending.ends)
            self._gauges.batch(sending.records, perf_counter() - sending.started)
            self._raw_answers += sending.raw_answers
        except Exception as exc:  # noqa: BLE001 - whatever it is, the batch was not sent
            self.failure = exc
        finally:
            self._flying.popleft()

    async def _append(self, batches: list[tuple[RecordBatch, str, int]]) -> list[int]:
        """Append record batches; return the first offset of each, when all are acknowledged."""
        sent = [
            await self._producer.send_batch(batch, topic, partition=partition) for batch, topic, partition in batches
        ]
        return [int(each.offset) for each in await asyncio.gather(*sent)]

    async def _land(self) -> None:
        """Wait for what is on its way, and commit."""
        while self._flying:
            await self._flying[-1]
        if self.failure is None:
            await self._commit()

    async def _commit(self) -> None:
        self._committing = monotonic()
        new = {tp: offset for tp, offset in self._done.items() if self._committed.get(tp) != offset}
        if not new:
            return
        try:
            await self._consumer.commit({tp: (offset, self._noted(tp)) for tp, offset in new.items()})
        except (CommitFailedError, IllegalStateError) as exc:
            log.info("offsets are left to the new owners of the partitions: %s", type(exc).__name__)
            return
        self._committed.update(new)
        self._probe(3)

    def _noted(self, tp: TopicPartition) -> str:
        """Return what is committed beside an offset: its topic and epoch, and how wide the topics sent to are."""
        widths = [self.maker.widths[label] for label in ("forecasts", "routes", "labels")]
        noted = {"id": self.maker.ids[tp.topic], "epoch": self._read[tp].epoch, "partitions": widths}
        return json.dumps(noted, separators=(",", ":"))

    # -- partitions that move --------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:  # noqa: ARG002 - all of them
        """Finish what is on its way; what is only buffered is read again by the new owner."""
        self._moving, self._serving = True, False
        self._buffers.assign(())
        self._unread = {}
        try:
            await self._land()
        except Exception as exc:  # noqa: BLE001 - aiokafka would only log it
            self.failure = exc

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Go on where the partitions were committed."""
        try:
            await self._take_up(list(assigned))
        except Exception as exc:  # noqa: BLE001 - as above
            self.failure = exc

    async def _take_up(self, assigned: list[TopicPartition]) -> None:
        self._done.clear()
        self._committed.clear()
        self._following.clear()
        self.know(*await self._asked())
        if assigned:
            group = self._settings.intake_group
            stored = await self._admin.list_consumer_group_offsets(group, partitions=assigned)
            first = await self._consumer.beginning_offsets(assigned)
            for tp in assigned:
                offset, noted = stored.get(tp, (-1, ""))
                if offset >= 0:
                    self._compare(tp, offset, noted)
                    self._committed[tp] = offset
                self._following[tp] = offset if offset >= 0 else first[tp]
            self._skipped = await self._left_out()
            await self._announce(assigned)
            for tp in assigned:  # also what was committed: since the assignment, records were fetched and dropped
                self._consumer.seek(tp, self._following[tp])
        self._unread = {}  # fetched since the assignment, too, and fetched again
        self._buffers.assign(assigned)
        self._moving = False
        self._serving = bool(assigned)

    def _left_out_of(self, tp: TopicPartition) -> dict[int, str]:
        return self._skipped.get(tp, {})

    async def _left_out(self) -> dict[TopicPartition, dict[int, str]]:
        """Return what operators left out of the source topics (`trueup state skip`), and why."""
        found: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
        async for _, records in batches(self._settings, [self._settings.configurations]):
            for record in records:
                skip = skips.read_source(record.key, record.value)
                if skip is None or self.maker.ids.get(skip.topic) != skip.topic_id:
                    continue
                tp = TopicPartition(skip.topic, skip.partition)
                if tp in self._following and skip.offset >= self._following[tp]:
                    log.warning("leaving out %s/%d@%d: %s", *tp, skip.offset, skip.reason)
                found[tp][skip.offset] = skips.why(skip.offset, skip.reason)
        return found

    async def _announce(self, assigned: list[TopicPartition]) -> None:
        """Write down from where on this mapping is in force, and return when that is acknowledged."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        parts: dict[tuple[bytes, int], bytes] = {}
        taken_up: dict[tuple[bytes, int], bytes] = {}
        for tp in assigned:
            place = tp.topic, self.maker.ids[tp.topic], tp.partition, self._following[tp]
            now = in_force.Mapped(*place, self._mapping, self._owner, at)
            partition = tp.partition % self.maker.widths["configurations"]
            *own, (key, value) = in_force.mapped_records(now, self._settings.batch_bytes // 2)
            parts |= {(part, partition): said for part, said in own}
            taken_up[key, partition] = value
        for written in (parts, taken_up):  # what is named is there before it is named
            await asyncio.gather(
                *(
                    self._producer.send_and_wait(self._settings.configurations, value, key, partition)
                    for (key, partition), value in written.items()
                )
            )

    async def _asked(self) -> tuple[dict[str, int], dict[str, str]]:
        """Return how many partitions the topics sent to have, and the ids of the source topics."""
        client = self._producer.client
        async with asyncio.timeout(self._settings.request_seconds):
            there = {label: await provenance.identity(client, name) for label, name in self.topics.items()}
            ids = {topic: (await provenance.identity(client, topic)).id for topic in self.readers}
        widths = {label: each.partitions for label, each in there.items()}
        return widths, ids

    def _compare(self, tp: TopicPartition, offset: int, noted: str) -> None:
        """Refuse to go on where a topic is not what it was when the offset was committed."""
        try:
            before = json.loads(noted)
            topic_id, widths, epoch = before["id"], before["partitions"], before.get("epoch", -1)
        except (ValueError, TypeError, KeyError):
            return  # committed by somebody else's hand
        if offset and topic_id != self.maker.ids[tp.topic]:
            raise DataLossError(
                f"{tp.topic} was read up to offset {offset - 1} of partition {tp.partition}, but that topic was "
                f"deleted and made anew: its id was {topic_id} and is {self.maker.ids[tp.topic]}. Delete the offsets "
                f"of group {self._settings.intake_group} for it to be read from its first record"
            )
        for label, had in zip(("forecasts", "routes", "labels"), widths, strict=True):
            self._refuse(label, had, self.maker.widths[label])
        self._read[tp].on(epoch, offset)

    def _refuse(self, label: str, had: int, has: int) -> None:
        if had != has:
            raise PartitionsError(
                f"{self.topics[label]} has {has} partitions, and had {had} when records were sent to it: what follows "
                "would go to other partitions than what came before. 'trueup state rescale' moves the state to another "
                "number of partitions and another TRUEUP_APP_ID; see docs/how-to/rescale.md"
            )

    async def _look_behind(self) -> None:
        """Look what lies behind open transactions."""
        ends = {}
        for tp in self._following:
            with suppress(IllegalStateError):
                stable, end = self._consumer.last_stable_offset(tp), self._consumer.highwater(tp)
                if stable is not None and end is not None:
                    ends[tp] = stable, end
        await self._held_back.look(ends, self._producer.client)

    async def _look(self) -> None:
        """Compare the topics with what they were."""
        widths, ids = await self._asked()
        for label, had in self.maker.widths.items():
            self._refuse(label, had, widths[label])
        for topic, before in self.maker.ids.items():
            if ids[topic] != before:
                raise DataLossError(f"{topic} was deleted and made anew while it was read: start again")

    def samples(self) -> Iterator[Sample]:
        """Yield the gauges that count nothing."""
        yield "ready", (), float(not self.unready)
        yield "registry_waiting_seconds", (), self.registry_seconds
        yield "raw_answers", (), float(self._raw_answers)
        for what in ("header", "field"):
            readers = (reader for each in self.readers.values() for reader in each)
            yield "uncarried", (what,), float(sum(reader.left_out(what) for reader in readers))
        yield from self._held_back.samples({})
        held = self._buffers.held()
        yield "held_partitions", (), len(held)
        for tp, n in held.items():
            labels = (tp.topic, str(tp.partition))
            yield "buffered_records", labels, n
            with suppress(KafkaError, IllegalStateError):
                end = self._consumer.last_stable_offset(tp)
                if end is not None and tp in self._following:
                    yield "lag_records", labels, max(end - self._following[tp], 0) + n


def run(settings: Settings, *, probe: Probe = lambda _: None) -> int:
    """Run an intake until SIGTERM or SIGINT, and return its exit status; see `agents.worker.run`."""
    names = [mode.source.name for mode in settings.modes if not mode.direct]
    if not names:
        log.error(
            "no source is for the intake: [sources.NAME] in TRUEUP_STREAMS names them; see docs/explanation/routing.md"
        )
        return MISCONFIGURED
    try:
        problems = asyncio.run(_checked(settings))
    except Exception as exc:  # noqa: BLE001 - any reason the brokers cannot be asked
        log.error("%s", str(exc) or type(exc).__name__)  # noqa: TRY400 - a message, not a fault
        return MISCONFIGURED if isinstance(exc, topics.TopicsError) and exc.lasting else FAILED
    for problem in problems:
        log.error(problem)
    if problems:
        return MISCONFIGURED
    readers = listening(settings)
    if readers is None:
        return MISCONFIGURED
    try:
        with readers:
            return asyncio.run(_serve(settings, names, probe, readers))
    except ReadersError as exc:
        log.error("%s", exc)  # noqa: TRY400 - as above
        return FAILED


async def _checked(settings: Settings) -> list[str]:
    """Return what is wrong with the topics, or whose they are."""
    return await topics.lacking(settings) or await owners.claim(settings)


async def _serve(settings: Settings, names: Sequence[str], probe: Probe, readers: Readers) -> int:
    collect_rarely()

    def samples() -> Iterator[Sample]:
        yield from intake.samples()
        yield "failed_logins", (), float(readers.failed_logins)

    gauges = IntakeGauges(__version__, dict.fromkeys(names), samples, settings.application)
    intake = Intake(settings, gauges, probe)
    readers.measure(gauges.registry)
    readers.answer(Source(gauges.exposition))
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
    except SettingsError as exc:
        log.error("%s", exc)  # noqa: TRY400 - a message, not a fault
        return MISCONFIGURED
    except Exception as exc:  # noqa: BLE001 - whatever it is, the stage ends
        log_end(exc)
        if isinstance(exc, PoisonError):
            log.critical("%s", deaths.told(settings.data_dir, exc.place))
        return FAILED
    finally:
        for task in (reporting, watching):
            task.cancel()
    log.info("stopped")
    return 0
