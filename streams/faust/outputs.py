"""What leaves: outputs as record batches, acknowledged before the inputs they answer are."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Protocol

from state.events import Output
from streams.config.settings import Settings
from streams.faust.transport import BatchProducer, RecordBatch
from streams.records.encoding import EncodedRecord, answered_raw, encoded


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

    def batch(self, partition: int) -> "OutputBatch":
        """Return an empty batch for a partition of every topic."""
        return OutputBatch(self, partition)


class Producing(Protocol):
    """What a batch needs of those that produce it."""

    topics: dict[str, str]
    producer: Callable[[], BatchProducer]
    produced: Callable[[str, int], None]


class PackedBatch:
    """Records of one batch, packed by topic and partition when they are made, and sent when its effects are stored."""

    def __init__(self, producing: Producing, partition: int) -> None:
        self._producing = producing
        self.partition = partition
        #: By the topic's label and the partition they go to.
        self._packed: dict[tuple[str, int], list[RecordBatch]] = {}

    def _pack(self, label: str, partition: int, records: list[EncodedRecord]) -> None:
        packed = self._packed.setdefault((label, partition), [])
        taken = packed[-1].extend(records) if packed else 0
        while taken < len(records):
            batch = self._producing.producer().batch()
            packed.append(batch)
            more = batch.extend(records[taken:])
            if not more:
                size, topic = len(records[taken][1]), self._producing.topics[label]
                raise ValueError(f"a record of {size} bytes for {topic} does not fit TRUEUP_BATCH_BYTES")
            taken += more

    async def send(self) -> None:
        """Produce what was packed and wait until all of it is acknowledged.

        Raises
        ------
        KafkaError, TimeoutError
            If any is not acknowledged.
        """
        topics = self._producing.topics
        rounds = zip_longest(*[[(batch, to) for batch in packed] for to, packed in self._packed.items()])
        for together in rounds:  # one batch of a topic after another
            sent = [each for each in together if each is not None]
            await self._append([(batch, topics[label], partition) for batch, (label, partition) in sent])
            for batch, (label, _) in sent:
                self._producing.produced(label, batch.record_count())

    async def _append(self, batches: list[tuple[RecordBatch, str, int]]) -> None:
        await self._producing.producer().append(batches)


class OutputBatch(PackedBatch):
    """The outputs of one batch.

    Each goes to the partition its input came from, so one event's records keep their order.
    """

    def __init__(self, outputs: Outputs, partition: int) -> None:
        super().__init__(outputs, partition)
        self._outputs = outputs
        self._settings = outputs.settings
        self._raw_answers = 0

    def add(self, outputs: Sequence[Output]) -> None:
        """Pack outputs, in order.

        Raises
        ------
        ValueError
            If one is larger than a record batch may be.
        """
        if self._settings.policies.answering:
            self._raw_answers += sum(answered_raw(output, self._settings) is not None for output in outputs)
        for label, records in encoded(outputs, self._settings, self.partition).items():
            if records:
                self._pack(label, self.partition, records)

    async def send(self) -> None:
        """Produce what was packed; see `PackedBatch.send`."""
        await super().send()
        self._outputs.raw_answers += self._raw_answers
