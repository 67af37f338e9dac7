"""A wired application without a broker: a real table on a real store, and a producer that appends to lists."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, time
from typing import Any, NamedTuple

from aiokafka.errors import OutOfOrderSequenceNumber, ProducerFenced
from aiokafka.structs import ConsumerRecord
from faust.types import TP

from agents.applying import Probe
from agents.topology import Topology, build
from streams.config.settings import Settings
from streams.faust.changelog import Writer
from streams.faust.producing import Produced, RecordBatch
from streams.kafka.metadata import Metadata
from streams.kafka.producer_ids import NOBODY, ProducerIdentity
from streams.kafka.provenance import Described

#: Partitions that a wired application has claimed.
PARTITIONS = 16


class Row(NamedTuple):
    """A record of a batch."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None


class Batch(RecordBatch):
    """A real record batch, full when a real one is, that remembers what was appended."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 0)
        self.rows: list[Row] = []
        self.headers: list[list[tuple[str, bytes | None]]] = []

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Any = ()) -> Any:
        appended = super().append(timestamp=timestamp, key=key, value=value, headers=list(headers))
        if appended is not None:
            self.rows.append(Row(key, value, timestamp))
        return appended

    def extend(self, records: Sequence[Produced]) -> int:
        taken = super().extend(records)
        self.rows += [Row(*each[:3]) for each in records[:taken]]
        self.headers += [each[3] for each in records[:taken]]
        return taken


class Sent(NamedTuple):
    """A batch that was sent."""

    topic: str
    partition: int
    rows: list[Row]
    headers: Sequence[list[tuple[str, bytes | None]]] = ()


class Producer:
    """Stands for `BatchProducer`: acknowledges at once, at offsets that continue, unless it was told otherwise.

    Producer ids, epochs and sequences are checked as Apache Kafka 4.3 was seen to check them.

    ``size``: of a record batch, bytes.
    """

    def __init__(self, size: int = 900_000) -> None:
        self.size = size
        self.sent: list[Sent] = []
        self.ends: dict[tuple[str, int], int] = {}
        #: What was said of what is in force: partition and record.
        self.announced: list[tuple[int, Row]] = []
        self.failure: Exception | None = None
        #: Newest epoch of each transactional id, as the coordinator knows it.
        self.given: dict[str, ProducerIdentity] = {}
        #: Newest epoch and next sequence of each partition and producer id, as the log knows them.
        self.newest: dict[tuple[int, int], tuple[int, int]] = {}
        #: Ids of topics; topics that have none here have the same one.
        self.ids: defaultdict[str, str] = defaultdict(lambda: "ab" * 16)
        self.widths: defaultdict[str, int] = defaultdict(lambda: PARTITIONS)
        self.described = Described("trueup", Metadata("cluster", "changelog", "topic", PARTITIONS), 86_400_000)

    async def identify(self, transactional_id: str, held: ProducerIdentity) -> ProducerIdentity:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        given = self.given.get(transactional_id)
        if given is None:
            given = ProducerIdentity(100 + len(self.given), -1)
        elif held not in (NOBODY, given):
            raise ProducerFenced
        given = self.given[transactional_id] = ProducerIdentity(given.producer_id, given.epoch + 1)
        return given

    async def describe(self, app: str, changelog: str) -> Described:
        assert changelog == f"{app}-state-changelog"
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return self.described

    async def identities(self, topics: Iterable[str]) -> list[Metadata]:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return [Metadata("cluster", topic, self.ids[topic], self.widths[topic]) for topic in topics]

    def batch(self, size: int | None = None) -> Batch:
        return Batch(size or self.size)

    async def put(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        batch = self.batch()
        batch.extend([(key, value, None, [])])
        await self._append(batch, topic, partition)

    async def append(self, batches: Sequence[tuple[Batch, str, int]]) -> list[int]:
        return [await self._append(*each) for each in batches]

    async def _append(self, batch: Batch, topic: str, partition: int) -> int:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if batch.stamp is not None:
            producer_id, epoch, sequence = batch.stamp
            known, following = self.newest.get((partition, producer_id), (-1, 0))
            if epoch < known:
                raise ProducerFenced
            if known >= 0 and sequence != (following if epoch == known else 0):
                raise OutOfOrderSequenceNumber
            self.newest[partition, producer_id] = epoch, sequence + len(batch.rows)
        if topic.endswith("-configurations"):
            self.announced += [(partition, row) for row in batch.rows]
            return 0
        offset = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = offset + len(batch.rows)
        self.sent.append(Sent(topic, partition, batch.rows, batch.headers))
        return offset

    def rows(self, topic: str) -> list[Row]:
        """Return everything appended to a topic."""
        return [row for sent in self.sent if sent.topic == topic for row in sent.rows]


def wire(
    directory: Path,
    *,
    producer: Producer | None = None,
    settings: Settings | None = None,
    probe: Probe = lambda _: None,
) -> Topology:
    """Wire an application whose partitions are claimed; call it where a loop runs if its consumer is used."""
    topology = build(replace(settings or Settings(), data_dir=directory), abort=lambda: None, probe=probe)
    topology.app.faust.producer = producer or Producer()  # type: ignore[assignment]
    for partition in range(PARTITIONS):
        topology.table.changelog._writers[partition] = Writer(ProducerIdentity(partition, 0), monotonic())
        topology.table._claimed[partition] = int(time() * 1000), 0
    return topology


def restore(topology: Topology, partition: int = 0) -> None:
    """Write to the table what the changelog has beyond it, as Faust does before a partition is taken up."""
    table, producer = topology.table, topology.app.faust.producer
    changelog = str(table.changelog_topic_name)
    sent = [each for each in producer.sent if (each.topic, each.partition) == (changelog, partition)]  # type: ignore[attr-defined]
    rows = [
        record(changelog, partition, n, 0, *row[:2]) for n, row in enumerate(row for each in sent for row in each.rows)
    ]
    stored = table.store.offset(partition)
    if rows := rows[0 if stored is None else stored + 1 :]:
        table.restore(TP(changelog, partition), rows)


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
