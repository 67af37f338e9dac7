"""What leaves: outputs as record batches, acknowledged before the inputs they answer are."""

from collections.abc import Callable, Iterable
from itertools import zip_longest

from state.events import Output
from streams.config.settings import Settings
from streams.faust.transport import BatchProducer, RecordBatch
from streams.records.encoding import EncodedRecord, encoded


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
        self.topics = {
            "calibrated": settings.calibrated,
            "resolved": settings.resolved,
            "dead-letters": settings.dead_letters,
        }

    def batch(self, partition: int) -> "OutputBatch":
        """Return an empty batch for a partition of every topic."""
        return OutputBatch(self, partition)


class OutputBatch:
    """The outputs of one batch: encoded and packed when they are made, sent when its effects are in the state.

    Each goes to the partition its input came from, so one event's records keep their order.
    """

    def __init__(self, outputs: Outputs, partition: int) -> None:
        self._outputs = outputs
        self.partition = partition
        self._packed: dict[str, list[RecordBatch]] = {label: [] for label in outputs.topics}

    def add(self, outputs: Iterable[Output]) -> None:
        """Pack outputs, in order.

        Raises
        ------
        ValueError
            If one is larger than a record batch may be.
        """
        for label, records in encoded(outputs, self._outputs.settings, self.partition).items():
            if records:
                self._pack(label, records)

    def _pack(self, label: str, records: list[EncodedRecord]) -> None:
        packed = self._packed[label]
        taken = packed[-1].extend(records) if packed else 0
        while taken < len(records):
            batch = self._outputs.producer().batch()
            packed.append(batch)
            more = batch.extend(records[taken:])
            if not more:
                size = len(records[taken][1])
                raise ValueError(
                    f"a record of {size} bytes for {self._outputs.topics[label]} does not fit TRUEUP_BATCH_BYTES"
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
        rounds = zip_longest(*[[(batch, label) for batch in packed] for label, packed in self._packed.items()])
        for together in rounds:  # one batch of a topic after another
            sent = [each for each in together if each is not None]
            await outputs.producer().append([(batch, outputs.topics[label], self.partition) for batch, label in sent])
            for batch, label in sent:
                outputs.produced(label, batch.record_count())
