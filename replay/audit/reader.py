"""Reads the topics of an audit between given offsets, one partition of each at a time."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient

from replay.audit.output_matcher import Unauditable
from replay.audit.partition_verifier import INPUTS, LABELS, OUTPUTS, Skips
from replay.audit.terms import Configurations
from replay.first_rows import Loaded
from replay.topic_reader import Extent, TopicReader
from streams.config import in_force
from streams.config.in_force import InForce, InForceError
from streams.config.settings import Settings
from streams.kafka import provenance
from streams.kafka import topics as kafka_topics
from streams.kafka.metadata import Metadata
from streams.records import skips
from streams.records.merge import KafkaRecord

#: The extents of the topics of `LABELS`, for one partition.
Span = Mapping[str, Extent]


class PartitionReader(TopicReader):
    """Reads the topics of a group, by label."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        #: By partition: the records in the topic of configurations, without first rows.
        self._told: dict[int, dict[bytes, bytes]] = {}

    def place(self, label: str, partition: int) -> TopicPartition:
        """Return a partition of a topic by its label."""
        return TopicPartition(named(self._settings, [label])[0], partition)

    def told(self, partition: int) -> dict[bytes, bytes]:
        """Return a partition's records in the topic of configurations, without its first rows."""
        if partition not in self._told:
            self._told[partition] = self._kept(partition, lambda key: not key.startswith(in_force.FIRST_ROWS))
        return self._told[partition]

    def _kept(self, partition: int, wanted: Callable[[bytes], bool]) -> dict[bytes, bytes]:
        (records,) = self.stretches(self.extents([self.place("configurations", partition)]))
        found = {record.key: record.value for record in records if record.key and wanted(record.key)}
        return {key: value for key, value in found.items() if value is not None}

    def in_force(self, partition: int, kind: bytes = in_force.WORKER) -> list[InForce]:
        """Return the configurations in force that workers, or routers, wrote for a partition; raises `Unauditable`."""
        try:
            return in_force.read(self.told(partition).items(), kind)
        except InForceError as exc:
            raise Unauditable(f"{self._settings.configurations}/{partition}: {exc}") from exc

    def loaded(self, partition: int) -> Loaded | None:
        """Return what a partition began with, as `replay.first_rows` recorded it; None if it began with nothing.

        Raises `Unauditable`.
        """
        found = self.told(partition)
        if in_force.LOADED not in found:
            return None
        try:
            return Loaded.decode(found[in_force.LOADED])
        except (ValueError, KeyError, TypeError) as exc:
            place = f"{self._settings.configurations}/{partition}"
            raise Unauditable(f"{place}: the record of its first rows cannot be read: {exc!r}") from exc

    def first(self, partition: int, said: Loaded, *, routes: bool = False) -> dict[bytes, bytes]:
        """Return the rows with which a partition of the worker, or of the router, began.

        Raises `Unauditable` if some were deleted.
        """
        prefix, count = in_force.LOADED_ROW, said.rows
        if routes:
            prefix, count = in_force.LOADED_ROUTE, said.upstream.routes if said.upstream else 0
        found = self._kept(partition, lambda key: key.startswith(prefix))
        rows = {key.removeprefix(prefix): row for key, row in found.items()}
        if len(rows) != count:
            place = f"{self._settings.configurations}/{partition}"
            raise Unauditable(f"{place} has {len(rows):,} of {count:,} rows that it began with, of {said}")
        return rows

    def changelog(self, partition: int, until: int | None) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Yield offset, key and row of a partition's changelog, up to the offset ``until``; None: to its end."""
        place = self.place("changelog", partition)
        first, end = self.extents([place])[place]
        (records,) = self.stretches({place: (first, end if until is None else min(until, end))})
        for record in records:
            yield record.offset, record.key or b"", record.value

    def rows(self, partition: int) -> dict[bytes, bytes]:
        """Return the present rows of a changelog, which may grow meanwhile.

        Brokers remove a row when a newer row has its key, and the newer row may be behind the end that was read. So
        this reads on to the new end, until a stretch has no gaps. The newer rows are then among those that were read.
        """
        place, rows = self.place("changelog", partition), dict[bytes, bytes]()
        at, end = self.extents([place])[place]
        while True:
            (records,), read = self.stretches({place: (at, end)}), 0
            for record in records:
                read += 1
                if record.value is None:
                    rows.pop(record.key or b"", None)
                else:
                    rows[record.key or b""] = record.value
            if read == end - at:
                return rows
            at, end = end, self.extents([place])[place].end

    def note_skips(self, partition: int, span: Span, since: Skips) -> Skips:
        """Find in new dead letters which records were skipped. The inputs are then read without those."""
        first, end = span["dead-letters"]
        (letters,) = self.stretches({self.place("dead-letters", partition): (max(first, since.next), end)})
        more = [skips.of_dead_letter(record.value or b"") for record in letters]
        found = tuple(dict.fromkeys([*since.found, *filter(None, more)]))
        self.leave_out(found)
        return Skips(end, found)

    def open(
        self, partition: int, span: Span, since: Mapping[str, int], configurations: Configurations
    ) -> list[Iterator[KafkaRecord]]:
        """Return the records of each of `LABELS` from the offsets of ``since`` on, unpacked as workers did then."""
        places = {self.place(label, partition): since[label] for label in LABELS}
        stretches: list[list[tuple[int, int | None]]] = [[(span[label].end, None)] for label in LABELS]
        for topic, label in enumerate(INPUTS):
            stretches[topic] = configurations.unpacked_bytes(topic, since[label], span[label].end)
        for place, ((_, limit), *_) in zip(places, stretches, strict=True):
            self._unpacks[place.topic] = limit
        self.begin(places)
        return [self.records(place, each) for place, each in zip(places, stretches, strict=True)]


def named(settings: Settings, labels: Iterable[str]) -> list[str]:
    """Return the names of topics, by their labels."""
    return [getattr(settings, label.replace("-", "_")) for label in labels]


def width(settings: Settings, names: Iterable[str]) -> int:
    """Return the number of partitions; raises `Unauditable` unless all topics exist and have the same number."""
    counts = {}
    for name in names:
        count = asyncio.run(kafka_topics.partitions(settings, name))
        if count is None:
            raise Unauditable(f"there is no topic {name}")
        counts[name] = count
    if len(set(counts.values())) > 1:
        raise Unauditable(f"the topics have different numbers of partitions: {counts}")
    return next(iter(counts.values()))


def described(settings: Settings, names: Iterable[str]) -> dict[str, Metadata]:
    """Return the descriptions of topics. A topic that was recreated has the same name, another id, other records."""

    async def ask() -> dict[str, Metadata]:
        client = AIOKafkaClient(**settings.client_options())
        try:
            await client.bootstrap()
            return {name: await provenance.identity(client, name) for name in names}
        finally:
            await client.close()

    return asyncio.run(ask())


def spans(settings: Settings, count: int) -> dict[int, Span]:
    """Return the records of each of ``count`` partitions of a group.

    The end of the journal is read first and the ends of the inputs last. So the outputs of every entry are there, and
    the inputs of every output.
    """
    with PartitionReader(settings) as reader:
        order = ("journal", *OUTPUTS[::-1], *INPUTS[::-1])
        extents = reader.extents([reader.place(label, n) for label in order for n in range(count)])
        return {n: {label: extents[reader.place(label, n)] for label in LABELS} for n in range(count)}


def identities(settings: Settings) -> dict[str, list[Any]]:
    """Return name, cluster, id and number of partitions of each of `LABELS`. The topics must exist, see `width`."""
    found = described(settings, named(settings, LABELS)).values()
    return {
        label: [each.name, each.cluster, each.id, each.partitions] for label, each in zip(LABELS, found, strict=True)
    }


def require_kept(settings: Settings, partition: int, span: Span, since: Mapping[str, int]) -> None:
    """Require that no record that is to be read was deleted. Gaps in the journal are found later, when it is read."""
    cut = [
        f"{name}/{partition} begins at offset {span[label].first}"
        for label, name in zip(LABELS, named(settings, LABELS), strict=True)
        if span[label].first > since[label] and (label != "journal" or span[label].first == span[label].end)
    ]
    if cut:
        raise Unauditable(
            f"records were deleted by retention ({', '.join(cut)}): answers depend on every record before them, so an "
            "audit needs all topics from their first record, or from where the last one stopped: give them "
            "retention.ms=-1, audit with --checkpoint before they are deleted, begin with --from at what 'trueup "
            "snapshot' wrote before, or audit a whole copy"
        )
