"""What leaves a router: labels as outcomes of their streams, each to the partition of its key, and dead letters."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Final

from state.events import Rejected
from state.routes import Routed
from streams.config.settings import Settings
from streams.faust.transport import BatchProducer, RecordBatch
from streams.kafka import partitioner
from streams.records.encoding import EncodedRecord, encode, key_of
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
        self.sending = asyncio.Lock()

    def batch(self, partition: int) -> "RoutedBatch":
        """Return an empty batch of what a partition's records bring about."""
        return RoutedBatch(self, partition)


class RoutedBatch:
    """The outputs of one batch; see `streams.faust.outputs.OutputBatch`."""

    def __init__(self, outputs: RoutedOutputs, partition: int) -> None:
        self._outputs = outputs
        self.partition = partition
        self._packed: defaultdict[tuple[str, int], list[RecordBatch]] = defaultdict(list)

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
                made[to].append((key, encode_outcome(output), output.stamp))
            else:
                _, timestamp, value = encode(output, settings, self.partition)
                made[LETTERS, self.partition].append((key_of(output, settings), value, timestamp))
        for to, records in made.items():
            self._pack(to, records)

    def _pack(self, to: tuple[str, int], records: list[EncodedRecord]) -> None:
        packed, taken = self._packed[to], 0
        if packed:
            taken = packed[-1].extend(records)
        while taken < len(records):
            batch = self._outputs.producer().batch()
            packed.append(batch)
            more = batch.extend(records[taken:])
            if not more:
                raise ValueError(
                    f"a record of {len(records[taken][1])} bytes for {to[0]} does not fit TRUEUP_BATCH_BYTES"
                )
            taken += more

    async def send(self) -> None:
        """Produce what was packed and wait until all of it is acknowledged.

        Raises
        ------
        KafkaError, TimeoutError
            If any is not acknowledged.
        """
        outputs = self._outputs
        rounds = zip_longest(*[[(batch, to) for batch in packed] for to, packed in self._packed.items()])
        for together in rounds:
            sent = [each for each in together if each is not None]
            async with outputs.sending:
                await outputs.producer().append(
                    [(batch, outputs.topics[label], partition) for batch, (label, partition) in sent]
                )
            for batch, (label, _) in sent:
                outputs.produced(label, batch.record_count())
