"""What leaves: outputs as record batches, acknowledged before the inputs they answer are."""

import asyncio
from collections.abc import Callable, Iterable

from state.events import Calibrated, Output, Rejected, Resolved
from state.fence import FORECASTS
from streams.records import encode_calibrated, encode_letter, encode_resolved
from streams.settings import Settings
from streams.transport import BatchProducer

#: Key, value and Kafka timestamp (ms) of a record to produce.
Record = tuple[bytes | None, bytes, int | None]


def encode(output: Output, settings: Settings, partition: int) -> tuple[str, int | None, bytes]:
    """Return the label of an output's topic, its Kafka timestamp in ms, and its value."""
    if isinstance(output, Calibrated):
        return "calibrated", output.ts, encode_calibrated(output)
    if isinstance(output, Resolved):
        return "resolved", output.resolved_ts, encode_resolved(output)
    topic = settings.forecasts if output.topic == FORECASTS else settings.outcomes
    return "dead-letters", None, encode_letter(output, topic, partition, settings.limits)


def key_of(output: Output, settings: Settings) -> bytes | None:
    """Return the key of an output's record: its input's, unless a dead letter's is longer than a letter may be."""
    key = output.key
    if key is not None and isinstance(output, Rejected) and len(key) > settings.letter_bytes:
        return None
    return key


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
        records: dict[str, list[Record]] = {"calibrated": [], "resolved": [], "dead-letters": []}
        for output in outputs:
            label, timestamp, value = encode(output, self._settings, partition)
            records[label].append((key_of(output, self._settings), value, timestamp))
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
        full = []
        batch = producer.batch()
        for key, value, timestamp in records:
            if batch.append(key=key, value=value, timestamp=timestamp) is None:
                full.append(batch)
                batch = producer.batch()
                if batch.append(key=key, value=value, timestamp=timestamp) is None:
                    raise ValueError(f"a record of {len(value)} bytes for {topic} does not fit TRUEUP_BATCH_BYTES")
        for each in (*full, batch):
            await producer.send_batch(each, topic, partition)
        self._produced(label, len(records))
