"""The wiring: a fresh Faust application, its table, its one agent, and what joins them."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import faust
from aiokafka import TopicPartition
from faust.tables.manager import TableManager
from faust.types import TP
from yarl import URL

from agents import __version__, deaths
from agents.processor import BatchProcessor, Probe
from agents.status.readings import Recovery
from streams.config.settings import Settings
from streams.faust.changelog import MovedError
from streams.faust.outputs import Outputs
from streams.faust.transport import BatchConsumer, BatchProducer, BatchTransport
from streams.metrics.gauges import Gauges
from streams.records import skips
from streams.records.merge import Record
from streams.records.skips import PoisonError
from streams.table.progress import Progress
from streams.table.state_table import StateTable

log = logging.getLogger("trueup")

#: Batches whose waits overlap.
CONCURRENCY = 32


class RecordsAsTheyAre(faust.Schema[bytes, bytes]):
    """Hands batches to the agent undecoded: decoding is the engine's first step, where bad records are counted."""

    def loads_key(self, app: Any, message: Any, **_: Any) -> Any:  # noqa: ANN401, ARG002 - Faust's signature
        """Return the key as it came."""
        return message.key

    def loads_value(self, app: Any, message: Any, **_: Any) -> Any:  # noqa: ANN401, ARG002 - Faust's signature
        """Return the batch."""
        return message.value


@dataclass(eq=False)
class Topology:
    """An application that is wired and not started. Also answers what the transport asks of it (`Inputs`).

    Attributes
    ----------
    app
        The Faust application; run it with `agents.worker.run`.
    abort
        Ends the process, at once and with a status that is not 0.
    failure
        What ended the process, if something did.
    progress
        How far restoring the state is.
    failed_logins
        Returns how many readers showed a wrong password.
    """

    settings: Settings
    app: faust.App
    table: StateTable
    gauges: Gauges
    processor: BatchProcessor
    abort: Callable[[], None]
    failure: BaseException | None = None
    progress: Progress = field(default_factory=Progress)
    failed_logins: Callable[[], int] = lambda: 0
    _skips: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[str, str]:
        """Topics of forecasts and of outcomes."""
        return self.settings.forecasts, self.settings.outcomes

    async def claim(self, partition: int) -> None:
        """Shut all others out of a partition's changelog."""
        await self.table.claim(partition)

    async def vet(self, partitions: Sequence[int]) -> Sequence[int]:
        """Set aside what this disk holds of claimed partitions and the changelog cannot bring up to date."""
        return await self.table.vet(partitions)

    async def keep(self) -> None:
        """Confirm the claims that have not been for long."""
        await self.table.keep()

    async def applied(self, partition: int) -> tuple[int, int]:
        """Take up a partition and return its fence."""
        fence = await self.processor.reopen(partition)
        for topic in self.sources:
            self._skips.pop((topic, partition), None)
        for skip in skips.read(self.table.range(partition, skips.LETTER)):
            log.warning("leaving out %s/%d@%d: %s", self.sources[skip.topic], partition, skip.offset, skip.reason)
            left_out = self._skips.setdefault((self.sources[skip.topic], partition), {})
            left_out[skip.offset] = skips.why(skip.offset, skip.reason)
        return fence

    def skipped(self, tp: TopicPartition) -> Mapping[int, str]:
        """Return what is left out of a partition of a topic, by its offset, and why."""
        return self._skips.get((tp.topic, tp.partition), {})

    def revoked(self, partition: int) -> None:
        """Let go of a partition."""
        self.processor.close(partition)

    def restore(self, tp: TP, records: Sequence[Record]) -> None:
        """Write recovered changelog records."""
        self.table.restore(tp, records)
        self.progress.restored(len(records))

    def restored(self, partition: int) -> int:
        """Return the next offset of the changelog to restore."""
        offset = self.table.offset(partition)
        return 0 if offset is None else offset + 1

    def failed(self, exc: BaseException) -> None:
        """Stop at once, acknowledging nothing: what was not finished is done again after the restart."""
        if self.failure is None:
            self.failure = exc
            log.critical("cannot go on: %s: %s", type(exc).__name__, exc, exc_info=exc)
            if isinstance(exc, PoisonError):
                log.critical("%s", deaths.told(self.settings.data_dir, exc.place))
            self.abort()

    def unrestored(self) -> int | None:
        """Return how many offsets of the changelog are still to be restored, or None while nothing is restored.

        Never the first to ask for anything Faust makes on demand, so any thread may call it.
        """
        recovery = cast("TableManager", self.app.tables)._recovery  # noqa: SLF001 - the public name would make it
        return recovery.active_remaining_total() if self.app.in_recovery and recovery else None

    @property
    def ready(self) -> bool:
        """Whether partitions are assigned, restored and served."""
        app = self.app
        if app.should_stop or not app.started or app.rebalancing or app.in_recovery or self.failure:
            return False
        return bool(app.tables.actives_ready and consumer_of(app).assignment())

    def recovery(self) -> Recovery:
        """Return how far the restoring is; like `_now`, callable from any thread."""
        tables = cast("TableManager", self.app.tables)
        recovering = tables._recovery if self.app.in_recovery else None  # noqa: SLF001 - the public name would make it
        if recovering is None:
            return Recovery()
        ends, offsets = dict(recovering.active_highwaters), dict(recovering.active_offsets)
        left = sum(max((end or 0) - (offsets.get(tp) or 0), 0) for tp, end in ends.items())
        return Recovery(left, sum((end or 0) + 1 for end in ends.values()))


def consumer_of(app: faust.App) -> BatchConsumer:
    """Return the application's consumer."""
    return cast("BatchConsumer", app.consumer)


def build(
    settings: Settings, *, abort: Callable[[], None], memory: bool = False, probe: Probe = lambda _: None
) -> Topology:
    """Wire a fresh application.

    Parameters
    ----------
    settings
        Every setting.
    abort
        Ends the process when something cannot be continued from.
    memory
        Keep the table in memory instead of RocksDB.
    probe
        Called with the number of each step of each batch; tests kill the process in it.
    """
    app = faust.App(
        settings.app_id,
        broker=[URL(f"kafka://{broker}") for broker in settings.brokers],
        broker_credentials=settings.security.credentials(),
        store="memory://" if memory else "rocksdb://",
        datadir=str(settings.state_dir),
        processing_guarantee="at_least_once",
        stream_wait_empty=True,
        stream_buffer_maxsize=1024,
        broker_commit_interval=settings.commit_seconds,
        broker_session_timeout=settings.session_seconds,
        consumer_group_instance_id=settings.instance_id,
        broker_heartbeat_interval=settings.session_seconds / 10,
        broker_rebalance_timeout=max(settings.session_seconds, 30.0),
        broker_request_timeout=max(settings.session_seconds, 40.0),
        producer_acks=-1,
        producer_request_timeout=settings.request_seconds,
        producer_max_batch_size=settings.batch_bytes,
        producer_max_request_size=settings.batch_bytes + 100_000,
        producer_linger=0,
        consumer_max_fetch_size=1 << 20,
        consumer_auto_offset_reset="earliest",
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        recovery_consistency_check=True,
        web_enabled=False,
    )
    transport = BatchTransport(app.conf.broker_consumer, app)
    app.transport = transport
    app.producer_transport = transport
    table = StateTable(
        app,
        memory=memory,
        owner=settings.instance_id or f"{socket.gethostname()}/{os.getpid()}",
        write_buffer_size=settings.write_buffer_bytes,
        block_cache_size=settings.block_cache_bytes,
    )
    app.tables.add(table)
    gauges = Gauges(settings.metrics_streams, __version__, lambda: _now(topology), settings.policies)
    outputs = Outputs(settings, lambda: cast("BatchProducer", app.producer), gauges.produced)
    topology = Topology(
        settings,
        app,
        table,
        gauges,
        BatchProcessor(settings, table, outputs, gauges, probe, lambda batch: consumer_of(app).holds(batch)),
        abort,
    )
    transport.inputs = topology
    sources = app.topic(*topology.sources, schema=RecordsAsTheyAre(key_type=bytes, value_type=bytes), internal=False)

    @app.agent(sources, name="process", concurrency=CONCURRENCY)
    async def process(batches: faust.StreamT[Any]) -> None:
        async for event in cast("faust.Stream[Any]", batches).noack().events():
            try:
                folded = await topology.processor.fold(event.value)
                consumer_of(app).folded(event.value)
                await topology.processor.answer(folded)
            except asyncio.CancelledError:
                raise
            except MovedError as exc:
                if consumer_of(app).holds(event.value):  # then it has not moved, and something is wrong
                    topology.failed(exc)
                    return
                # Its lane is gone, so acknowledging it commits nothing; it only is no longer waited for.
                log.info("%s", exc)
            except BaseException as exc:  # noqa: BLE001 - whatever it is, the batch is not done
                topology.failed(exc)
                return
            consumer_of(app).ack(event.message)
            # Each of the agent's instances keeps its last event until the next, however large its records are.
            event.value.records.clear()

    return topology


def _now(topology: Topology) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Read what is not in the state.

    Called by the metrics server's thread, so it must not be the first to ask for anything Faust makes on demand:
    that would be bound to the wrong event loop.
    """
    yield "ready", (), float(topology.ready)
    yield "failed_logins", (), topology.failed_logins()
    progress = topology.progress
    yield "recovery_remaining_records", (), float(topology.unrestored() or 0)
    yield "recovery_restored_rows", (), float(progress.rows)
    yield "recovery_seconds", (), progress.seconds
    if progress.seconds_left is not None:
        yield "recovery_left_seconds", (), progress.seconds_left
    if not topology.ready:
        return
    consumer = consumer_of(topology.app)
    for lane in list(consumer.lanes.values()):
        inputs = zip(("forecasts", "outcomes"), lane.sources, lane.buffers, lane.sizes, strict=True)
        for label, tp, buffer, size in inputs:
            labels = (label, str(tp.partition))
            yield "buffered_records", labels, len(buffer)
            yield "buffered_bytes", labels, size
            yield "fetch_paused", labels, float(consumer.paused(tp))
            lag = consumer.lag(tp)
            if lag is not None:
                yield "lag_records", labels, lag
    for partition in topology.gauges.partitions():
        rows, held = topology.table.size(partition)
        yield "state_rows", (str(partition),), rows
        yield "state_bytes", (str(partition),), held
