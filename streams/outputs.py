"""What leaves: outputs as record batches, acknowledged before the inputs they answer are."""

import asyncio
from collections.abc import Callable, Iterable

from state.events import Output
from streams.encoding import Record, encoded
from streams.settings import Settings
from streams.transport import BatchProducer


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
        self._settings = settings
        self._producer = producer
        self._produced = produced

    async def send(self, partition: int, outputs: Iterable[Output]) -> None:
        """Produce outputs in order and wait until all are acknowledged.

        Each goes to the partition its input came from, so one event's records keep their order.

        Raises
        ------
        KafkaError, TimeoutError
            If any is not acknowledged.
        """
        records = encoded(outputs, self._settings, partition)
        topics = self._settings
        await asyncio.gather(
            self._produce("calibrated", topics.calibrated, partition, records["calibrated"]),
            self._produce("resolved", topics.resolved, partition, records["resolved"]),
            self._produce("dead-letters", topics.dead_letters, partition, records["dead-letters"]),
        )

    async def _produce(self, label: str, topic: str, partition: int, records: list[Record]) -> None:
        if not records:
            return
        producer = self._producer()
        batches = []
        sent = 0
        while sent < len(records):
            batch = producer.batch()
            taken = batch.extend(records[sent:])
            if not taken:
                size = len(records[sent][1])
                raise ValueError(f"a record of {size} bytes for {topic} does not fit TRUEUP_BATCH_BYTES")
            batches.append(batch)
            sent += taken
        for batch in batches:
            await producer.send_batch(batch, topic, partition)
        self._produced(label, len(records))
