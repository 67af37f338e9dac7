"""The ranges of records that an audit follows if it begins at the sources."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
from aiokafka import TopicPartition

from replay.audit import checkpoint as checkpoints
from replay.audit.checkpoint import AuditProgress
from replay.audit.output_matcher import Unauditable
from replay.audit.reader import PartitionReader, described, named, width
from replay.first_rows import Loaded
from replay.topic_reader import Extent
from streams.config import in_force
from streams.config.in_force import InForceError, Mapped
from streams.config.settings import Settings
from streams.faust import offsets
from streams.kafka import topics as kafka_topics
from streams.kafka.metadata import Metadata
from streams.kafka.topics import admin_client
from streams.sources.fields import FORECAST

#: Labels of the topics that intake writes, and then of those that the router writes.
FORECASTS, ROUTES, LABELS, LETTERS, ANSWERS, OUTCOMES = range(6)
MADE: Final = ("forecasts", "routes", "labels", "dead-letters", "calibrated")
WRITTEN: Final = (*MADE, "outcomes")
#: The most differences of a partition that are named. Further ones are only counted.
NAMED: Final = 20


@dataclass(frozen=True)
class SourceSpan:
    """The records of one source partition."""

    #: Its topic; that topic's number among the sources; the partition.
    topic: str
    number: int
    partition: int
    #: Offset of the first record that brokers still have; the next offset that intake will commit; the end.
    first: int
    committed: int
    end: int
    #: Whether the topic is compacted, so that records in between may be missing.
    sparse: bool = False
    #: First offset that no earlier audit has judged.
    begin: int = 0

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True)
class RouterSpan:
    """The records of one partition of the router: its number, and the extents of routes, labels and journal."""

    partition: int
    routes: Extent
    labels: Extent
    journal: Extent


@dataclass(frozen=True)
class AuditPlan:
    """What an audit follows, as of its beginning."""

    settings: Settings
    #: Number of partitions of each of trueup's topics.
    partitions: int
    #: Records of intake and router: the first kept offset and the end, by label and partition.
    written: dict[tuple[int, int], Extent]
    #: Records of each source partition.
    sources: list[SourceSpan]
    #: Records of each partition of the router.
    routers: list[RouterSpan]
    #: Id of each source topic.
    ids: dict[str, str]
    #: Labels of the topics in which intake or router must have written every record.
    strict: frozenset[int]
    #: Labels of the topics whose records keep the Kafka timestamp of the record from which they were made.
    stamped: frozenset[int]
    #: First offset and hash of each mapping that intakes recorded, by source topic and partition.
    mapped: dict[tuple[str, int], list[tuple[int, str]]] = field(default_factory=dict)
    #: Settings by that hash.
    files: dict[str, Settings] = field(default_factory=dict)
    #: Progress of earlier audits of the sources.
    begun: AuditProgress = field(default_factory=AuditProgress)
    #: Identifies what a checkpoint of this plan belongs to.
    of: dict[str, Any] = field(default_factory=dict)
    #: Directory for the routers' last rows; None if they are not needed.
    leaves: Path | None = None
    #: First rows of the partitions, by number. Empty if an earlier audit has gone beyond them, or if there were none.
    given: dict[int, Loaded] = field(default_factory=dict)

    @property
    def answering(self) -> bool:
        """Whether any mapping answers dead forecasts."""
        return any(each.policies.answering for each in (self.settings, *self.files.values()))

    def since(self, label: int, partition: int) -> int:
        """Return the first offset, in a topic of intake or router, that no earlier audit has read."""
        return self.begun.written.get(f"{WRITTEN[label]}/{partition}", 0)

    def require_kept(self) -> None:
        """Require that no record of intake or router was deleted before an audit has read it."""
        cut = [
            f"{self.place(label, n).topic}/{n} begins at offset {extent.first}"
            for (label, n), extent in self.written.items()
            if extent.first > self.since(label, n)
            if label != ANSWERS or self.answering
        ]
        if cut:
            raise Unauditable(
                f"records of intake and router were deleted by retention ({', '.join(cut)}): what was lost cannot be "
                "told from what was deleted. Give these topics retention.ms=-1, audit with --sources --checkpoint "
                "before they are deleted, or audit a whole copy"
            )

    def place(self, label: int, partition: int) -> TopicPartition:
        """Return a partition of a topic of `WRITTEN`."""
        return TopicPartition(named(self.settings, WRITTEN)[label], partition)


def planned(settings: Settings, checkpoint: Path | None = None) -> AuditPlan:
    """Return the plan; raises as `replay.audit.follower.follow`.

    ``checkpoint``: directory with the checkpoint of an earlier audit; None: begin with the first record.
    """
    if all(mode.direct for mode in settings.modes):
        raise Unauditable("no source is for intake: audit without --sources, which follows every record")
    names, journal = named(settings, WRITTEN), settings.router.journal
    partitions = width(settings, [*names, journal])
    ids = [[name, each.id] for name, each in described(settings, names).items()]
    of = {"application": settings.app_id, "partitions": partitions, "topics": ids}
    begun = AuditProgress() if checkpoint is None else checkpoints.read_begun(checkpoint, of)
    with PartitionReader(settings) as reader:
        told = _told(settings, reader)
        there = _sources(settings, begun, told)
        given: dict[int, Loaded] = {}
        if begun == AuditProgress():
            given = {n: each for n in range(partitions) if (each := reader.loaded(n)) and each.upstream}
            begun = _begun(settings, given, there)
        places = {label: [TopicPartition(name, n) for n in range(partitions)] for label, name in enumerate(names)}
        journals = [TopicPartition(journal, n) for n in range(partitions)]
        of_sources = [TopicPartition(topic, n) for topic, each in there.items() for n in range(each.partitions)]
        committed = asyncio.run(_committed(settings, of_sources))
        # Read the ends of the last topics first, so that no record lacks its origin and no entry lacks its outputs.
        order = [place for label in (OUTCOMES, LETTERS, ANSWERS, ROUTES, LABELS, FORECASTS) for place in places[label]]
        extents = reader.extents([*journals, *order, *of_sources])
    written = {(label, at.partition): extents[at] for label, each in places.items() for at in each}
    configured = asyncio.run(kafka_topics.configs(settings, [*there, *names]))
    mapped, files = _mappings(settings, told, there)
    modes = [mode for each in (settings, *files.values()) for mode in each.modes if not mode.direct]
    forecasts = any(mode.source.role == FORECAST for mode in modes)
    labels = any(mode.source.role != FORECAST for mode in modes)
    stamped = [
        label
        for label in (FORECASTS, ROUTES, LABELS, OUTCOMES)
        if configured.get(names[label], {}).get("message.timestamp.type") != "LogAppendTime"
    ]
    numbers = list(dict.fromkeys([*begun.ids, *there]))
    sources = []
    for at, (offset, noted) in committed.items():
        if offset and noted and noted != there[at.topic].id:
            raise Unauditable(
                f"intake has committed offset {offset} of another topic {at.topic}: it was deleted and recreated"
            )
        compacted = "compact" in configured.get(at.topic, {}).get("cleanup.policy", "compact")
        since, number = begun.sources.get(f"{at.topic}/{at.partition}", 0), numbers.index(at.topic)
        first, end = extents[at]
        sources.append(SourceSpan(at.topic, number, at.partition, first, offset, end, compacted, since))
    return AuditPlan(
        settings,
        partitions,
        written,
        sources,
        [RouterSpan(n, written[ROUTES, n], written[LABELS, n], extents[at]) for n, at in enumerate(journals)],
        {topic: each.id for topic, each in there.items()},
        frozenset({ROUTES, LABELS} | ({FORECASTS} if forecasts else set()) | ({OUTCOMES} if labels else set())),
        frozenset(stamped),
        mapped,
        files,
        begun,
        of,
        checkpoint,
        given,
    )


# -- sources ---------------------------------------------------------------------------------------------------------


def _told(settings: Settings, reader: PartitionReader) -> list[Mapped]:
    count = width(settings, [settings.configurations])
    try:
        return in_force.read_mapped(each for n in range(count) for each in reader.told(n).items())
    except InForceError as exc:
        raise Unauditable(f"{settings.configurations}: {exc}") from exc


def _sources(settings: Settings, begun: AuditProgress, told: list[Mapped]) -> dict[str, Metadata]:
    """Return the source topics of the streams file, and other existing topics that intakes have mapped."""
    topics = list(dict.fromkeys(mode.topic for mode in settings.modes if not mode.direct))
    for topic in topics:
        width(settings, [topic])
    there = described(settings, topics)
    for topic, topic_id in {each.topic: each.topic_id for each in told}.items():
        if topic not in there and asyncio.run(kafka_topics.partitions(settings, topic)) is not None:
            found = described(settings, [topic])
            if found[topic].id == topic_id:
                there |= found
    for topic, topic_id in begun.ids.items():
        if topic in there and there[topic].id != topic_id:
            raise Unauditable(f"the checkpoint is of another topic {topic}: it was deleted and recreated")
    return there


def _mappings(
    settings: Settings, told: list[Mapped], there: Mapping[str, Metadata]
) -> tuple[dict[tuple[str, int], list[tuple[int, str]]], dict[str, Settings]]:
    """Return the mappings of source partitions, and the settings that they name."""
    mapped: dict[tuple[str, int], list[tuple[int, str]]] = {}
    files: dict[str, Settings] = {}
    for each in told:
        if each.topic not in there or there[each.topic].id != each.topic_id:
            continue
        if each.digest not in files:
            try:
                files[each.digest] = in_force.restored(each.configuration, settings)
            except InForceError as exc:
                raise Unauditable(f"{settings.configurations}: {exc}") from exc
        found = mapped.setdefault((each.topic, each.partition), [])
        if not found or found[-1][1] != each.digest:
            found.append((each.since, each.digest))
    return mapped, files


async def _committed(settings: Settings, places: list[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
    """Return intake's committed offsets, each with the topic id that intake committed with it."""
    async with admin_client(settings) as admin:
        stored = await offsets.committed(admin, settings.intake_group, places)
    found = {}
    for place in places:
        offset, noted = stored.get(place, (-1, ""))
        try:
            topic_id = str(orjson.loads(noted)["id"])
        except (ValueError, KeyError, TypeError):
            topic_id = ""
        found[place] = max(offset, 0), topic_id
    return found


def _begun(settings: Settings, given: Mapping[int, Loaded], there: Mapping[str, Metadata]) -> AuditProgress:
    """Return the beginning of a moved group, without its router's rows."""
    begun = AuditProgress()
    for n, loaded in given.items():
        calibrated, _, letters = loaded.begins(settings.outputs)
        assert loaded.upstream is not None  # noqa: S101 - for the type checker
        forecasts, outcomes = loaded.upstream.since
        begins = {FORECASTS: forecasts, OUTCOMES: outcomes, LETTERS: letters, ANSWERS: calibrated}
        begun.written |= {f"{WRITTEN[label]}/{n}": offset for label, offset in begins.items()}
        begun.sources |= {
            f"{topic}/{number}": offset
            for topic, number, offset, topic_id in loaded.upstream.sources
            if topic in there and there[topic].id == topic_id
        }
    return begun
