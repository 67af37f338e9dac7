"""What leaves a router: labels as outcomes of their streams, each to the partition of its key, and dead letters."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from state.events import Rejected
from state.routes import Routed
from streams.config.settings import Settings
from streams.faust.outputs import PackedBatch
from streams.faust.transport import BatchProducer, RecordBatch
from streams.kafka import partitioner
from streams.records.encoding import NO_HEADERS, EncodedRecord, encode, key_of
from streams.records.routing import encode_outcome

OUTCOMES, LETTERS = "outcomes", "dead-letters"
#: The topics by their labels.
LABELS: Final = (OUTCOMES, LETTERS)


class RoutedOutputs:
    """Produces outcomes and dead letters.

    Parameters
    ----------
    settings
        Of the router: its inputs are the routes and the labels.
    producer
        Returns the producer; the application makes it when it starts.
    partitions
        Returns how many partitions the outcomes have: as many as the inputs.
    produced
        Called with the label of a topic and a number of acknowledged records.
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
        #: Every partition's batches may go to every partition of the outcomes, and only one may be on its way to each.
        self._sending = asyncio.Lock()

    def batch(self, partition: int) -> "RoutedBatch":
        """Return an empty batch of what a partition's records bring about."""
        return RoutedBatch(self, partition)

    async def append(self, batches: list[tuple[RecordBatch, str, int]]) -> None:
        """Append record batches, after those of other partitions; see `BatchProducer.append`."""
        async with self._sending:
            await self.producer().append(batches)


class RoutedBatch(PackedBatch):
    """The outputs of one batch."""

    def __init__(self, outputs: RoutedOutputs, partition: int) -> None:
        super().__init__(outputs.topics, lambda: outputs.producer().batch(), outputs.append, outputs.produced)
        self.partition = partition
        self._outputs = outputs

    def add(self, outputs: Iterable[Routed | Rejected]) -> None:
        """Pack outputs, in order.

        Raises
        ------
        ValueError
            If one is larger than a record batch may be.
        """
        settings, made = self._outputs.settings, defaultdict[tuple[str, int], list[EncodedRecord]](list)
        for output in outputs:
            if isinstance(output, Routed):
                key = output.target.encode()
                to = OUTCOMES, partitioner.partition(key, self._outputs.partitions())
                made[to].append((key, encode_outcome(output), output.stamp, NO_HEADERS))
            else:
                _, timestamp, value = encode(output, settings, self.partition)
                made[LETTERS, self.partition].append((key_of(output, settings), value, timestamp, NO_HEADERS))
        for (label, partition), records in made.items():
            self.pack(label, partition, records)
