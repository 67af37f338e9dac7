"""The agent: one batch of a partition, from its records to acknowledged outputs, in the order that survives kill -9.

The numbered steps are those of the operations page. Step 3 is the commit point: before it a crash leaves no trace,
after it the state is complete and the inputs that come again are answered from the ledger.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

from state import keys
from state.engine import Partition
from state.events import Event
from state.fence import FORECASTS
from streams.changelog import MovedError, TooLargeError
from streams.gauges import Gauges, Held, Rows
from streams.merge import Batch
from streams.outputs import Outputs
from streams.records import Decoder
from streams.settings import Settings
from streams.shadows import Place
from streams.table import StateTable

#: Called with the number of the step just finished; tests kill the process here.
Probe = Callable[[int], None]


class Join:
    """Folds batches, a partition's one after another; the waits of different partitions overlap.

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
    """

    def __init__(
        self,
        settings: Settings,
        table: StateTable,
        outputs: Outputs,
        gauges: Gauges,
        probe: Probe = lambda _: None,
    ) -> None:
        self._policies = settings.policies
        self._decoder = Decoder(settings.policies, settings.limits)
        self._table = table
        self._outputs = outputs
        self._gauges = gauges
        self._probe = probe
        self._partitions: dict[int, Partition] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def reopen(self, partition: int) -> tuple[int, int]:
        """Take up a partition from its table, and return the next offset of forecasts and of outcomes to apply."""
        async with self._lock(partition):
            self._table.reopened(partition)
            opened = self._partitions[partition] = Partition(self._policies, self._table.reader(partition))
            scores, vectors = self._scores(partition), self._vectors(partition)
            served = self._calibrators(partition, [*scores, *vectors])
            comparisons = self._comparisons(partition, scores)
            self._gauges.assigned(partition, Held(opened.fence, scores, vectors, served, comparisons))
            forecasts, outcomes = opened.fence.next
            return forecasts, outcomes

    # A partition may hold rows of any number of streams, and all wait while it is taken up: what is read is bounded by
    # the number of streams that are shown.

    def _scores(self, partition: int) -> dict[str, Rows]:
        """Return the scores of each stream of probabilities that is shown."""
        for key, _ in self._table.range(partition, keys.SCORES):
            if not self._gauges.shows(key[len(keys.SCORES) :].decode()):
                break
        found = {stream: self._rows(partition, stream) for stream in self._gauges.shown()}
        return {stream: pair for stream, pair in found.items() if pair is not None}

    def _rows(self, partition: int, stream: str) -> Rows | None:
        row = self._table.read(partition, keys.scores(stream))
        return None if row is None else (row, self._table.read(partition, keys.windows(stream)))

    def _vectors(self, partition: int) -> dict[str, bytes]:
        """Return the scores of each stream of classes or numbers that is shown, as it is configured now."""
        for key, _ in self._table.range(partition, keys.VECTORS):
            config, stream = keys.of_vectors(key)
            policy = self._policies.of(stream)
            if policy and policy.config == config and not self._gauges.shows(stream):
                break
        found = {}
        for stream in self._gauges.shown():
            policy = self._policies.of(stream)
            row = policy and self._table.read(partition, keys.vectors(stream, policy.config))
            if row:
                found[stream] = row
        return found

    def _comparisons(self, partition: int, streams: Iterable[str]) -> dict[Place, bytes]:
        """Return the row of each challenger of each scored stream, beside what serves now."""
        found = {}
        for stream in streams:
            policy = self._policies.of(stream)
            if policy is None:
                continue
            for each in policy.challengers:
                row = self._table.read(partition, keys.comparison(stream, policy.config, each.config))
                if row:
                    found[stream, each.calibrator, each.config] = row
        return found

    def _calibrators(self, partition: int, streams: Iterable[str]) -> dict[str, bytes]:
        """Return the row of the calibrator that serves each scored stream now."""
        found = {}
        for stream in streams:
            policy = self._policies.of(stream)
            row = policy and self._table.read(partition, keys.calibrator(stream, policy.config))
            if row:
                found[stream] = row
        return found

    def close(self, partition: int) -> None:
        """Let go of a partition that has moved."""
        self._partitions.pop(partition, None)
        self._table.closed(partition)
        self._gauges.revoked(partition)

    async def fold(self, batch: Batch) -> None:
        """Do everything a batch asks for; returns when all of it is acknowledged.

        Raises
        ------
        MovedError
            If the partition has moved; nothing of the batch was done.
        CorruptFrame, FencedError, ForeignWriterError, KafkaError
            Whatever is raised, nothing of the batch may be acknowledged, and the process must end.
        """
        started = perf_counter()
        async with self._lock(batch.partition):
            probe = self._timed()
            events = self._decoder.events(batch.records)  # step 1
            probe(1)
            await self._apply(batch.partition, events, probe)
        self._gauges.batch(len(events), perf_counter() - started)
        self._gauges.waited(record.timestamp for topic, record in batch.records if topic == FORECASTS)

    def _timed(self) -> Probe:
        """Return the probe of one batch, which also notes how long each step took."""
        before = perf_counter()

        def done(step: int) -> None:
            nonlocal before
            now = perf_counter()
            self._gauges.stage(step, now - before)
            before = now
            self._probe(step)

        return done

    async def _apply(self, number: int, events: Sequence[Event], probe: Probe) -> None:
        partition = self._partitions.get(number)
        if partition is None:
            raise MovedError(f"partition {number} has moved; a batch of it that was waiting is left to its new owner")
        effects = partition.fold(events)  # step 2
        probe(2)
        if effects.rows:
            try:
                # Step 3, and 4: changelog acknowledged, then rows and offset on disk.
                await self._table.commit(number, effects.rows, probe)
            except TooLargeError:
                if len(events) == 1:
                    raise
                partition.reset()
                half = len(events) // 2
                await self._apply(number, events[:half], probe)
                await self._apply(number, events[half:], probe)
                return
        self._gauges.applied(number, effects, partition.fence)
        await self._outputs.send(number, effects.outputs)  # step 5
        probe(5)

    def _lock(self, partition: int) -> asyncio.Lock:
        return self._locks.setdefault(partition, asyncio.Lock())
