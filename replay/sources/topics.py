"""Reads the two input topics between fixed offsets, without a consumer group.

Offsets are looked up once, before anything is read. So records appended meanwhile are not replayed, and a manifest
repeats the same replay. Nothing is committed and no group is joined, so workers do not notice.

Records are read as a worker reads them. Records of aborted transactions are left out. A batch that unpacks to more than
``TRUEUP_UNPACKED_BYTES`` becomes one dead letter. So does a record that ``trueup state skip`` left out; the workers'
dead letters name it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from replay.sources.record import CHUNK, TOPICS, Chunk, SourceRecord
from replay.topic_reader import TopicReader
from state.fence import FORECASTS, OUTCOMES
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError, partitions
from streams.kafka.whole_topics import batches
from streams.records import skips
from streams.records.refused import Refused
from streams.records.skips import PoisonError

#: By partition: the range of offsets from the first up to, but not including, the last.
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class TopicSource:
    """Ranges of offsets of the input topics."""

    #: The ``TRUEUP_*`` variables for the connection to the brokers. They are kept in place of settings, because TLS
    #: contexts cannot be sent to other processes.
    environment: Mapping[str, str]
    #: Names of the topics.
    names: tuple[str, str]
    #: Offsets of both topics, [start, end) for each partition.
    spans: tuple[Spans, Spans]
    #: Skipped records: the reason by topic, partition and offset.
    skipped: Mapping[str, Mapping[int, Mapping[int, str]]] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.spans[FORECASTS])

    until_ms = None
    mapped = True

    @property
    def size(self) -> int:
        """Number of offsets to read."""
        return sum(end - start for spans in self.spans for start, end in spans)

    def ready(self, directory: Path) -> "TopicSource":  # noqa: ARG002 - partitions are apart
        """Return itself."""
        return self

    def manifest(self) -> Mapping[str, Any]:
        """Return topics and offsets, from which `reread` makes the source again."""
        found: dict[str, Any] = {}
        for label, name, spans in zip(TOPICS, self.names, self.spans, strict=True):
            found[label] = {"topic": name, "offsets": {str(n): list(span) for n, span in enumerate(spans)}}
            if self.skipped.get(name):
                found[label]["skipped"] = {
                    str(n): {str(offset): why for offset, why in sorted(each.items())}
                    for n, each in sorted(self.skipped[name].items())
                }
        return found

    def read(self, topic: int, partition: int) -> Iterator[Chunk]:
        """Yield the records of one partition's range.

        Raises TopicsError if the brokers send nothing for long, or if records of the range were deleted.
        """
        start, end = self.spans[topic][partition]
        if start >= end:
            return
        settings = Settings.from_env(self.environment)
        place = TopicPartition(self.names[topic], partition)
        left_out = self.skipped.get(place.topic, {}).get(partition, {})
        with TopicReader(settings) as reader:
            reader.leave_out((place.topic, partition, offset, why) for offset, why in left_out.items())
            (records,) = reader.stretches({place: (start, end)}, settings.unpacked_bytes)
            try:
                while found := [_record(topic, record) for record in islice(records, CHUNK)]:
                    yield Chunk(found, found[-1].offset + 1 - start)
                    start = found[-1].offset + 1
            except KafkaError as exc:
                raise TopicsError(f"cannot read {place.topic}/{partition} at offset {start}: {exc!r}") from exc
        yield Chunk([], end - start)


def _record(topic: int, read: Any) -> SourceRecord:  # noqa: ANN401 - aiokafka's
    """Return a record. If it stands for records that are not read, it has the reason."""
    reason = read.value.reason if isinstance(read.value, Refused) else None
    return SourceRecord(read.timestamp, topic, read.offset, read.key, read.value, reason, read.headers)


@dataclass(frozen=True)
class Range:
    """The time range of records, ms since the epoch; None: as far as records are kept."""

    from_ms: int | None = None
    to_ms: int | None = None


def resolved(settings: Settings, environment: Mapping[str, str], wanted: Range) -> TopicSource:
    """Look up the offsets of a range.

    By Kafka's timestamps, a partition's range begins with its first record that is not before ``from_ms``, and ends
    before its first record that is not before ``to_ms``. All records in between count, whatever their timestamps are.

    Raises TopicsError if a topic is missing, if the numbers of partitions differ, or if the brokers cannot be reached.
    """
    try:
        spans = _spans(settings, wanted)
        names = settings.inputs
        skipped = asyncio.run(_skipped(settings, dict(zip(names, spans, strict=True))))
    except (KafkaError, PoisonError) as exc:
        raise TopicsError(f"cannot read from {', '.join(settings.brokers)}: {exc!r}") from exc
    return TopicSource(_kept(environment), names, spans, skipped)


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("TRUEUP_")}


async def _skipped(settings: Settings, spans: Mapping[str, Spans]) -> dict[str, dict[int, dict[int, str]]]:
    """Return which records of some ranges operators skipped, from the dead letters; empty if these cannot be read."""
    found: dict[str, dict[int, dict[int, str]]] = {}
    if await partitions(settings, settings.dead_letters) is None:
        return found
    try:
        async for _, records in batches(settings, [settings.dead_letters]):
            for record in records:
                said = skips.of_dead_letter(record.value or b"")
                if said is None or said[0] not in spans:
                    continue
                topic, partition, offset, why = said
                start, end = spans[topic][partition] if partition < len(spans[topic]) else (0, 0)
                if start <= offset < end:
                    found.setdefault(topic, {}).setdefault(partition, {})[offset] = why
    except TopicAuthorizationFailedError:
        return {}
    return found


def _spans(settings: Settings, wanted: Range) -> tuple[Spans, Spans]:
    names = settings.inputs
    counts = [asyncio.run(partitions(settings, name)) for name in names]
    if None in counts:
        raise TopicsError(f"there is no topic {names[counts.index(None)]}")
    if counts[FORECASTS] != counts[OUTCOMES]:
        raise TopicsError(
            f"topic {names[0]} has {counts[0]} partitions, {names[1]} has {counts[1]}: give both "
            "the same number, so that an event's records meet"
        )
    with TopicReader(settings) as reader:
        forecasts, outcomes = [
            _topic_spans(reader, [TopicPartition(name, n) for n in range(counts[0] or 0)], wanted) for name in names
        ]
    return forecasts, outcomes


def _topic_spans(reader: TopicReader, places: Sequence[TopicPartition], wanted: Range) -> Spans:
    spans = []
    for place, (first, end) in reader.extents(places).items():
        from_, to = (None if ms is None else reader.at(place, ms) for ms in (wanted.from_ms, wanted.to_ms))
        start = first if wanted.from_ms is None else end if from_ is None else from_
        spans.append((start, max(start, end if to is None else to)))
    return tuple(spans)


def reread(path: Path, environment: Mapping[str, str]) -> TopicSource:
    """Read a manifest that `TopicSource.manifest` gave.

    Raises SettingsError if the file cannot be read, or is not a manifest of topics.
    """
    try:
        read = orjson.loads(path.read_bytes())
        given = [read[label] for label in TOPICS]
        topics = [of["topic"] for of in given]
        skipped = {
            of["topic"]: {
                int(n): {int(offset): str(why) for offset, why in each.items()}
                for n, each in of.get("skipped", {}).items()
            }
            for of in given
        }
        spans = [
            tuple(
                (int(start), int(end)) for _, (start, end) in sorted(of["offsets"].items(), key=lambda at: int(at[0]))
            )
            for of in given
        ]
    except OSError as exc:
        raise SettingsError(f"cannot read {path}: {exc.strerror}") from exc
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as exc:
        raise SettingsError(f"{path} is not a manifest of topics, as --manifest writes it") from exc
    if len(spans[0]) != len(spans[1]) or any(start > end or start < 0 for each in spans for start, end in each):
        raise SettingsError(f"{path} gives offsets that no topic can have")
    return TopicSource(_kept(environment), (topics[0], topics[1]), (spans[0], spans[1]), skipped)


def moment(text: str) -> int:
    """Parse an ISO 8601 time; return ms since the epoch. Without an offset it is UTC.

    Raises SettingsError if it is not a time.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as exc:
        raise SettingsError(f"{text!r} is not a time such as 2026-11-01T00:00Z") from exc
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
