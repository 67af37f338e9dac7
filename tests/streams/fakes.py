"""A wired application without a broker: a real table on a real store, and a producer that appends to lists."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import ConsumerRecord, RecordMetadata, TopicPartition

from agents.join import Probe
from agents.topology import Topology, build
from streams.settings import Settings


class Row(NamedTuple):
    """A record of a batch."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None


class Batch(BatchBuilder):  # type: ignore[misc]  # aiokafka ships no type hints
    """A real record batch, full when a real one is, that remembers what was appended."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 0)
        self.rows: list[Row] = []

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Any = ()) -> Any:
        appended = super().append(timestamp=timestamp, key=key, value=value, headers=list(headers))
        if appended is not None:
            self.rows.append(Row(key, value, timestamp))
        return appended


class Sent(NamedTuple):
    """A batch that was sent."""

    topic: str
    partition: int
    rows: list[Row]


class Producer:
    """Stands for `BatchProducer`: acknowledges at once, at offsets that continue, unless it was told otherwise.

    Parameters
    ----------
    size
        Of a record batch, bytes.
    """

    def __init__(self, size: int = 900_000) -> None:
        self.size = size
        self.sent: list[Sent] = []
        self.ends: dict[tuple[str, int], int] = {}
        self.failure: Exception | None = None

    def batch(self) -> Batch:
        return Batch(self.size)

    async def send_batch(self, batch: Batch, topic: str, partition: int) -> RecordMetadata:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        offset = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = offset + len(batch.rows)
        self.sent.append(Sent(topic, partition, batch.rows))
        return RecordMetadata(topic, partition, TopicPartition(topic, partition), offset, 0, 0, 0)

    def rows(self, topic: str) -> list[Row]:
        """Return everything appended to a topic."""
        return [row for sent in self.sent if sent.topic == topic for row in sent.rows]


def wire(
    directory: Path,
    *,
    memory: bool = False,
    producer: Producer | None = None,
    settings: Settings | None = None,
    probe: Probe = lambda _: None,
) -> Topology:
    """Wire an application whose failures are raised; call it where a loop runs if its consumer is used."""
    topology = build(settings or Settings(data_dir=directory), abort=lambda: None, memory=memory, probe=probe)
    topology.app.producer = producer or Producer()  # type: ignore[assignment]
    return topology


def record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
) -> ConsumerRecord[bytes | None, bytes | None]:
    """Return a record as aiokafka hands it over."""
    return ConsumerRecord(topic, partition, offset, timestamp, 0, key, value, None, -1, -1, ())
