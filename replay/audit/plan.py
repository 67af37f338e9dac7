"""What there is to follow from the sources on: the topics of a group, and of the groups that it was made of."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import orjson
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from replay import moves
from replay.audit import begun as checkpoints
from replay.audit import groups
from replay.audit.begun import Begun
from replay.audit.intake_verifier import ANSWERS, FORECASTS, LABELS, LETTERS, MADE, ROUTES, SourceSpan
from replay.audit.output_matcher import Unauditable
from replay.audit.reader import PartitionReader
from replay.audit.router_verifier import RouterSpan
from replay.moves import Move, Upstream
from streams.config import in_force
from streams.config.in_force import InForceError, Mapped
from streams.config.settings import Settings
from streams.kafka import provenance
from streams.kafka import topics as kafka_topics
from streams.kafka.whole_topics import batches
from streams.sources.fields import FORECAST

#: The topics that the first pass reads, by their labels.
WRITTEN: Final = (*MADE, "outcomes")
OUTCOMES: Final = len(MADE)


@dataclass(frozen=True)
class Plan:
    """What there is to follow, as it was when the audit began.

    Attributes
    ----------
    settings
        Of the workers.
    partitions
        How many each topic of trueup's has.
    written
        By label and partition of what intake and router have written: the first offset kept, and the end.
    sources
        What there is of each source partition.
    routers
        What there is of each partition of the router.
    ids
        Of each source topic its id.
    widths
        Of each topic that intake writes its number of partitions.
    strict
        Labels of the topics in which every record must be of intake, or of the router.
    stamped
        Labels of the topics whose records keep the Kafka timestamp of what they were made of.
    told
        By partition the first offset and the end of what is in force; empty where there is no such topic.
    mapped
        By source topic and partition what intakes have written down: from which offset on, and the hash of what.
    files
        The settings that such a hash stands for.
    begun
        How far earlier audits of the sources have come.
    of
        What a checkpoint of it is of.
    rows
        Directory of the rows that ``begun`` names.
    leaves
        Directory for the rows that the routers end with; None if they are not needed.
    until
        How the group was moved; None if it was not.
    """

    settings: Settings
    partitions: int
    written: dict[tuple[int, int], tuple[int, int]]
    sources: list[SourceSpan]
    routers: list[RouterSpan]
    ids: dict[str, str]
    widths: dict[str, int]
    strict: frozenset[int]
    stamped: frozenset[int]
    told: dict[int, tuple[int, int]]
    mapped: dict[tuple[str, int], list[tuple[int, str]]] = field(default_factory=dict)
    files: dict[str, Settings] = field(default_factory=dict)
    begun: Begun = field(default_factory=Begun)
    of: dict[str, Any] = field(default_factory=dict)
    rows: Path | None = None
    leaves: Path | None = None
    until: Move | None = None

    @property
    def answering(self) -> bool:
        """Whether any mapping answers dead forecasts."""
        return any(each.policies.answering for each in (self.settings, *self.files.values()))

    def since(self, label: int, partition: int) -> int:
        """Return the first offset of what intake has written that no earlier audit has read."""
        return self.begun.written.get(f"{WRITTEN[label]}/{partition}", 0)

    def name(self, label: int) -> str:
        """Return the topic of a label of `WRITTEN`."""
        name: str = getattr(self.settings, WRITTEN[label].replace("-", "_"))
        return name

    def place(self, label: int, partition: int) -> TopicPartition:
        """Return a partition of a topic of `WRITTEN`."""
        return TopicPartition(self.name(label), partition)


def chain(settings: Settings, runner: asyncio.Runner, checkpoint: Path | None = None) -> list[Plan]:
    """Return what there is to follow of each group, the oldest first; the last one is that of the settings.

    Parameters
    ----------
    checkpoint
        Directory of checkpoints: a directory in it for each group, by its application id.

    Raises
    ------
    Unauditable
        As `replay.audit.follower.follow`, and if the topics of a group before are not there any more.
    """
    found: list[Plan] = []
    here, until = settings, None
    while True:
        directory = None if checkpoint is None else checkpoint / here.app_id
        resumed = directory is not None and (directory / checkpoints.NAME).exists()
        began = None if resumed else _began(here, runner)
        plan = runner.run(planned(here, directory, began, until))
        if until is None and directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            plan = replace(plan, leaves=directory)
        found.append(plan)
        if began is None:
            return found[::-1]
        if any(each.settings.app_id == began.app for each in found):
            raise Unauditable(f"{here.app_id} began with rows of {began.app}, which began with rows of it")
        newer, until = here, began
        for_intake = {mode.source.name for mode in settings.modes if not mode.direct}
        sources = tuple(each for each in settings.sources if each.name in for_intake)
        here = replace(groups.older(newer, began), sources=sources)
        named = {label: began.topics[label] for label in moves.LABELS} | dict(_upstream(newer, began).topics)
        runner.run(groups.require_there(here, named, newer, "--sources and --checkpoint"))


def _began(settings: Settings, runner: asyncio.Runner) -> Move | None:
    """Return how a group's rows came about; None if it began with none."""
    count = runner.run(kafka_topics.partitions(settings, settings.configurations))
    places = [TopicPartition(settings.configurations, n) for n in range(count or 0)]
    first, ends = runner.run(_kept(settings, places))
    found = groups.moved(settings, {place.partition: (first[place], ends[place]) for place in places}, runner)
    return found[0] if found else None


def _upstream(settings: Settings, move: Move) -> Upstream:
    if move.upstream is None:
        raise Unauditable(
            f"{settings.app_id} began with rows that 'trueup state rescale' made of {move.app}, and it was not written "
            f"down how far intake and router had come: an earlier version made them, or there was no router. Audit "
            f"{move.app} with --sources to its end, and {settings.app_id} without"
        )
    return move.upstream


async def planned(
    settings: Settings, checkpoint: Path | None = None, began: Move | None = None, until: Move | None = None
) -> Plan:
    """Return what there is to follow of one group; raises as `replay.audit.follower.follow`.

    Parameters
    ----------
    checkpoint
        Directory in which an earlier audit has left how far it came; None: it begins with nothing.
    began
        How its rows came about; None if they came from nothing, or an earlier audit has begun with them.
    until
        How it was moved; None if it was not.
    """
    if all(mode.direct for mode in settings.modes):
        raise Unauditable("no source is for intake: the answers' own audit follows every record there is")
    names = [getattr(settings, label.replace("-", "_")) for label in WRITTEN]
    own = await _identities(settings, names)
    if until is not None:  # topics may have grown since
        own = [each._replace(partitions=len(until.fences)) for each in own]
    partitions = own[0].partitions
    of = {
        "application": settings.app_id,
        "partitions": partitions,
        "topics": [[name, each.id] for name, each in zip(names, own, strict=True)],
    }
    begun = Begun() if checkpoint is None else checkpoints.read(checkpoint, of)
    there = await _sources(settings, begun)
    if began is not None:
        begun = _begun(settings, began, there)
    topics = list(there)
    widths = [each.partitions for each in own]
    if len(set(widths)) > 1:
        raise Unauditable(f"the topics do not have equally many partitions: {dict(zip(names, widths, strict=True))}")
    places = {label: [TopicPartition(name, n) for n in range(partitions)] for label, name in enumerate(names)}
    running = [TopicPartition(settings.configurations, n) for n in range(partitions)]
    if await kafka_topics.partitions(settings, settings.configurations) != partitions:
        running = []
    configured = await kafka_topics.configs(settings, [*topics, *names])
    journal = [TopicPartition(settings.router.journal, n) for n in range(partitions)]
    if await kafka_topics.partitions(settings, settings.router.journal) != partitions:
        raise Unauditable(f"there is no topic {settings.router.journal} of {partitions} partitions")
    first, ends, committed = await _offsets(settings, until, places, [*journal, *running], there)
    told = {place.partition: (first[place], ends[place]) for place in running}
    written = {(label, at.partition): (first[at], ends[at]) for label, each in places.items() for at in each}
    mapped, files = await _mappings(settings, there)
    modes = [mode for each in (settings, *files.values()) for mode in each.modes if not mode.direct]
    forecasts = any(mode.source.role == FORECAST for mode in modes)
    labels = any(mode.source.role != FORECAST for mode in modes)
    numbers = list(dict.fromkeys([*begun.ids, *topics]))
    sources = []
    for at, (offset, noted) in committed.items():
        if offset and noted and noted != there[at.topic].id:
            raise Unauditable(
                f"intake has committed offset {offset} of another topic {at.topic}: it was deleted and made anew"
            )
        number = numbers.index(at.topic)
        compacted = "compact" in configured.get(at.topic, {}).get("cleanup.policy", "compact")
        since, moved = begun.sources.get(f"{at.topic}/{at.partition}", 0), until is not None
        span = SourceSpan(at.topic, number, at.partition, first[at], offset, ends[at], compacted, since, moved)
        sources.append(span)
    cuts = {
        (label, n) for (label, n), (kept, _) in written.items() if kept > begun.written.get(f"{WRITTEN[label]}/{n}", 0)
    }
    cut = any(label == OUTCOMES for label, _ in cuts)
    routers = [
        replace(_router_span(inputs, first, ends, begun), outcomes_cut=cut, letters_cut=(LETTERS, n) in cuts)
        for n, inputs in enumerate(zip(places[ROUTES], places[LABELS], journal, strict=True))
    ]
    strict = {ROUTES, LABELS} | ({FORECASTS} if forecasts else set()) | ({OUTCOMES} if labels else set())
    return Plan(
        settings,
        partitions,
        written,
        sources,
        routers,
        {topic: each.id for topic, each in there.items()},
        dict(zip(MADE, widths, strict=False)),
        frozenset(strict),
        frozenset(
            label
            for label, name in enumerate(names)
            if label not in (LETTERS, ANSWERS)
            and configured.get(name, {}).get("message.timestamp.type") != "LogAppendTime"
        ),
        told,
        mapped,
        files,
        begun,
        of,
        checkpoint,
        until=until,
    )


async def _offsets(
    settings: Settings,
    until: Move | None,
    places: Mapping[int, list[TopicPartition]],
    told: list[TopicPartition],
    there: Mapping[str, provenance.Identity],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, tuple[int, str]]]:
    """Return the first offsets kept, the ends, and what intake has committed.

    Of a group that was moved this is what was written down then, as far as it ran: its offsets are not kept for ever.
    """
    of_sources = [TopicPartition(topic, n) for topic, each in there.items() for n in range(each.partitions)]
    if until is None:
        committed = await _committed(settings, settings.intake_group, of_sources)
    # The last topic first: each record that is read then has what it was made of, and each entry what it led to.
    order = [place for label in (OUTCOMES, LETTERS, ANSWERS, ROUTES, LABELS, FORECASTS) for place in places[label]]
    first, ends = await _kept(settings, [*told, *order, *of_sources])
    if until is not None:
        ends |= _until(settings, until)
        read = _read(_upstream(settings, until), there)
        committed = {place: (read.get(place, 0), "") for place in of_sources}
    return first, ends, committed


def _begun(settings: Settings, move: Move, there: Mapping[str, provenance.Identity]) -> Begun:
    """Return with what a group begins that was made of another one, but for the rows of its router."""
    upstream = _upstream(settings, move)
    written: dict[str, int] = {}
    for n, (forecasts, outcomes) in enumerate(upstream.since):
        calibrated, _, letters = move.since[n]
        begins = {FORECASTS: forecasts, OUTCOMES: outcomes, LETTERS: letters, ANSWERS: calibrated}
        written |= {f"{WRITTEN[label]}/{n}": offset for label, offset in begins.items()}
    read = {f"{place.topic}/{place.partition}": offset for place, offset in _read(upstream, there).items()}
    return Begun(sources=read, written=written)


def _read(upstream: Upstream, there: Mapping[str, provenance.Identity]) -> dict[TopicPartition, int]:
    """Return how far intake of a group that was moved had read the sources that are still there."""
    return {
        TopicPartition(topic, n): offset
        for topic, n, offset, topic_id in upstream.sources
        if topic in there and there[topic].id == topic_id
    }


def _until(settings: Settings, move: Move) -> dict[TopicPartition, int]:
    """Return where the topics of a group ended that intake and router had written, when it was moved."""
    upstream, ends = _upstream(settings, move), {}
    for n, ((forecasts, outcomes), (_, routes, labels)) in enumerate(zip(upstream.ends, upstream.fences, strict=True)):
        calibrated, _, letters = move.outputs[n]
        for name, end in (
            (settings.forecasts, forecasts),
            (settings.outcomes, outcomes),
            (settings.routes, routes),
            (settings.labels, labels),
            (settings.calibrated, calibrated),
            (settings.dead_letters, letters),
        ):
            ends[TopicPartition(name, n)] = end
    return ends


async def _sources(settings: Settings, begun: Begun) -> dict[str, provenance.Identity]:
    """Return the source topics of the streams file, and those that intakes have mapped and that are still there."""
    topics = list(dict.fromkeys(mode.topic for mode in settings.modes if not mode.direct))
    there = dict(zip(topics, await _identities(settings, topics), strict=True))
    if not all(each.id for each in there.values()):
        raise Unauditable(
            "the brokers give topics no ids, so records do not name their sources: Kafka 2.8 and later do"
        )
    for topic, topic_id in {each.topic: each.topic_id for each in await _written_down(settings)}.items():
        if topic not in there and await kafka_topics.partitions(settings, topic) is not None:
            (found,) = await _identities(settings, [topic])
            if found.id == topic_id:
                there[topic] = found
    for topic, topic_id in begun.ids.items():
        if topic in there and there[topic].id != topic_id:
            raise Unauditable(f"the checkpoint is of another topic {topic}: it was deleted and made anew")
    return there


async def _written_down(settings: Settings) -> list[Mapped]:
    """Return what intakes have written down of their mappings."""
    if await kafka_topics.partitions(settings, settings.configurations) is None:
        return []
    found = [
        (record.key, record.value)
        async for _, records in batches(settings, [settings.configurations])
        for record in records
    ]
    try:
        return in_force.read_mapped(found)
    except InForceError as exc:
        raise Unauditable(f"{settings.configurations}: {exc}") from exc


async def _mappings(
    settings: Settings, there: Mapping[str, provenance.Identity]
) -> tuple[dict[tuple[str, int], list[tuple[int, str]]], dict[str, Settings]]:
    """Return the mappings of source partitions, and the settings that they name."""
    mapped: dict[tuple[str, int], list[tuple[int, str]]] = {}
    files: dict[str, Settings] = {}
    for each in await _written_down(settings):
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


async def _identities(settings: Settings, names: list[str]) -> list[provenance.Identity]:
    client = AIOKafkaClient(bootstrap_servers=",".join(settings.brokers), **settings.security.client_options())
    try:
        await client.bootstrap()
        return [await provenance.identity(client, name) for name in names]
    finally:
        await client.close()


async def _kept(
    settings: Settings, places: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the first offset kept of each partition, and its end; the ends are asked for one after another."""
    reader = PartitionReader(settings)
    await reader.start()
    try:
        ends: dict[TopicPartition, int] = {}
        for _, each in groupby(places, attrgetter("topic")):
            ends |= await reader.ends(list(each))
        return await reader.beginnings(places), ends
    finally:
        await reader.stop()


def _router_span(
    places: tuple[TopicPartition, TopicPartition, TopicPartition],
    first: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    begun: Begun,
) -> RouterSpan:
    routes, labels, journal = places
    rows = begun.routers.get(str(routes.partition))
    return RouterSpan(
        routes.partition,
        (first[routes], first[labels]),
        (ends[routes], ends[labels]),
        (first[journal], ends[journal]),
        begin=(0, 0) if rows is None else (rows.routes, rows.labels),
    )


async def _committed(
    settings: Settings, group: str, places: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, str]]:
    """Return what a group has committed: the offset, and the id of the topic that intake has noted beside it."""
    options = settings.security.client_options()
    admin = AIOKafkaAdminClient(bootstrap_servers=",".join(settings.brokers), **options)
    await admin.start()
    try:
        stored = await admin.list_consumer_group_offsets(group, partitions=places)
    finally:
        await admin.close()
    found = {}
    for place in places:
        offset, noted = stored.get(place, (-1, ""))
        try:
            topic_id = str(orjson.loads(noted)["id"])
        except (ValueError, KeyError, TypeError):
            topic_id = ""
        found[place] = max(offset, 0), topic_id
    return found
