"""The agent: takes a turn from its records to acknowledged outputs, so that kill -9 neither loses nor doubles anything.

A turn has at most one batch of each partition. Its batches are folded one after another. One request notes them all in
the journal, and another one produces their outputs. The next turn is folded meanwhile.

The numbered steps are those of `docs/explanation/journal.md`. Step 3, the journal entry, is the commit point: a crash
before it leaves no trace. After it, the next owner of the partition folds the same records in the same order.

Checkpoints write rows to the changelog while turns go on. They hold only batches whose outputs are acknowledged.
Batches since the last checkpoint are folded again after a crash, with the same outputs.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from time import perf_counter
from typing import Any, cast

from agents.applying import Applying, Probe
from agents.notices import Notices
from agents.served import Folded, FoldedTurn, Frozen, ServedPartition, Terms, committed
from agents.showing import Showing
from agents.tracing import Spans
from state import journal
from state.engine import Partition
from state.fence import FORECASTS, Fence
from state.fold import Fold
from state.journal import Journal
from streams.config.settings import Settings
from streams.faust.changelog import MovedError
from streams.faust.outputs import Outputs
from streams.faust.pace import Pace
from streams.faust.state_table import StateTable
from streams.metrics.gauges import Gauges
from streams.metrics.metric import Sample
from streams.records.decoding import Decoder
from streams.records.merge import Batch
from streams.sources import far_off, modes
from streams.sources.fields import OUTCOME
from streams.sources.wait import Wait

log = logging.getLogger("trueup")


class BatchProcessor:
    """Folds turns and answers them. A turn is noted and answered while the next one is folded.

    ``current``: whether a batch was handed out since its partition was last taken up.
    ``notices``: reports dead letters and times far off.
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
        #: Called with each answered turn; None: nothing is called.
        self.spans: Spans | None = None
        self._topics = settings.inputs
        self._settings = settings
        self._terms = Terms.of(settings, self._decoder_of(settings))
        self._table = table
        self._outputs = outputs
        self._gauges = gauges
        self._probe = probe
        self._current = current
        #: Input topics that this worker maps itself, by number, each with its source. Intake counts the topics that
        #: intake maps.
        self._reads = modes.read_directly(settings.modes, self._topics)
        #: Number of records in the output topics that differ from the second fold's outputs.
        self._unlike = 0
        self._showing = Showing(table, gauges, settings.policies, self.notices)
        self._applying = Applying(settings, outputs, gauges, probe, scoped=bool(modes.routed(settings.modes, OUTCOME)))
        self._partitions: dict[int, ServedPartition] = {}
        #: The locks of the three steps. They are taken in this order, so that turns pass each step in order.
        self._folding, self._noting, self._answering = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        #: Held while checkpoints are written. It is taken last. Turns go on meanwhile.
        self._writing = asyncio.Lock()
        self.pace = Pace(lambda: any(each.behind for each in self._partitions.values()))

    def _decoder_of(self, settings: Settings) -> Any:  # noqa: ANN401 - of its own events
        return Decoder(settings.policies, settings.limits, settings.direct, settings.carry_headers)

    async def reopen(
        self,
        partition: int,
        recall: Callable[[str], Awaitable[Settings]] | None = None,
        said: tuple[int, int, int] = (0, 0, 0),
    ) -> tuple[Fence, Journal]:
        """Take up a partition from its table; return the last checkpoint's fence, and the journal's entries since.

        ``recall``: returns settings that were in force, given their hash.
        ``said``: ends of the partition's output topics.
        """
        async with self._folding, self._answered():
            self._table.reopened(partition)
            stored = self._table.store.reader(partition)
            found = journal.read(stored)
            entries = found.entries
            terms = self._terms
            if entries and entries[0].config != terms.config and recall is not None:
                # The journal's hash is used: another build may describe the same settings with more fields.
                settings = await recall(entries[0].config.hex())
                terms = Terms(settings, self._decoder_of(settings), entries[0].config)
            served = ServedPartition.after(found, terms, said)
            served.opened(self._open(terms, served.read(stored)))
            self._partitions[partition] = served
            fence = committed(served.engine.fence)
            self._showing.taken_up(partition, fence)
            return fence, found

    async def forgo(self, partition: int, found: Journal) -> None:
        """Skip the journal entries since the last checkpoint, as their records were deleted. Their answers remain."""
        async with self._folding, self._answered():
            served = self._partitions[partition]
            served.forgo(found)
            served.freeze()
            await self._written()

    def _open(self, terms: Terms, read: Callable[[bytes], bytes | None]) -> Fold:
        """Return the engine of a partition whose rows ``read`` returns."""
        return Partition(terms.settings.policies, read, memory=self._memory)

    def _memory(self) -> int:
        """Return how many bytes of memory a partition may have for its streams."""
        return self._settings.streams_bytes // max(len(self._partitions), 1)

    def registered(self, settings: Settings) -> None:
        """Take the settings with the schema ids of outputs. Call it before the first batch."""
        self._outputs.settings = settings
        self._terms = replace(self._terms, settings=settings)

    @property
    def wait(self) -> Wait:
        """What batches use to wait for the schema registry."""
        return cast("Wait", self._terms.decoder.schemas.wait)

    def samples(self) -> Iterator[Sample]:
        """Yield counts: of dead forecasts that were answered, and of headers that answers could not carry."""
        yield "raw_answers", (), float(self._outputs.raw_answers)
        yield "unlike_outputs", (), float(self._unlike)
        for what in ("header", "field"):
            yield "uncarried", (what,), float(self._terms.decoder.left_out(what))

    def tell(self) -> None:
        """Report what needs attention, see `agents.notices`."""
        for topic, (name, source) in self._reads.items():
            if records := self._terms.decoder.far_off[topic]:
                ts, timestamp = self._terms.decoder.far_off_last[topic]
                more = self.notices.far_off(name, records, far_off.said(ts, timestamp, source))
                self._gauges.far_off(topic, more)
        if self._applying.unrouted:
            self.notices.unrouted(self._topics[FORECASTS], self._applying.unrouted)
        self.notices.tell()

    def close(self, partition: int) -> None:
        """Drop a partition that has moved."""
        self._partitions.pop(partition, None)
        self._table.closed(partition)
        self._gauges.revoked(partition)

    def tick(self, partition: int) -> int:
        """Return the stream time to which a partition without new records may advance, ms; 0: it must wait.

        It follows the clock only if records came at about the time that they state, and if a forecast matures by then.
        Replayed history matures only by its own records, however slowly these come.
        """
        served = self._partitions.get(partition)
        return 0 if served is None else served.ripe(int(self._settings.quiet_seconds * 1000))

    def waits_for(self, batch: Batch) -> bool:
        """Whether folding a batch must wait for the schema registry."""
        return bool(self._terms.decoder.asks_registry and self._terms.decoder.lacking(batch.records))

    async def fold(self, batches: Sequence[Batch]) -> FoldedTurn:
        """Fold a turn, at most one batch of each partition. Pass the result to `answer` at once.

        Batches of partitions that have moved are left out. The new owner reads them.

        Raises MovedError if a partition was closed but the source of batches does not know that. Raises CorruptFrame,
        DamagedStoreError, FencedError, ForeignWriterError or KafkaError. After any of these acknowledge nothing of the
        turn; end the process, or take its partitions up again.
        """
        started = perf_counter()
        if self._terms.decoder.asks_registry and len(batches) == 1:  # one that may wait comes alone, see `waits_for`
            await self._terms.decoder.load(batches[0].records)
        parts, frozen = list[Folded](), False
        async with self._folding, self._wholly(self._partitions.copy()):
            await self._hear(batches)
            for batch in batches:
                # The partition was taken up again, so these records are read again. Folding them now would merge them
                # with later ones.
                if not self._current(batch):
                    log.info("partition %d has moved; its waiting batch is dropped", batch.partition)
                    continue
                served = self._partitions.get(batch.partition)
                if served is None:
                    raise _moved(batch)
                if batch.again is None:
                    await self._settled(batch.partition, served)
                parts.append(await self._fold(batch, served))
                if not frozen and served.due(self._settings):
                    served.freeze()
                    frozen = True  # the others get the next turns, so that no turn takes long
        return FoldedTurn(started, parts)

    async def answer(self, turn: FoldedTurn) -> None:
        """Note a turn in the journal and produce its outputs. Return when both are acknowledged.

        Raises MovedError, FencedError, ForeignWriterError, KafkaError or TimeoutError as `fold`.
        """
        async with self._wholly({part.batch.partition: part.served for part in turn.parts}):
            async with self._noting:
                await self._note(turn.parts)
            noted = perf_counter()
            async with self._answering:
                await self._send(turn.parts)
        new = [part.batch.records for part in turn.parts if part.batch.again is None]
        if any(new):
            self._gauges.batch(sum(map(len, new)), perf_counter() - turn.started)
            self._gauges.waited([each.timestamp for records in new for topic, each in records if topic == FORECASTS])
        if self.spans is not None:
            self.spans.turn(turn, noted)

    @asynccontextmanager
    async def _wholly(self, partitions: Mapping[int, ServedPartition]) -> AsyncIterator[None]:
        """If a step is cancelled, close its partitions: their engines may hold records that have no journal entry.

        Otherwise a checkpoint would write these records, and nobody would answer them.
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
        """Wait until all folded turns are answered, and their checkpoints written. The caller holds the fold lock."""
        with self.pace.awaited():
            async with self._noting, self._answering:
                await self._written()
                yield

    async def _hear(self, batches: Iterable[Batch]) -> None:
        """Read outputs in the topics for records that are folded again, because they may have been answered already."""
        here = {batch: self._partitions.get(batch.partition) for batch in batches}
        asked = {batch.partition: served for batch, served in here.items() if served and served.unheard(batch)}
        if asked:
            found = await self._outputs.heard({number: served.said for number, served in asked.items()})
            for number, served in asked.items():
                served.heard = found[number]
                served.hears(found[number].ends)

    def _here(self, parts: Iterable[Folded]) -> list[Folded]:
        """Return the batches whose partition has not moved. The new owner answers the others."""
        here = list[Folded]()
        for part in parts:
            if self._partitions.get(part.batch.partition) is part.served:
                here.append(part)
            elif self._current(part.batch):
                raise _moved(part.batch)
        return here

    async def _settled(self, number: int, served: ServedPartition) -> None:
        """Adopt changed settings, and wait if checkpoints are late."""
        if served.late(self._settings):
            async with self._answered():
                pass
        if served.heard is not None:
            self._unlike += served.heard.compare(number)
            served.heard = None
        if served.terms is not self._terms:
            await self._close_order(served)
            served.terms = self._terms
            served.engine = self._open(self._terms, served.read(self._table.store.reader(number)))

    async def _close_order(self, served: ServedPartition) -> None:
        """Make a checkpoint of the batches since the last one, if there are any."""
        async with self._answered():
            if served.order:
                served.freeze()
                await self._written()

    async def _fold(self, batch: Batch, served: ServedPartition) -> Folded:
        """Fold a batch as one journal entry, or as several if its rows do not fit one checkpoint."""
        number, records = batch.partition, batch.records
        if batch.tick:
            return await self._tick(batch, served)
        while True:
            outputs = self._outputs.batch(number, served.terms.settings, served.heard)
            taken, effects, rejected = await self._applying.applied(batch, served, records, outputs)
            entry = served.folded(batch, records[:taken])
            fence = committed(served.engine.fence)
            folded = Folded(batch, served, outputs, entry, served.number, effects, rejected, fence)
            records = records[taken:]
            if not records:
                return folded
            # the rest would not fit the same checkpoint
            async with self._answered():
                await self._note([folded])
                served.freeze()
                await self._send([folded])

    async def _tick(self, batch: Batch, served: ServedPartition) -> Folded:
        """Advance stream time without records, between two checkpoints. Its entry is the only one between them."""
        await self._close_order(served)
        served.engine.begin()
        outputs = self._outputs.batch(batch.partition, served.terms.settings, served.heard)
        outputs.add(served.engine.tick(batch.tick))
        entry = None if batch.again is not None else served.entry(served.ends, b"", batch.tick)
        served.number += 1
        served.freeze(batch.tick)
        effects, fence = served.engine.end(), committed(served.engine.fence)
        return Folded(batch, served, outputs, entry, served.number, effects, [], fence)

    async def _note(self, parts: Sequence[Folded]) -> None:
        """Write journal entries. This is step 3, the commit point."""
        parts = self._here(parts)
        entries = {part.batch.partition: part.entry for part in parts if part.entry is not None}
        began = perf_counter()
        if entries:
            await self._table.append({number: {each.key: each.encode()} for number, each in entries.items()})
            self._applying.done(3, perf_counter() - began)
        for part in parts:
            number, batch = part.batch.partition, part.batch
            if part.entry is None:
                self._gauges.again(number, [topic for topic, _ in batch.records], part.fence)
                continue
            self._showing.count(number, part.effects, part.fence)
            for each in part.rejected:
                self.notices.dead(self._topics[each.topic], number, each.offset, each.reason)

    async def _send(self, parts: Sequence[Folded]) -> None:
        """Produce outputs: step 4. From now on, checkpoints may hold these turns."""
        parts = self._here(parts)
        unsaid = [part.outputs for part in parts if part.served.unsaid(part.batch)]
        if unsaid:
            began = perf_counter()
            ends = await self._outputs.send(unsaid)
            for part in parts:
                part.served.hears(ends.get(part.batch.partition, {}))
            self._applying.done(4, perf_counter() - began)
        for part in self._here(parts):
            part.served.answers(part.number)

    async def _written(self) -> None:
        """Write the checkpoints whose turns are answered: steps 5 and 6."""
        async with self._writing:
            for number, served in list(self._partitions.items()):
                waiting = served.waiting
                here = self._partitions.get(number) is served
                if here and waiting is not None and served.answered >= waiting.entry.number:
                    with suppress(MovedError):  # the new owner folds it again
                        await self._write(number, served, waiting)

    async def _write(self, number: int, served: ServedPartition, waiting: Frozen) -> None:
        """Write a waiting checkpoint. The entries before it are answered."""
        changes, entry, left, known = waiting
        async for _ in self.pace.slices(changes.slices()):
            pass
        await self._outputs.note(number, entry.encode())
        said = [end if stands is None else stands for end, stands in zip(known, left, strict=True)]
        key, row = journal.begun(entry, said)
        await self._table.commit(number, {**changes.rows, key: row}, lambda step: self._probe(step + 4), self.pace)
        served.waiting, served.written = None, entry.number
        self._showing.written(number, changes, self._partitions)
        changes.rows, changes.of_streams = {}, {}  # the engine keeps the rest until the next checkpoint

    async def checkpoint(self, *, due: bool = True) -> None:
        """Make the checkpoints that are due, or of all partitions. Write them one after another. Raises as `fold`.

        Turns go on while due checkpoints are written.
        """
        if not due:
            async with self._folding, self._answered():
                for served in self._partitions.values():
                    if served.ready:
                        served.freeze()
                await self._written()
            return
        if not self._folding.locked():
            for served in self._partitions.values():
                if served.due(self._settings):
                    served.freeze()
        await self._written()


def _moved(batch: Batch) -> MovedError:
    return MovedError(f"partition {batch.partition} has moved; its new owner answers a batch of it")
