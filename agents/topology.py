"""Wires a worker: application, processor, gauges."""

import asyncio
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from aiokafka import TopicPartition
from faust.types import TP

from agents import __version__, deaths, memory
from agents.applying import Probe
from agents.maps import Publisher
from agents.notices import Notices
from agents.notices import path as noticed
from agents.processor import BatchProcessor
from agents.readers import ReadersError
from state.frames import REMEDY, OtherFormat
from state.journal import Journal
from streams.config.in_force import InForceError
from streams.config.settings import Settings
from streams.faust.application import Application
from streams.faust.changelog import FencedError, MovedError
from streams.faust.in_force import Announcer, recalled
from streams.faust.inputs import DataLossError
from streams.faust.membership import MembershipError
from streams.faust.outputs import Outputs
from streams.faust.progress import Progress
from streams.faust.state_table import PartitionsError, StateTable
from streams.faust.stores import DamagedStoreError
from streams.kafka.broker_requests import BrokersError
from streams.metrics.gauges import Gauges
from streams.metrics.mirror import Standing
from streams.records import skips
from streams.records.merge import Batch, KafkaRecord
from streams.records.skips import PoisonError
from streams.sources.wait import Wait

log = logging.getLogger("trueup")

#: Reported by ``/readyz`` when a stage was told to stop.
STOPPING: Final = "it is stopping"


#: Errors that end a stage but are not defects of it: the message suffices.
NO_DEFECT: Final = (
    BrokersError,
    DataLossError,
    FencedError,
    MembershipError,
    PartitionsError,
    ReadersError,
)
#: Messages of RocksDB and Python for a full disk, and the remedy.
FULL: Final = "No space left on device"
ROOM: Final = "; free some, or give the worker an empty disk that is larger: it goes on where it was"


def log_end(exc: BaseException) -> None:
    """Log the error that ends a stage, with a traceback if it may be a defect."""
    full, timed_out = FULL in str(exc), isinstance(exc, TimeoutError) and str(exc)
    told = full or timed_out or isinstance(exc, NO_DEFECT)
    room = ROOM if full else ""
    log.critical("cannot go on: %s: %s%s", type(exc).__name__, exc, room, exc_info=None if told else exc)


@dataclass(eq=False)
class Topology:
    """A wired worker that is not started yet. It is also the `Inputs` for the transport."""

    settings: Settings
    #: The application; `agents.worker.run` runs it.
    app: Application

    table: StateTable
    gauges: Gauges
    processor: BatchProcessor
    announcer: Announcer | None
    #: Ends the process at once, with this status (by default not 0).
    abort: Callable[..., None]
    #: The error that ended the process, or None.
    failure: BaseException | None = None
    #: Whether the worker was told to stop.
    stopping: bool = False
    #: Whether the worker still waits for intake and router, see `streams.kafka.backlog`.
    behind: bool = False
    #: Progress of restoring the state.
    progress: Progress = field(default_factory=Progress)
    #: Returns the number of logins with a wrong password.
    failed_logins: Callable[[], int] = lambda: 0
    #: Outputs' schemas about which the registry has not answered yet.
    wait: Wait = field(default_factory=Wait)
    #: Offset of the claim under which each partition is served.
    claims: dict[int, int] = field(default_factory=dict)
    publisher: Publisher | None = None
    _skips: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)
    #: Number of input records deleted unread since the process began, by topic.
    lost_records: Counter[str] = field(default_factory=Counter)

    @property
    def sources(self) -> tuple[str, str]:
        """Topics of forecasts and of outcomes."""
        return self.settings.inputs

    async def renew(self) -> None:
        """Confirm old claims, and check that the topics are still the same."""
        await self.table.renew()
        if claims := self.table.changelog.claims():
            await self.table.recognise(claims, self.sources)
            if policy := await self.table.cleanup():
                self.processor.notices.cleaned(self.settings.changelog, policy)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Topics that only the owner of a partition writes."""
        return () if self.settings.routed else self.settings.outputs

    async def applied(self, partition: int, said: Sequence[int] = ()) -> tuple[tuple[int, int], Journal]:
        """Take up a partition, and write which configuration is in force from now on.

        Raises DataLossError if an input topic was recreated since its records were applied. Returns the next offset of
        each input after the last checkpoint, and the journal since then.
        """
        calibrated, resolved, letters = said or (0, 0, 0)
        fence, journal = await self.processor.reopen(
            partition, lambda config: recalled(self.settings, partition, config), (calibrated, resolved, letters)
        )
        await self.table.recognise([partition], self.sources)
        if self.announcer is not None:
            folded = fence
            if journal.entries:
                end = journal.entries[-1]
                folded = replace(fence, next=list(end.ends), applied=end.applied)
            await self.announcer.announce(partition, self.table.claimed(partition), folded)
        for topic in self.sources:
            self._skips.pop((topic, partition), None)
        for skip in skips.read(self.table.store.range(partition, skips.SKIP.letter)):
            log.warning("leaving out %s/%d@%d: %s", self.sources[skip.topic], partition, skip.offset, skip.reason)
            left_out = self._skips.setdefault((self.sources[skip.topic], partition), {})
            left_out[skip.offset] = skips.why(skip.offset, skip.reason)
        self.claims[partition] = self.table.claimed(partition)
        forecasts, outcomes = fence.next
        return (forecasts, outcomes), journal

    async def forgo(self, partition: int, journal: Journal) -> None:
        """Skip these entries, as their records were deleted; their answers remain, and nothing is learnt."""
        await self.processor.forgo(partition, journal)

    async def checkpoint(self) -> None:
        """Write checkpoints of all partitions before they move. If one fails, the new owner folds the records again."""
        try:
            await self.processor.checkpoint(due=False)
        except Exception as exc:  # noqa: BLE001 - the journal has the records
            log.info("no checkpoint was written: %s", exc)

    def tick(self, partition: int) -> int:
        """Return the stream time to which a partition without new records may advance; see `BatchProcessor.tick`."""
        return self.processor.tick(partition)

    def waits_for(self, batch: Batch) -> bool:
        """Whether a batch waits for the schema registry."""
        return self.processor.waits_for(batch)

    def skipped(self, tp: TopicPartition) -> Mapping[int, str]:
        """Return the offsets of a topic-partition that are skipped, each with its reason."""
        return self._skips.get((tp.topic, tp.partition), {})

    def revoked(self, partition: int) -> None:
        """Drop a partition."""
        self.claims.pop(partition, None)
        self.processor.close(partition)

    def restore(self, tp: TP, records: Sequence[KafkaRecord]) -> None:
        """Write recovered changelog records."""
        self.table.restore(tp, records)
        self.progress.restored(len(records))

    def lost(self, tp: TP, records: int) -> None:
        """Count records of an input that were deleted before they were read."""
        self.lost_records[tp.topic] += records

    def failed(self, exc: BaseException) -> None:
        """Stop at once and acknowledge nothing. Unfinished work is done again after the restart."""
        if self.failure is None:
            self.failure = exc
            if isinstance(exc, OtherFormat):
                log.critical("the state of %s cannot be read: %s; %s", self.settings.app_id, exc, REMEDY)
                self.abort(os.EX_CONFIG)
                return
            if isinstance(exc, InForceError):
                log.critical("%s", exc)
                self.abort(os.EX_CONFIG)
                return
            log_end(exc)
            if isinstance(exc, PoisonError):
                log.critical("%s", deaths.told(self.settings.data_dir, exc.place))
            self.abort()

    @property
    def healthy(self) -> bool:
        """Whether no error has occurred that only a restart can repair."""
        return self.failure is None and not self.app.expelled

    @property
    def serving(self) -> bool:
        """Whether partitions are assigned, restored and served."""
        return self.failure is None and self.app.serving

    @property
    def standing(self) -> Standing:
        """The state of the worker as its readers see it; another thread may ask."""
        hanging = self.app.consumer.held_back.said if self.app.serving else ()
        return Standing(self.unready, self.app.recovery(), tuple(self.app.standbys.look()), hanging)

    @property
    def registry_seconds(self) -> float:
        """How long the worker has waited for the schema registry, s; 0 if it does not wait."""
        return max(self.wait.seconds, self.processor.wait.seconds)

    @property
    def unready(self) -> str:
        """Why the worker does not answer all forecasts, in words without secrets; empty if it answers all."""
        if self.failure is not None:
            return "it cannot go on"
        if self.stopping:
            return STOPPING
        if waits := self.app.contact.lost or self.wait.said or self.processor.wait.said or self._unserved:
            return waits
        if self.behind:
            stages = "intake has" if self.settings.routed else "intake and router have"
            return f"{stages} not handed on yet what the sources hold"
        if self.app.serving:
            behind = any(each.behind for each in list(self.app.consumer.partition_buffers.values()))
            return "folding again what was answered since the last checkpoint" if behind else ""
        return "restoring the state" if self.app.unrestored() else "no partition is served"

    @property
    def _unserved(self) -> str:
        which = ", ".join(map(str, sorted(self.app.unserved)))
        return which and f"partition {which} waits for a worker of the build that answered it last"

    async def process(self, turn: Sequence[Batch], folded: Callable[[], None]) -> bool:
        """Process a turn; return whether it is done."""
        try:
            applied = await self.processor.fold(turn)
            folded()
            await self.processor.answer(applied)
        except asyncio.CancelledError:
            raise
        except MovedError as exc:
            if any(map(self.app.holds, turn)):  # a partition that is still held has not moved, so something is wrong
                self.failed(exc)
                return False
            # Their buffers are gone, so the acknowledgement commits nothing. It only ends the wait for this turn.
            log.info("%s", exc)
        except DamagedStoreError as exc:
            self.app.consumer.repair(exc)  # their buffers are gone, too
        except BaseException as exc:  # noqa: BLE001 - after any error the turn is not done
            self.failed(exc)
            return False
        return True


def build(settings: Settings, *, abort: Callable[..., None], probe: Probe = lambda _: None) -> Topology:
    """Wire a new application.

    ``abort``: ends the process after an error from which it cannot recover.
    """
    app = Application(settings)
    gauges = Gauges(
        settings.metrics_streams,
        __version__,
        lambda: samples(topology),
        settings.policies,
        app=settings.application,
    )
    outputs = Outputs(settings, lambda: app.producer, gauges.produced)
    notices = Notices(noticed(settings, "worker"))
    processor = BatchProcessor(settings, app.table, outputs, gauges, probe, app.holds, notices)
    announcer = Announcer(settings, lambda: app.producer, app.table.owner)
    topology = Topology(settings, app, app.table, gauges, processor, announcer, abort)
    if settings.maps:
        topology.publisher = Publisher(settings, gauges.held, lambda: dict(topology.claims))
    app.serve(topology)
    return topology


def samples(topology: Topology) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield the gauges whose values are not in the state.

    The thread of the metrics server calls this. So this must not be the first use of an object that Faust makes on
    demand: Faust would bind that object to the wrong event loop.
    """
    yield "ready", (), float(not topology.unready)
    yield "registry_waiting_seconds", (), topology.registry_seconds
    yield "failed_logins", (), topology.failed_logins()
    if topology.publisher is not None:
        yield from topology.publisher.samples()
    yield from topology.processor.samples()
    for label, topic in zip(("forecasts", "outcomes"), topology.sources, strict=True):
        yield "lost_records", (label,), topology.lost_records[topic]
    progress = topology.progress
    yield "recovery_remaining_records", (), float(topology.app.unrestored() or 0)
    yield "recovery_restored_rows", (), float(progress.rows)
    yield "recovery_seconds", (), progress.seconds
    if progress.seconds_left is not None:
        yield "recovery_left_seconds", (), progress.seconds_left
    standbys = topology.app.standbys
    copies = standbys.look()
    yield "standby_partitions", (), float(len(copies))
    yield "standby_missing_partitions", (), float(standbys.missing)
    yield "standby_rows", (), float(standbys.rows)
    for copy in copies:
        if copy.lag is not None:
            yield "standby_lag_records", (str(copy.partition),), float(copy.lag)
    for what, times in topology.app.set_aside().items():
        yield "set_aside", (what,), float(times)
    with suppress(OSError):  # the file may have been removed meanwhile
        disk = shutil.disk_usage(topology.settings.state_dir)
        yield "disk_free_ratio", (), disk.free / disk.total
    if (free := memory.free_ratio()) is not None:
        yield "memory_free_ratio", (), free
    if not topology.serving:
        return
    yield from topology.app.consumer.samples()
    for partition in topology.gauges.partitions():
        rows, held = topology.table.store.size(partition)
        yield "state_rows", (str(partition),), rows
        yield "state_bytes", (str(partition),), held
