"""The Faust application of a worker: its table, its transport, and the agent that processes turns.

All use of Faust goes through this module. A server of partitions implements `Inputs`, and sees no Faust object.
"""

from functools import partial
from typing import Any, cast

import faust
from faust.tables.manager import TableManager
from yarl import URL

from streams.config.settings import Settings
from streams.faust.assignor import Assignor
from streams.faust.contact import Contact
from streams.faust.credentials import credentials
from streams.faust.inputs import Inputs
from streams.faust.producing import BatchProducer
from streams.faust.progress import Recovery
from streams.faust.standbys import Standbys
from streams.faust.state_table import StateTable
from streams.faust.stores import SET_ASIDE
from streams.faust.transport import BatchConsumer, BatchTransport
from streams.records.merge import Batch

#: Turns that may be in progress at once: while some wait for acknowledgements or a schema, others are folded.
CONCURRENCY = 32
#: More turns than there can be, because each partition has only a few (`streams.faust.turns`). So the agent's queue is
#: never full.
QUEUED = 1 << 20


class Application:
    """A new Faust application, not started."""

    def __init__(self, settings: Settings) -> None:
        #: The application itself. Only this folder and its tests use it.
        self.faust = faust.App(
            settings.app_id,
            broker=[URL(f"kafka://{broker}") for broker in settings.brokers],
            broker_credentials=credentials(settings.security),
            store="rocksdb://",
            datadir=str(settings.state_dir),
            processing_guarantee="at_least_once",
            stream_wait_empty=True,
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
            PartitionAssignor=Assignor,
            table_standby_replicas=settings.standbys,
            recovery_consistency_check=True,
            web_enabled=False,
        )
        self._transport = BatchTransport(self.faust.conf.broker_consumer, self.faust)
        #: Whether brokers answer.
        self.contact = self._transport.contact = Contact(settings.brokers)
        self.faust.transport = self._transport
        self.faust.producer_transport = self._transport
        #: The state table.
        self.table = StateTable(
            self.faust,
            owner=settings.owner,
            changelog=settings.changelog,
            batch_bytes=settings.checkpoint_bytes,
            block_cache_size=settings.rocksdb_bytes,
        )
        self.faust.tables.add(self.table)
        self._transport.table = self.table
        #: Copies of other workers' partitions.
        self.standbys = Standbys(settings, self.contact, self.table.rocks(), self.table.store.close)
        self._transport.standbys = self.standbys
        cast("Assignor", self.faust.assignor).whole = self.standbys.whole

    def serve(self, inputs: Inputs) -> None:
        """Declare the agent, and who serves the partitions. Call it once, before the start."""
        self._transport.inputs = inputs
        sources = self.faust.topic(
            *inputs.sources, value_type=bytes, value_serializer="raw", internal=False, maxsize=QUEUED
        )

        @self.faust.agent(sources, name="process", concurrency=CONCURRENCY)
        async def process(turns: faust.StreamT[Any]) -> None:
            async for event in cast("faust.Stream[Any]", turns).noack().events():
                turn = event.value
                if not await inputs.process(turn, partial(self.consumer.folded, turn)):
                    return
                self.consumer.ack(event.message)
                turn.clear()  # each instance of the agent keeps its last event until the next one

    @property
    def consumer(self) -> BatchConsumer:
        """The consumer of the inputs."""
        return cast("BatchConsumer", self.faust.consumer)

    @property
    def producer(self) -> BatchProducer:
        """The producer of the changelog and of the outputs."""
        return cast("BatchProducer", self.faust.producer)

    @property
    def serving(self) -> bool:
        """Whether partitions are assigned, restored and served."""
        app = self.faust
        if app.should_stop or not app.started or app.rebalancing or app.in_recovery:
            return False
        return bool(app.tables.actives_ready and self.consumer.assignment())

    @property
    def expelled(self) -> bool:
        """Whether the worker has left its group for good; any thread may ask."""
        return bool(self.faust.started and self.consumer.expelled)

    @property
    def unserved(self) -> frozenset[int]:
        """Partitions that no worker of the group may serve, because they wait for another build; any thread may ask."""
        return cast("Assignor", self.faust.assignor).unserved

    @property
    def crash(self) -> BaseException | None:
        """The error that ended the application, or None."""
        if not self.faust.crashed:
            return None
        return self.faust.crash_reason or RuntimeError("the application crashed")

    def unrestored(self) -> int | None:
        """Return how many changelog offsets are still to be restored; None if nothing is being restored.

        Any thread may call it, because it uses nothing that Faust first makes on demand.
        """
        return self.recovery().left if self._recovering() else None

    def recovery(self) -> Recovery:
        """Return the progress of restoring; as with `unrestored`, any thread may call it."""
        recovering = self._recovering()
        if recovering is None:
            return Recovery()
        ends, offsets = dict(recovering.active_highwaters), dict(recovering.active_offsets)
        left = sum(max((end or 0) - (offsets.get(tp) or 0), 0) for tp, end in ends.items())
        return Recovery(left, sum((end or 0) + 1 for end in ends.values()))

    def _recovering(self) -> Any:  # noqa: ANN401 - Faust's
        # The public attribute would create the service, on the wrong event loop if another thread asks.
        return cast("TableManager", self.faust.tables)._recovery if self.faust.in_recovery else None  # noqa: SLF001

    def holds(self, batch: Batch) -> bool:
        """Whether this worker still has the partition of a batch."""
        return self.consumer.holds(batch)

    def set_aside(self) -> dict[str, int]:
        """Return how many directories were set aside since the process began, by reason; any thread may ask."""
        found = [store.set_aside_for for store in (self.table.store, self.standbys.store)]
        return {what: sum(each[what] for each in found) for what in SET_ASIDE}

    async def start(self) -> None:
        """Run until the application is stopped or crashes."""
        await self.standbys.examine()
        await self.faust.start()

    async def stop(self) -> None:
        """Finish the batches in flight, commit their offsets, and leave the group."""
        app = self.faust
        if app.started and not app.rebalancing and not app.in_recovery:
            # Otherwise Faust would close the tables first, but batches in flight need them.
            self.consumer.stop_flow()
            app.flow_control.suspend()
            app.flow_control.clear()
            await self.consumer.wait_empty()
            await self._transport.inputs.checkpoint()
        await app.stop()
        await self.standbys.stop()
