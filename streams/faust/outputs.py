"""What leaves: outputs as record batches, acknowledged before the inputs they answer are."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest

from state.events import Output
from streams.config.settings import Settings
from streams.faust.transport import BatchProducer, Produced, RecordBatch
from streams.records.encoding import NO_HEADERS, answered_raw, encoded


class Outputs:
    """Produces to the three output topics.

    Parameters
    ----------
    settings
        Names the topics.
    producer
        Returns the producer; the application makes it when it starts.
    produced
        Called with the label of a topic and a number of acknowledged records.
    """

    def __init__(
        self,
        settings: Settings,
        producer: Callable[[], BatchProducer],
        produced: Callable[[str, int], None],
    ) -> None:
        self.settings = settings
        self.producer = producer
        self.produced = produced
        #: Dead forecasts that were answered with their raw score, since the process began.
        self.raw_answers = 0
        self.topics = {
            "calibrated": settings.calibrated,
            "resolved": settings.resolved,
            "dead-letters": settings.dead_letters,
        }

    def batch(self, partition: int, settings: Settings) -> "OutputBatch":
        """Return an empty batch for a partition of every topic, of what was folded under some settings."""
        return OutputBatch(self, partition, settings)

    async def send(self, batches: Sequence["OutputBatch"]) -> None:
        """Produce batches of different partitions together; raises as `PackedBatch.send`."""
        first, *others = batches
        await first.send(others)
        self.raw_answers += sum(batch.raw_answers for batch in batches)

    async def note(self, entries: Mapping[int, bytes]) -> None:
        """Append an entry of each partition to the topic of the journal; raises as `PackedBatch.send`."""
        await put(self.producer(), self.settings.journal, entries)


async def put(producer: BatchProducer, topic: str, values: Mapping[int, bytes], key: bytes | None = None) -> None:
    """Append one record to each of some partitions, and wait for the acknowledgement; raises as `PackedBatch.send`."""
    batches = []
    for partition, value in values.items():
        batch = producer.batch()
        batch.extend([(key, value, None, NO_HEADERS)])
        batches.append((batch, topic, partition))
    await producer.append(batches)


#: Appends record batches, each to another topic and partition; returns when all are acknowledged.
Append = Callable[[list[tuple[RecordBatch, str, int]]], Awaitable[object]]


class PackedBatch:
    """Records that are packed by topic and partition when they are made, and sent later.

    Parameters
    ----------
    topics
        By their labels.
    empty
        Makes an empty record batch.
    append
        Sends record batches.
    produced
        Called with the label of a topic and a number of acknowledged records.
    """

    def __init__(
        self,
        topics: Mapping[str, str],
        empty: Callable[[], RecordBatch],
        append: Append,
        produced: Callable[[str, int], None],
    ) -> None:
        self._topics = topics
        self._empty = empty
        self._append = append
        self._produced = produced
        #: By the topic's label and the partition they go to.
        self._packed: dict[tuple[str, int], list[RecordBatch]] = {}

    def pack(self, label: str, partition: int, records: Sequence[Produced]) -> None:
        """Add records of a partition of a topic, in their order.

        Raises
        ------
        ValueError
            If one is larger than a record batch may be.
        """
        packed = self._packed.setdefault((label, partition), [])
        taken = packed[-1].extend(records) if packed else 0
        while taken < len(records):
            batch = self._empty()
            packed.append(batch)
            more = batch.extend(records[taken:])
            if not more:
                size = len(records[taken][1] or b"")
                raise ValueError(f"a record of {size} bytes for {self._topics[label]} does not fit TRUEUP_BATCH_BYTES")
            taken += more

    async def send(self, others: Sequence["PackedBatch"] = ()) -> None:
        """Produce what was packed, and what others packed for other partitions; returns when all is acknowledged.

        Raises
        ------
        KafkaError, TimeoutError
            If any is not acknowledged.
        """
        every = [(to, packed) for each in (self, *others) for to, packed in each._packed.items()]  # noqa: SLF001 - its own kind
        rounds = zip_longest(*[[(batch, to) for batch in packed] for to, packed in every])
        for together in rounds:  # one batch of a topic after another
            sent = [each for each in together if each is not None]
            await self._append([(batch, self._topics[label], partition) for batch, (label, partition) in sent])
            for batch, (label, _) in sent:
                self._produced(label, batch.record_count())


class OutputBatch(PackedBatch):
    """The outputs of one batch.

    Each goes to the partition its input came from, so one event's records keep their order.

    Attributes
    ----------
    partition
        That partition.
    raw_answers
        Dead forecasts that are answered with their raw score.
    """

    def __init__(self, outputs: Outputs, partition: int, settings: Settings) -> None:
        super().__init__(
            outputs.topics,
            lambda: outputs.producer().batch(),
            lambda batches: outputs.producer().append(batches),
            outputs.produced,
        )
        self.partition = partition
        self._settings = settings
        self.raw_answers = 0

    def add(self, outputs: Sequence[Output]) -> None:
        """Pack outputs, in order.

        Raises
        ------
        ValueError
            If one is larger than a record batch may be.
        """
        if self._settings.policies.answering:
            self.raw_answers += sum(answered_raw(output, self._settings) is not None for output in outputs)
        for label, records in encoded(outputs, self._settings, self.partition).items():
            if records:
                self.pack(label, self.partition, records)
