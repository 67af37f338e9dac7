"""The outputs of a router: dead letters, and labels as outcomes of their streams, each to the partition of its key."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import Final

from state.events import Rejected
from state.routes import Routed
from state.witnesses import SLACK
from streams.config.settings import Settings
from streams.faust.outputs import Heard, PackedBatch
from streams.faust.producing import BatchProducer
from streams.kafka import partitioner
from streams.records.encoding import NO_HEADERS, EncodedRecord, letter
from streams.records.merge import BEHIND, believed
from streams.records.routing import encode_outcome

OUTCOMES, LETTERS = "outcomes", "dead-letters"
#: The topics by their labels.
LABELS: Final = (OUTCOMES, LETTERS)


class RoutedOutputs:
    """Produces outcomes and dead letters.

    ``settings``: those of the router, whose inputs are the routes and the labels.
    ``producer``: returns the producer; the application makes it when it starts.
    ``partitions``: returns the number of partitions of the outcomes.
    ``produced``: called with the label of a topic and a number of acknowledged records.
    """

    def __init__(
        self,
        settings: Settings,
        producer: Callable[[], BatchProducer],
        partitions: Callable[[], int],
        produced: Callable[[str, int], None],
    ) -> None:
        self.settings = settings
        self.topics = {OUTCOMES: settings.routed, LETTERS: settings.dead_letters}
        self.producer = producer
        self.partitions = partitions
        self.produced = produced

    def batch(self, partition: int, _: Settings, __: Heard | None = None) -> "RoutedBatch":
        """Return an empty batch for the outputs of a partition."""
        return RoutedBatch(self, partition)

    async def heard(self, starts: Mapping[int, object]) -> dict[int, Heard]:
        """Return nothing: each topic has many writers, and workers ignore repeated records."""
        return {partition: Heard() for partition in starts}

    async def note(self, partition: int, entry: bytes) -> None:
        """Append an entry to the topic of the journal; raises as `PackedBatch.send`."""
        await self.producer().put(self.settings.journal, partition, None, entry)

    async def send(self, batches: Sequence["RoutedBatch"]) -> dict[int, dict[str, int]]:
        """Produce the outputs of batches, sorted by time for each topic-partition; raises as `PackedBatch.send`.

        Returns nothing, see `heard`.
        """
        runs = defaultdict[tuple[str, int], list[list[EncodedRecord]]](list)
        for batch in batches:
            for to, records in batch.made.items():
                runs[to].append(records)
        packed = PackedBatch(self.topics, self.producer, self.produced)
        for (label, partition), found in runs.items():
            packed.pack(label, partition, by_time(found))
        await packed.send()
        return {}


class RoutedBatch:
    """The outputs of one batch.

    ``outputs``: sends them.
    ``partition``: of the router's inputs.
    """

    def __init__(self, outputs: RoutedOutputs, partition: int) -> None:
        self.partition = partition
        #: Records by their topic's label and their partition, in order.
        self.made = defaultdict[tuple[str, int], list[EncodedRecord]](list)

        self._outputs = outputs

    def add(self, outputs: Iterable[Routed | Rejected]) -> None:
        """Encode outputs, in order."""
        settings = self._outputs.settings
        for output in outputs:
            if isinstance(output, Routed):
                key = output.target.encode()
                to = OUTCOMES, partitioner.partition(key, self._outputs.partitions())
                headers = list(output.headers) if output.headers else NO_HEADERS
                self.made[to].append((key, encode_outcome(output), output.stamp, headers))
            else:
                record = letter(output, settings.inputs[output.topic], self.partition, settings.limits)
                self.made[LETTERS, self.partition].append(record)


def by_time(runs: Sequence[list[EncodedRecord]]) -> list[EncodedRecord]:
    """Merge runs of records by their Kafka timestamps. Each run keeps its order. A future record delays no others."""
    if len(runs) == 1:
        return runs[0]
    timed = chain.from_iterable(zip(_times(run), run, strict=True) for run in runs)
    return [record for _, record in sorted(timed, key=itemgetter(0))]


def _times(run: list[EncodedRecord]) -> Iterable[int]:
    """Return the times, ms, by which the records of a run are merged."""
    stamps = [record[2] or 0 for record in run]
    if any(before - after > SLACK for before, after in pairwise(stamps)):
        stamps = [believed(stamp, stamps[i + 1 : i + 1 + BEHIND]) for i, stamp in enumerate(stamps)]
    return accumulate(stamps, max)
