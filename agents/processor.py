"""The agent: a turn of all partitions, from its records to acknowledged outputs, in the order that survives kill -9.

A turn has at most one batch of each partition. Its batches are folded one after another, noted in the journal by one
request, and answered by one. While a turn is noted or answered, the next one is folded.

The numbered steps are those of the operations page. Step 3 is the commit point: before it a crash leaves no trace.
After it the batch is in the journal: whoever takes the partition up folds the same records in the same order. Rows are
written by checkpoints, now and then. A checkpoint has only batches whose outputs are acknowledged. What comes after it
is folded again after a crash, with the same outputs.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from time import perf_counter, time
from typing import Any

from agents.notices import Notices
from agents.served import Frozen, Served, Terms
from state import formats, journal
from state.effects import Changes
from state.engine import Partition
from state.events import Forecast, Rejected
from state.fence import FORECASTS, OUTCOMES, Fence
from state.fold import Fold
from state.frames import CorruptFrame
from state.journal import Entry, Journal
from state.witnesses import SLACK
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust.changelog import MovedError
from streams.faust.outputs import Heard, OutputBatch, Outputs
from streams.faust.state_table import StateTable
from streams.faust.stores import DamagedStoreError
from streams.metrics import snapshot
from streams.metrics.gauges import Gauges
from streams.metrics.sample import Sample
from streams.metrics.snapshot import PartitionSnapshot
from streams.records.decoding import SCOPED, Decoder
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


@dataclass(frozen=True)
class Folded:
    """Records of a batch that the engine has applied.

    Attributes
    ----------
    batch
        The batch.
    served
        Its partition.
    outputs
        What is to be produced.
    entry
        What the journal is to say of them; None: it says so already.
    number
        Of the first journal entry after them.
    effects
        As the engine made them.
    rejected
        The dead letters.
    fence
        Of the state with them.
    """

    batch: Batch
    served: Served
    outputs: OutputBatch
    entry: Entry | None
    number: int
    effects: Any
    rejected: list[Rejected]
    fence: Fence


@dataclass(frozen=True)
class FoldedTurn:
    """A turn whose records are applied; nothing of it is in the journal yet, unless it was there before.

    Attributes
    ----------
    started
        When its folding was asked for, s of a clock that only counts.
    parts
        Its batches.
    """

    started: float
    parts: list[Folded]


class BatchProcessor:
    """Folds turns and answers them, one after another; each is noted and answered while the next is folded.

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
        self._settings = settings
        self._terms = self._terms_of(settings)
        self._decoder: Any = self._terms.decoder
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
        #: Records in the output topics that are not what is folded again brings about.
        self._unlike = 0
        #: How many forecasts intake did not write, where labels come through it: theirs have a scope.
        self._unrouted = 0
        self._routed = modes.routed(settings.modes, OUTCOME)
        self._partitions: dict[int, Served] = {}
        #: Held while a turn is folded, noted, and answered: turns go from one to the next in their order.
        self._folding, self._noting, self._answering = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()

    def _terms_of(self, settings: Settings) -> Terms:
        """Return what records are folded under with these settings."""
        decoder = self._decoder_of(settings)
        return Terms(settings, decoder, bytes.fromhex(in_force.digest(in_force.described(settings))))

    def _decoder_of(self, settings: Settings) -> Any:  # noqa: ANN401 - of its own events
        return Decoder(settings.policies, settings.limits, settings.direct, settings.carry_headers)

    async def reopen(
        self,
        partition: int,
        recall: Callable[[str], Awaitable[Settings]] | None = None,
        said: tuple[int, int, int] = (0, 0, 0),
    ) -> tuple[Fence, Journal]:
        """Take up a partition from its table.

        Parameters
        ----------
        partition
            Its number.
        recall
            Returns the settings that were in force, by their hash.
        said
            Where its output topics end.

        Returns
        -------
        Fence, Journal
            What the last checkpoint holds, and what was folded since.
        """
        async with self._folding, self._answered():
            self._table.reopened(partition)
            stored = self._table.reader(partition)
            found = journal.read(stored)
            entries = found.entries
            terms = self._terms
            if entries and entries[0].config != terms.config and recall is not None:
                terms = self._terms_of(await recall(entries[0].config.hex()))
            served = Served(terms, found.number - len(entries), last=list(found.last))
            served.said = said
            if entries:
                served.told = served.answered = found.answered
                served.said = found.said
            served.written = served.number
            served.engine = self._open(terms, served.read(stored))
            first, second = served.engine.fence.next
            served.begins = served.ends = first, second
            self._partitions[partition] = served
            self._taken_up(partition, served.engine.fence)
            return _committed(served.engine.fence), found

    async def forgo(self, partition: int, found: Journal) -> None:
        """Leave out what was folded since the last checkpoint: its records were deleted, and its answers stand."""
        async with self._folding, self._answered():
            served = self._partitions[partition]
            served.ends, served.last = found.ends(served.ends), [journal.NONE, journal.NONE]
            served.engine.fence.next[:] = served.ends
            served.number = served.answered = found.number
            await self._write(partition, served, served.freeze())

    def _open(self, terms: Terms, read: Callable[[bytes], bytes | None]) -> Fold:
        """Return the engine of a partition whose rows are read so."""
        return Partition(terms.settings.policies, read)

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
        self._terms = replace(self._terms, settings=settings)

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
        yield "unlike_outputs", (), float(self._unlike)
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

    def tick(self, partition: int) -> int:
        """Return up to which time stream time is to go on a partition where nothing comes, ms; 0: it waits.

        It follows the clock only where records came at about the time that they tell, and where a forecast matures by
        then. History that is read again matures by its own records, however slowly it comes.
        """
        served, behind = self._partitions.get(partition), self._settings.quiet_seconds * 1000
        if not behind or served is None or not served.live:
            return 0
        now = int(time() * 1000 - behind)
        return now if served.engine.fence.stream_time < now and served.engine.ripens <= now else 0

    def waits_for(self, batch: Batch) -> bool:
        """Whether a batch cannot be folded before the schema registry has said something."""
        return bool(self._decoder.asks_registry and self._decoder.lacking(batch.records))

    async def fold(self, batches: Sequence[Batch]) -> FoldedTurn:
        """Fold a turn: at most one batch of each partition; what it returns is to be answered at once.

        Batches whose partition has moved are left out: nothing of them is done, the new owner reads them.

        Raises
        ------
        MovedError
            If the partition of one was let go of, and nobody told where batches come from.
        CorruptFrame, DamagedStoreError, FencedError, ForeignWriterError, KafkaError
            Whatever is raised, nothing of the turn may be acknowledged, and the process must end or take its
            partitions up again.
        """
        started = perf_counter()
        if self._decoder.asks_registry and len(batches) == 1:  # of several none waits for a schema, see `waits_for`
            await self._decoder.load(batches[0].records)
        parts, frozen = list[Folded](), False
        async with self._folding, self._wholly(self._partitions.copy()):
            await self._hear(batches)
            for batch in batches:
                # Where its partition was taken up again, these records are read again: folded now, they would be merged
                # with what comes after them.
                if not self._current(batch):
                    log.info("partition %d has moved; a batch that was waiting is void", batch.partition)
                    continue
                served = self._partitions.get(batch.partition)
                if served is None:
                    raise _moved(batch)
                if batch.again is None:
                    await self._settled(batch.partition, served)
                parts.append(await self._fold(batch, served))
                if not frozen and served.waiting is None and served.whole and served.due(self._settings):
                    served.freeze()
                    frozen = True  # the others wait for the next turns, so that none of these takes long
        return FoldedTurn(started, parts)

    async def _hear(self, batches: Iterable[Batch]) -> None:
        """Ask what was said already of records that are folded again and whose outputs were not known to be out."""
        asked = dict[int, Served]()
        for batch in batches:
            served = self._partitions.get(batch.partition)
            if served is not None and served.heard is None and batch.again is not None and served.unsaid(batch):
                asked[batch.partition] = served
        if asked:
            found = await self._outputs.heard({number: served.said for number, served in asked.items()})
            for number, served in asked.items():
                served.heard = found[number]
                served.hears(found[number].ends)

    async def answer(self, turn: FoldedTurn) -> None:
        """Note a turn in the journal, and produce its outputs; returns when all of that is acknowledged.

        Raises
        ------
        MovedError, FencedError, ForeignWriterError, KafkaError, TimeoutError
            As `fold`.
        """
        async with self._wholly({part.batch.partition: part.served for part in turn.parts}):
            async with self._noting:
                await self._note(turn.parts)
            async with self._answering:
                await self._send(turn.parts)
        new = [record for part in turn.parts if part.batch.again is None for record in part.batch.records]
        if new:
            self._gauges.batch(len(new), perf_counter() - turn.started)
            self._gauges.waited([record.timestamp for topic, record in new if topic == FORECASTS])

    @asynccontextmanager
    async def _wholly(self, partitions: Mapping[int, Served]) -> AsyncIterator[None]:
        """Let go of partitions where a step is cut off: the engine may have records of which no entry says.

        A checkpoint would write them, and nobody would answer them.
        """
        try:
            yield
        except BaseException:
            for number, served in partitions.items():
                if self._partitions.get(number) is served:
                    del self._partitions[number]
            raise

    @asynccontextmanager
    async def _answered(self) -> AsyncIterator[None]:
        """Wait until all turns that are folded are answered; whoever calls it lets none be folded meanwhile."""
        async with self._noting, self._answering:
            yield

    def _here(self, parts: Iterable[Folded]) -> list[Folded]:
        """Return those whose partition has not moved since they were folded; its new owner answers the others."""
        here = list[Folded]()
        for part in parts:
            if self._partitions.get(part.batch.partition) is part.served:
                here.append(part)
            elif self._current(part.batch):
                raise _moved(part.batch)
        return here

    async def _settled(self, number: int, served: Served) -> None:
        """Go on under the settings of now, and not faster than checkpoints are written."""
        if served.waiting is not None and served.engine.weight > self._settings.batch_bytes:
            async with self._answered():
                pass
        if served.heard is not None:
            self._compare(number, served.heard)
            served.heard = None
        if served.terms is not self._terms:
            await self._close_order(number, served)
            served.terms = self._terms
            served.engine = self._open(self._terms, served.read(self._table.reader(number)))

    def _compare(self, number: int, heard: Heard) -> None:
        """Count what stands in the output topics and was not brought about again; all was folded again."""
        unlike = heard.unlike + sum(map(len, heard.said.values()))
        if unlike and not self._policies.answering:  # else intake writes answers there, too
            self._unlike += unlike
            log.error(
                "%d records stand in the output topics of partition %d that are not what its records bring about "
                "here: does another kind of machine run in this group? Audit it",
                unlike,
                number,
            )

    async def _close_order(self, number: int, served: Served) -> None:
        """Make a checkpoint of what was folded since the last one, if anything was."""
        if served.order:
            async with self._answered():
                await self._write(number, served, served.freeze())

    async def _fold(self, batch: Batch, served: Served) -> Folded:
        """Fold the records of a batch, as one journal entry if their rows fit one checkpoint."""
        number, records = batch.partition, batch.records
        if batch.tick:
            return await self._tick(batch, served)
        while True:
            outputs = self._outputs.batch(number, served.terms.settings, served.heard)
            taken, effects, rejected = await self._applied(batch, served, records, outputs)
            begins, topics = served.ends, served.took(records[:taken])
            entry = None
            if batch.again is not None:
                served.number, served.whole = batch.again.number + batch.ended, batch.ended
            else:
                entry = served.entry(begins, topics)
                served.number += 1
                served.live = abs(time() * 1000 - served.engine.fence.stream_time) <= SLACK
            fence = _committed(served.engine.fence)
            folded = Folded(batch, served, outputs, entry, served.number, effects, rejected, fence)
            records = records[taken:]
            if not records:
                return folded
            # What follows would not fit the same checkpoint.
            async with self._answered():
                await self._note([folded])
                served.freeze()
                await self._send([folded])

    async def _tick(self, batch: Batch, served: Served) -> Folded:
        """Let stream time go on without records, between two checkpoints: the topic of the journal has it alone."""
        await self._close_order(batch.partition, served)
        served.engine.begin()
        outputs = self._outputs.batch(batch.partition, served.terms.settings, served.heard)
        outputs.add(served.engine.tick(batch.tick))
        entry = None if batch.again is not None else served.entry(served.ends, b"", batch.tick)
        served.number += 1
        served.freeze(batch.tick)
        effects, fence = served.engine.end(), _committed(served.engine.fence)
        return Folded(batch, served, outputs, entry, served.number, effects, [], fence)

    async def _note(self, parts: Sequence[Folded]) -> None:
        """Write journal entries: step 3. Then they count."""
        parts = self._here(parts)
        entries = {part.batch.partition: part.entry for part in parts if part.entry is not None}
        began = perf_counter()
        if entries:
            await self._table.append({number: {each.key: each.encode()} for number, each in entries.items()})
            self._done(3, perf_counter() - began)
        for part in parts:
            number, batch = part.batch.partition, part.batch
            if part.entry is None:
                self._gauges.again(number, [topic for topic, _ in batch.records], part.fence)
                continue
            self._count(number, part.effects, part.fence)
            for each in part.rejected:
                self.notices.dead(self._topics[each.topic], number, each.offset, each.reason)

    async def _send(self, parts: Sequence[Folded]) -> None:
        """Produce outputs, step 4, and write the checkpoints that waited for that, steps 5 and 6."""
        parts = self._here(parts)
        unsaid = [part.outputs for part in parts if part.served.unsaid(part.batch)]
        if unsaid:
            began = perf_counter()
            ends = await self._outputs.send(unsaid)
            for part in parts:
                part.served.hears(ends.get(part.batch.partition, {}))
            self._done(4, perf_counter() - began)
        parts = self._here(parts)
        for part in parts:
            part.served.answered = max(part.served.answered, part.number)
        for part in parts:
            waiting = part.served.waiting
            if waiting is not None and part.served.answered >= waiting.entry.number:
                await self._write(part.batch.partition, part.served, waiting)

    async def _write(self, number: int, served: Served, waiting: Frozen) -> None:
        """Write the checkpoint that waits; the entries before it are answered."""
        changes, entry, left = waiting
        for _ in changes.slices():
            await asyncio.sleep(0)
        await self._outputs.note(number, entry.encode())
        said = [end if stands is None else stands for end, stands in zip(served.said, left, strict=True)]
        key, row = journal.begun(entry, said)
        await self._table.commit(number, {**changes.rows, key: row}, lambda step: self._probe(step + 4))
        served.waiting, served.written = None, entry.number
        self._written(number, changes)

    async def checkpoint(self, *, due: bool = True) -> None:
        """Make checkpoints, one after another: of partitions that are due, while no turn is folded, or of all.

        Raises as `fold`.
        """
        for number, served in list(self._partitions.items()):
            if due and (self._folding.locked() or not served.due(self._settings)):
                continue
            async with self._folding, self._answered(), self._wholly({number: served}):
                free = self._partitions.get(number) is served and served.waiting is None
                if free and served.whole and served.order:
                    await self._write(number, served, served.freeze())

    def _written(self, number: int, changes: Changes) -> None:
        """Show what a checkpoint wrote."""
        self._gauges.written(number, changes)
        if gained := self._gauges.gained():  # slots that changed hands: their rows have not been read
            for each, opened in self._partitions.items():
                self._gauges.restored(each, self._held(each, gained, opened.engine.fence))

    def _count(self, number: int, effects: Any, fence: Fence) -> None:  # noqa: ANN401 - as the engine makes them
        """Count the effects of a batch that is in the journal now."""
        for stream, n in effects.overdue.items():
            self.notices.overdue(stream, n)
        self._gauges.applied(number, effects, fence)

    async def _applied(
        self, batch: Batch, served: Served, records: Sequence[Merged], output_batch: OutputBatch
    ) -> tuple[int, Any, list[Rejected]]:
        """Decode, apply and encode, a part at a time, and let others go on in between.

        Returns how many records were applied, their effects, as the engine makes them, and the dead letters. These are
        all records, unless what they changed is too much for one checkpoint.
        """
        engine, decoder, enough = served.engine, served.terms.decoder, self._settings.enough_bytes
        outputs: list[list[Any]] = []
        decoding = folding = 0.0
        engine.begin()
        at = 0
        while at < len(records) and not (at and batch.again is None and engine.weight > enough):
            if at:
                await asyncio.sleep(0)
            began = perf_counter()
            part = records[at : at + max(1, min(PART, enough // engine.event_weight))]
            try:
                events = named(decoder.events(part))  # step 1
                if self._routed:
                    self._unrouted += sum(type(each) is Forecast and SCOPED not in each.event_id for each in events)
                decoded = perf_counter()
                if not at:
                    self._probe(1)
                outputs.append(engine.apply(events))  # step 2
                output_batch.add(outputs[-1])
            except (CorruptFrame, DamagedStoreError):
                raise  # the state is damaged, not a record
            except Exception as exc:
                raise (self._poison(served, output_batch.partition, records) or exc) from exc
            at += len(part)
            decoding += decoded - began
            folding += perf_counter() - decoded
        effects = engine.end()
        self._gauges.stage(1, decoding)
        self._done(2, folding)
        if not effects.rejected:
            return at, effects, []
        return at, effects, [each for made in outputs for each in made if isinstance(each, Rejected)]

    def _poison(self, served: Served, number: int, records: Sequence[Merged]) -> PoisonError | None:
        """Find the record that a batch fails of, by halves; nothing since the last checkpoint is kept.

        It is the one with which the records from the first on fail, and without which those before it do not. None if
        the batch does not fail again.
        """
        if not self._fails(served, number, records):
            return None
        well, fails = 0, len(records)
        while fails - well > 1:
            middle = (well + fails) // 2
            if self._fails(served, number, records[:middle]):
                fails = middle
            else:
                well = middle
        topic, record = records[well]
        return PoisonError(self._topics[topic], number, record.offset)

    def _fails(self, served: Served, number: int, records: Sequence[Merged]) -> bool:
        served.engine.reset()
        served.engine.begin()
        output_batch = self._outputs.batch(number, served.terms.settings)
        try:
            output_batch.add(served.engine.apply(named(served.terms.decoder.events(records))))
        except Exception:  # noqa: BLE001 - whatever it is, it ended the batch
            return True
        return False

    def _done(self, step: int, seconds: float) -> None:
        self._gauges.stage(step, seconds)
        self._probe(step)


def _moved(batch: Batch) -> MovedError:
    return MovedError(f"partition {batch.partition} has moved; its new owner answers a batch of it")


def _committed(fence: Fence) -> Fence:
    """Return a fence as it is in the state now: the engine moves its own while it folds what may never be committed."""
    return Fence.decode(fence.encode())
