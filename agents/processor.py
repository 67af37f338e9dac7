"""The agent: one batch of a partition, from its records to acknowledged outputs, in the order that survives kill -9.

The numbered steps are those of the operations page. Step 3 is the commit point: before it a crash leaves no trace,
after it the state is complete and inputs that are delivered again are answered from the ledger.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from agents.notices import Notices
from state import formats
from state.engine import BATCH_LIMIT, Partition
from state.events import Forecast, Rejected
from state.fence import FORECASTS, OUTCOMES, Fence
from state.frames import CorruptFrame
from streams.config.settings import Settings
from streams.faust.changelog import MovedError, TooLargeError
from streams.faust.outputs import OutputBatch, Outputs
from streams.faust.state_table import StateTable
from streams.faust.stores import DamagedStoreError
from streams.metrics import snapshot
from streams.metrics.gauges import Gauges
from streams.metrics.sample import Sample
from streams.metrics.snapshot import PartitionSnapshot
from streams.records.decoding import SCOPED, Decoder
from streams.records.lookalikes import Lookalikes
from streams.records.merge import Batch, Merged
from streams.records.refused import named
from streams.records.skips import PoisonError
from streams.sources import far_off, modes
from streams.sources.fields import FORECAST, OUTCOME
from streams.sources.source import Source

log = logging.getLogger("trueup")

#: Records decoded, applied and encoded at a time. With 500 they stay in a processor's own cache: 4.9 us an event with a
#: histogram, 5.4 with 1,000, 6.8 with 2,000 (python -m tests.bench.parts).
PART = 500

#: Called with the number of the step just finished; tests kill the process here.
Probe = Callable[[int], None]


class Engine(Protocol):
    """A working copy of a partition's state: `state.engine.Partition`, or the router's."""

    fence: Fence

    def reset(self) -> None:
        """Forget the working copy."""

    def begin(self) -> None:
        """Begin a batch."""

    def apply(self, events: Any, /) -> list[Any]:  # noqa: ANN401 - as the decoder makes them
        """Apply events in order, and return what they are answered with."""

    def end(self) -> Any:  # noqa: ANN401 - its own effects; they have `rows`
        """Return the effects of the batch."""


@dataclass(frozen=True)
class AppliedBatch:
    """A batch whose effects are in the state.

    Attributes
    ----------
    batch
        The batch.
    started
        When its folding was asked for, s of a clock that only counts.
    output_batches
        What is to be produced.
    """

    batch: Batch
    started: float
    output_batches: list[OutputBatch]


class BatchProcessor:
    """Folds batches and answers them: a partition's batches one after another, each answered while the next is folded.

    Parameters
    ----------
    settings
        Names the topics and configures decoding.
    table
        Where the state is.
    outputs
        Produces records and waits for their acknowledgement.
    gauges
        Counts.
    probe
        Called after each step.
    current
        Whether a batch was handed out since its partition was last taken up.
    notices
        Counts dead letters, and times that lie far off.
    """

    def __init__(
        self,
        settings: Settings,
        table: StateTable,
        outputs: Outputs,
        gauges: Gauges,
        probe: Probe = lambda _: None,
        current: Callable[[Batch], bool] = lambda _: True,
        notices: Notices | None = None,
    ) -> None:
        self.notices = notices or Notices()
        self._policies = settings.policies
        self._topics = settings.forecasts, settings.outcomes
        self._decoder: Any = Decoder(settings.policies, settings.limits, settings.direct, settings.carry_headers)
        self._table = table
        self._outputs = outputs
        self._gauges = gauges
        self._probe = probe
        self._current = current
        #: Its topics by their number, each with the source that maps it. Of what intake writes, intake tells.
        self._reads: dict[int, tuple[str, Source | None]] = {}
        for topic, role in ((FORECASTS, FORECAST), (OUTCOMES, OUTCOME)):
            direct = [mode.source for mode in settings.modes if mode.source.role == role and mode.direct]
            if not modes.routed(settings.modes, role):
                self._reads[topic] = self._topics[topic], direct[0] if direct else None
        #: How many forecasts intake did not write, where labels come through it: theirs have a scope.
        self._unrouted = 0
        self._routed = modes.routed(settings.modes, OUTCOME)
        self._lookalikes = Lookalikes()
        self._partitions: dict[int, Engine] = {}
        #: How many records had rows that fit one batch of the changelog, of partitions where not all did.
        self._fitting: dict[int, int] = {}
        #: PartitionSnapshot while a batch of a partition is folded, and while one is answered.
        self._folding: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answering: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def fence(self, partition: int) -> Fence:
        """Return the fence of a partition that was taken up."""
        return _committed(self._partitions[partition].fence)

    async def reopen(self, partition: int) -> tuple[int, int]:
        """Take up a partition from its table, and return the next offset of forecasts and of outcomes to apply."""
        async with self._folding[partition], self._answering[partition]:
            self._fitting.pop(partition, None)
            self._table.reopened(partition)
            opened = self._partitions[partition] = self._open(self._table.reader(partition))
            self._taken_up(partition, opened.fence)
            forecasts, outcomes = opened.fence.next
            return forecasts, outcomes

    def _open(self, read: Callable[[bytes], bytes | None]) -> Engine:
        """Return the engine of a partition whose rows are read so."""
        return Partition(self._policies, read)

    def _taken_up(self, partition: int, fence: Fence) -> None:
        """Show a partition that was taken up; raises `CorruptFrame` if this build does not read its rows."""
        formats.check(lambda prefix: next(iter(self._table.range(partition, prefix)), None), self._policies)
        self._take_slots(partition)
        self._gauges.assigned(partition, self._held(partition, self._gauges.shown(), fence))

    def _take_slots(self, partition: int) -> None:
        """Give the streams of a partition slots, until there are none left.

        A partition may hold rows of any number of streams, and all wait while it is taken up: what is read is bounded
        by the number of slots.
        """
        for streams in snapshot.present(lambda prefix: self._table.range(partition, prefix), self._policies):
            all(map(self._gauges.shows, streams))  # until one finds none

    def _held(self, partition: int, streams: Iterable[str], fence: Fence) -> PartitionSnapshot:
        """Return what the gauges hold of some streams of a partition, as it is stored."""
        return snapshot.read(lambda key: self._table.read(partition, key), self._policies, streams, _committed(fence))

    def registered(self, settings: Settings) -> None:
        """Take the settings with the ids of the schemas of outputs, before the first batch."""
        self._outputs.settings = settings

    @property
    def registry_seconds(self) -> float:
        """How long a batch has waited for the schema registry, s; 0 if none does."""
        waited: float = self._decoder.schemas.wait.seconds
        return waited

    @property
    def waits(self) -> str:
        """What is waited for of the schema registry; empty: nothing."""
        said: str = self._decoder.schemas.wait.said
        return said

    def samples(self) -> Iterator[Sample]:
        """Yield what counts itself: dead forecasts answered all the same, and what answers could not carry."""
        yield "raw_answers", (), float(self._outputs.raw_answers)
        for what in ("header", "field"):
            yield "uncarried", (what,), float(self._decoder.left_out(what))

    def tell(self) -> None:
        """Say what somebody should look at, see `agents.notices`."""
        for topic, (name, source) in self._reads.items():
            if records := self._decoder.far_off[topic]:
                ts, timestamp = self._decoder.far_off_last[topic]
                more = self.notices.far_off(name, records, far_off.said(ts, timestamp, source))
                self._gauges.far_off(topic, more)
        if self._unrouted:
            self.notices.unrouted(self._topics[FORECASTS], self._unrouted)
        self.notices.tell()

    def close(self, partition: int) -> None:
        """Let go of a partition that has moved."""
        self._partitions.pop(partition, None)
        self._table.closed(partition)
        self._gauges.revoked(partition)

    async def fold(self, batch: Batch) -> AppliedBatch:
        """Put the effects of a batch into the state; what it returns is to be answered at once.

        Raises
        ------
        MovedError
            If the partition has moved; nothing of the batch was done.
        CorruptFrame, FencedError, ForeignWriterError, KafkaError
            Whatever is raised, nothing of the batch may be acknowledged, and the process must end.
        """
        started = perf_counter()
        if self._decoder.asks_registry:
            await self._decoder.load(batch.records)
        async with self._folding[batch.partition]:
            if not self._current(batch):
                # Its records are read again, from a fence that does not know of them: folded now, they would be
                # merged with what comes after them, and their neighbours learnt in another order than was recorded.
                raise MovedError(f"partition {batch.partition} was taken up again; a batch that was waiting is void")
            return AppliedBatch(batch, started, await self._commit(batch.partition, batch.records))

    async def answer(self, folded: AppliedBatch) -> None:
        """Produce the outputs of a batch, after those of the batches before it; returns when all are acknowledged.

        Raises
        ------
        KafkaError, TimeoutError
            As `fold`.
        """
        batch = folded.batch
        async with self._answering[batch.partition]:
            began = perf_counter()
            await self._send(folded)  # step 5
            self._done(5, perf_counter() - began)
        self._gauges.batch(len(batch.records), perf_counter() - folded.started)
        self._gauges.waited([record.timestamp for topic, record in batch.records if topic == FORECASTS])

    async def _send(self, folded: AppliedBatch) -> None:
        """Produce the outputs of a batch."""
        for output_batch in folded.output_batches:
            await output_batch.send()

    async def _commit(self, number: int, records: Sequence[Merged]) -> list[OutputBatch]:
        """Put records into the state, all at once if their rows fit one batch of the changelog."""
        output_batches = []
        fitted = True
        while records:
            now = records[: self._fitting.get(number)]
            try:
                output_batches.append(await self._commit_at_once(number, now))
            except TooLargeError:
                if len(now) == 1:
                    raise
                self._partitions[number].reset()
                self._fitting[number] = len(now) // 2  # those that come will be as large
                fitted = False
            else:
                records = records[len(now) :]
        if fitted and number in self._fitting:
            self._fitting[number] += self._fitting[number] // 4 + 1  # until they are not
            if self._fitting[number] >= BATCH_LIMIT:
                del self._fitting[number]
        return output_batches

    async def _commit_at_once(self, number: int, records: Sequence[Merged]) -> OutputBatch:
        partition = self._partitions.get(number)
        if partition is None:
            raise MovedError(f"partition {number} has moved; a batch of it that was waiting is left to its new owner")
        output_batch = self._outputs.batch(number)
        effects, rejected = await self._applied(partition, records, output_batch)
        if effects.rows:
            began = perf_counter()

            def done(step: int) -> None:
                nonlocal began
                now = perf_counter()
                self._done(step, now - began)
                began = now

            # Step 3, and 4: changelog acknowledged, then rows and offset on disk.
            await self._table.commit(number, effects.rows, done)
        self._count(number, effects, _committed(partition.fence))
        for each in rejected:
            self.notices.dead(self._topics[each.topic], number, each.offset, each.reason)
        return output_batch

    def _count(self, number: int, effects: Any, fence: Fence) -> None:  # noqa: ANN401 - as the engine makes them
        """Count the effects of a batch that is in the state now."""
        for said in self._lookalikes.among(effects.rows):
            log.warning("%s", said)
        for stream, n in effects.overdue.items():
            self.notices.overdue(stream, n)
        self._gauges.applied(number, effects, fence)
        if gained := self._gauges.gained():  # slots that changed hands: their rows have not been read
            for each, opened in self._partitions.items():
                self._gauges.restored(each, self._held(each, gained, opened.fence))

    async def _applied(
        self, partition: Engine, records: Sequence[Merged], output_batch: OutputBatch
    ) -> tuple[Any, list[Rejected]]:
        """Decode, apply and encode, a part at a time, and let others go on in between.

        Returns the effects, as the engine makes them, and the dead letters.
        """
        outputs: list[list[Any]] = []
        decoding = folding = 0.0
        partition.begin()
        for at in range(0, len(records), PART):
            if at:
                await asyncio.sleep(0)
            began = perf_counter()
            try:
                events = named(self._decoder.events(records[at : at + PART]))  # step 1
                if self._routed:
                    self._unrouted += sum(type(each) is Forecast and SCOPED not in each.event_id for each in events)
                decoded = perf_counter()
                if not at:
                    self._probe(1)
                outputs.append(partition.apply(events))  # step 2
                output_batch.add(outputs[-1])
            except (CorruptFrame, DamagedStoreError):
                raise  # the state is damaged, not a record
            except Exception as exc:
                raise (self._poison(partition, output_batch.partition, records) or exc) from exc
            decoding += decoded - began
            folding += perf_counter() - decoded
        began = perf_counter()
        try:
            effects = partition.end()
        except (CorruptFrame, DamagedStoreError):
            raise
        except Exception as exc:
            raise (self._poison(partition, output_batch.partition, records) or exc) from exc
        self._gauges.stage(1, decoding)
        self._done(2, folding + perf_counter() - began)
        if not effects.rejected:
            return effects, []
        return effects, [each for made in outputs for each in made if isinstance(each, Rejected)]

    def _poison(self, partition: Engine, number: int, records: Sequence[Merged]) -> PoisonError | None:
        """Find the record that a batch fails of, by halves; nothing of it is kept.

        It is the one with which the records from the first on fail, and without which those before it do not. None if
        the batch does not fail again.
        """
        if not self._fails(partition, number, records):
            return None
        well, fails = 0, len(records)
        while fails - well > 1:
            middle = (well + fails) // 2
            if self._fails(partition, number, records[:middle]):
                fails = middle
            else:
                well = middle
        topic, record = records[well]
        return PoisonError(self._topics[topic], number, record.offset)

    def _fails(self, partition: Engine, number: int, records: Sequence[Merged]) -> bool:
        partition.reset()
        partition.begin()
        output_batch = self._outputs.batch(number)
        try:
            output_batch.add(partition.apply(named(self._decoder.events(records))))
            partition.end()
        except Exception:  # noqa: BLE001 - whatever it is, it ended the batch
            return True
        return False

    def _done(self, step: int, seconds: float) -> None:
        self._gauges.stage(step, seconds)
        self._probe(step)


def _committed(fence: Fence) -> Fence:
    """Return a fence as it is in the state now: the engine moves its own while it folds what may never be committed."""
    return Fence.decode(fence.encode())
