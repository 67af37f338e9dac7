"""Every record followed from its source: through intake and the router, up to where the worker's audit begins.

Two passes, each in as many processes as there are processors. The first reads, partition by partition, what intake and
router have written, and keeps of each record where it stands, what it was made of and a hash, sorted on disk. The
second reads the sources and the router's inputs, makes everything again, and meets the first one's entries in order.
So memory does not grow with the topics, but for the router's state.
"""

import asyncio
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import count, groupby
from multiprocessing import get_context
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final, NamedTuple

import orjson
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from agents import compiled
from agents.intake import Intake
from replay.audit import begun as checkpoints
from replay.audit import entries, intake_verifier, router_verifier
from replay.audit.begun import Begun, Rows
from replay.audit.disk_rows import Disk
from replay.audit.entries import Entries, digest
from replay.audit.intake_verifier import (
    ANSWERS,
    LETTERS,
    MADE,
    NAMED,
    Followed,
    Found,
    IntakeVerifier,
    Made,
    SourceSpan,
)
from replay.audit.output_matcher import OutputDifference, Unauditable
from replay.audit.partition_verifier import Memory, RowStore
from replay.audit.reader import PartitionReader, Span
from replay.audit.router_verifier import RouterSpan, RouterTerms, RouterVerifier, Sent
from state.events import Rejected
from state.fence import FORECASTS
from streams.config import in_force
from streams.config.in_force import InForceError, Mapped
from streams.config.settings import Settings
from streams.kafka import partitioner, provenance
from streams.kafka import topics as kafka_topics
from streams.kafka.whole_topics import batches
from streams.metrics.routing import IntakeGauges
from streams.records import skips
from streams.records.encoding import encode, key_of
from streams.records.making import Making
from streams.records.merge import NEVER, KafkaRecord
from streams.records.output_values import OutputValues
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


class Gathered(NamedTuple):
    """What the first pass found of one partition of every topic.

    Attributes
    ----------
    cuts
        By label and partition, of topics whose first records were deleted: by source partition the first offset named.
    unread
        Records that were made of topics that are not there any more.
    differences, more
        Records that neither intake nor router has written; how many further ones there are.
    skipped
        What an operator left out of routes and labels: topic, partition, offset and why.
    """

    cuts: dict[tuple[int, int], dict[tuple[str, int], int]]
    unread: int
    differences: list[OutputDifference]
    more: int
    skipped: list[tuple[str, int, int, str]]


@dataclass
class Account:
    """What following the records has found."""

    sources: Followed = field(default_factory=Followed)
    router: Sent = field(default_factory=Sent)
    labels: dict[str, int] = field(default_factory=dict)
    differences: list[OutputDifference] = field(default_factory=list)
    unable: list[str] = field(default_factory=list)
    by_source: dict[str, Followed] = field(default_factory=dict)
    seconds: float = 0.0

    def shown(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "sources": asdict(self.sources),
            "router": asdict(self.router),
            "routed": self.labels,
            "source_partitions": {name: asdict(each) for name, each in self.by_source.items()},
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.sources.records / self.seconds) if self.seconds else 0,
        }


def follow(
    settings: Settings,
    *,
    disk: bool = False,
    checkpoint: Path | None = None,
    told: Callable[[int, int], None] = lambda *_: None,
) -> Account:
    """Follow every record from its source to the worker's inputs.

    Parameters
    ----------
    settings
        Of the workers, with the sources.
    disk
        Keep the router's derived state in a temporary RocksDB instead of memory.
    checkpoint
        Directory in which earlier audits have left how far they came with the sources: this one goes on from there, and
        leaves the same if nothing differs.
    told
        Called with how many partitions were followed, and how many there are.

    Raises
    ------
    Unauditable
        If no source is for intake, or the topics do not fit together.
    KafkaError, TopicsError, OSError
        If they cannot be read.
    """
    began = monotonic()
    # A copy without the TLS context, which no other process can be given.
    settings = replace(settings, security=replace(settings.security))
    with asyncio.Runner() as runner:
        plan = runner.run(planned(settings, checkpoint))
    account, left = Account(), Begun(plan.begun.ids | plan.ids)
    with (
        TemporaryDirectory(prefix="trueup-audit-") as directory,
        compiled.handed_on(),
        ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool,
    ):
        at = Path(directory)
        total, done = plan.partitions + len(plan.sources) + len(plan.routers), count(1)

        def finished(_: object) -> None:
            told(next(done), total)

        reading = [pool.submit(_gather, plan, n, at) for n in range(plan.partitions)]
        for each in reading:
            each.add_done_callback(finished)
        gathered = [each.result() for each in reading]
        cuts = {place: firsts for found in gathered for place, firsts in found.cuts.items()}
        for found in gathered:
            account.differences += found.differences
            account.sources.differences += len(found.differences) + found.more
            account.sources.unread += found.unread
        with closing(Entries(at / "left")) as file:
            for key, value in plan.begun.left:
                file.put(key, value)
        followed = [pool.submit(_follow, plan, span, at, cuts) for span in plan.sources]
        skipped = [each for found in gathered for each in found.skipped]
        routed = [pool.submit(_route, plan, span, at, skipped, disk, checkpoint) for span in plan.routers]
        for one in followed:
            one.add_done_callback(finished)
        for other in routed:
            other.add_done_callback(finished)
        for span, source in zip(plan.sources, followed, strict=True):
            made, differences, waiting = source.result()
            left.sources[str(span)] = max(span.begin, span.committed)
            left.left += waiting
            account.by_source[str(span)] = made
            _add(account.sources, made)
            account.differences += differences
        for sent_by, router in zip(plan.routers, routed, strict=True):
            sent, differences, fates, waiting, rows = router.result()
            left.left += waiting
            if rows is not None:
                left.routers[str(sent_by.partition)] = rows
            _add(account.router, sent)
            account.labels = {name: account.labels.get(name, 0) + n for name, n in fates.items()}
            account.differences += differences
    if checkpoint is not None:
        agrees = not account.sources.differences and not account.router.differences
        if agrees:
            left.written = {f"{WRITTEN[label]}/{n}": end for (label, n), (_, end) in plan.written.items()}
            checkpoints.write(checkpoint, plan.of, left)
        checkpoints.tidy(checkpoint, left if agrees else plan.begun)
    account.unable += _unjudged(plan, account)
    account.seconds = monotonic() - began
    return account


def _unjudged(plan: Plan, account: Account) -> list[str]:
    """Return what could not be judged, one sentence each."""
    found = []
    for span in plan.sources:
        gone = account.by_source[str(span)].gone
        if gone:
            said = f", which begins at offset {span.first}" if span.first else ""
            found.append(
                f"{gone:,} records of {span}{said}: not there any more, or what was made of them is not; see "
                "'Retention has taken records' in docs/runbook.md"
            )
    if account.sources.unread:
        found.append(
            f"{account.sources.unread:,} records were made of source topics that are not there any more, or that the "
            "streams file does not name: audit with the file that did"
        )
    router = account.router
    if router.gone:
        found.append(f"{router.gone:,} events of the router: records of them are not there any more")
    if router.unjudged:
        found.append(
            f"{router.unjudged:,} events may have left the router before their label came: their times do not tell, "
            "see 'Events that may have left' in docs/runbook.md"
        )
    return found


def _add(total: Any, one: Any) -> None:  # noqa: ANN401 - counts of one kind
    """Add counts to counts."""
    for each in fields(one):
        setattr(total, each.name, getattr(total, each.name) + getattr(one, each.name))


# -- what there is ---------------------------------------------------------------------------------------------------


async def planned(settings: Settings, checkpoint: Path | None = None) -> Plan:
    """Return what there is to follow; raises as `follow`."""
    if all(mode.direct for mode in settings.modes):
        raise Unauditable("no source is for intake: the answers' own audit follows every record there is")
    names = [getattr(settings, label.replace("-", "_")) for label in WRITTEN]
    own = await _identities(settings, names)
    partitions = own[0].partitions
    of = {
        "application": settings.app_id,
        "partitions": partitions,
        "topics": [[name, each.id] for name, each in zip(names, own, strict=True)],
    }
    begun = Begun() if checkpoint is None else checkpoints.read(checkpoint, of)
    there = await _sources(settings, begun)
    topics = list(there)
    widths = [each.partitions for each in own]
    if len(set(widths)) > 1:
        raise Unauditable(f"the topics do not have equally many partitions: {dict(zip(names, widths, strict=True))}")
    of_sources = [TopicPartition(topic, n) for topic, each in there.items() for n in range(each.partitions)]
    of_router = [TopicPartition(name, n) for name in (settings.routes, settings.labels) for n in range(partitions)]
    committed = await _committed(settings, f"{settings.app_id}-intake", of_sources)
    settled = await _committed(settings, settings.router.app_id, of_router)
    configured = await kafka_topics.configs(settings, [*topics, *names])
    # The last topic first: each record that is read then has what it was made of.
    order = [
        TopicPartition(names[label], n) for label in (OUTCOMES, LETTERS, ANSWERS, 1, 2, 0) for n in range(partitions)
    ]
    running = [TopicPartition(settings.configurations, n) for n in range(partitions)]
    if await kafka_topics.partitions(settings, settings.configurations) != partitions:
        running = []
    first, ends = await _kept(settings, [*order, *of_sources, *running])
    told = {place.partition: (first[place], ends[place]) for place in running}
    written = {
        (label, n): (first[place], ends[place])
        for label, name in enumerate(names)
        for n in range(partitions)
        if (place := TopicPartition(name, n))
    }
    mapped, files = await _mappings(settings, there)
    modes = [mode for each in (settings, *files.values()) for mode in each.modes if not mode.direct]
    forecasts = any(mode.source.role == FORECAST for mode in modes)
    labels = any(mode.source.role != FORECAST for mode in modes)
    numbers = list(dict.fromkeys([*begun.ids, *topics]))
    sources = []
    for place in of_sources:
        offset, noted = committed[place]
        if offset and noted and noted != there[place.topic].id:
            raise Unauditable(
                f"intake has committed offset {offset} of another topic {place.topic}: it was deleted and made anew"
            )
        number = numbers.index(place.topic)
        compacted = "compact" in configured.get(place.topic, {}).get("cleanup.policy", "compact")
        since = begun.sources.get(f"{place.topic}/{place.partition}", 0)
        span = SourceSpan(place.topic, number, place.partition, first[place], offset, ends[place], compacted, since)
        sources.append(span)
    cuts = {
        (label, n) for (label, n), (kept, _) in written.items() if kept > begun.written.get(f"{WRITTEN[label]}/{n}", 0)
    }
    cut = any(label == OUTCOMES for label, _ in cuts)
    inputs = [(of_router[n], of_router[n + partitions]) for n in range(partitions)]
    routers = [
        replace(_router_span(places, first, settled, ends, begun), outcomes_cut=cut, letters_cut=(LETTERS, n) in cuts)
        for n, places in enumerate(inputs)
    ]
    strict = {1, 2} | ({0} if forecasts else set()) | ({OUTCOMES} if labels else set())
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
    )


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
    places: tuple[TopicPartition, TopicPartition],
    first: Mapping[TopicPartition, int],
    settled: Mapping[TopicPartition, tuple[int, str]],
    ends: Mapping[TopicPartition, int],
    begun: Begun,
) -> RouterSpan:
    routes, labels = places
    rows = begun.routers.get(str(routes.partition))
    begin = (0, 0) if rows is None else (rows.routes, rows.labels)
    committed = settled[routes][0], settled[labels][0]
    return RouterSpan(
        routes.partition, (first[routes], first[labels]), committed, (ends[routes], ends[labels]), begin=begin
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


# -- the first pass --------------------------------------------------------------------------------------------------


def _gather(plan: Plan, partition: int, at: Path) -> Gathered:
    """Read one partition of everything that intake and router have written, and leave its entries."""
    with ExitStack() as stack:
        reader = _reader(plan, stack)
        if partition in plan.told:
            move = reader.move(partition, Span({}, {}, (0, 0), plan.told[partition]))
            if move is not None:
                raise Unauditable(
                    f"partition {partition} of {plan.settings.app_id} began with rows that 'trueup rescale' made of "
                    f"{move.app}: what its router knew then does not follow from its topics. Audit {move.app} with "
                    f"--sources to its end, and {plan.settings.app_id} without"
                )
        gatherer = Gatherer(plan, partition)
        file = stack.enter_context(closing(Entries(at / f"written-{partition}")))
        for label in range(len(WRITTEN)):
            if label == ANSWERS and not plan.answering:
                continue
            first, end = plan.written[label, partition]
            first = max(first, plan.since(label, partition))
            (records,) = reader.stretches({plan.place(label, partition): (first, end)})
            for key, value in gatherer.of(label, records):
                file.put(key, value)
        return gatherer.found


class Gatherer:
    """Turns what intake and router have written into entries."""

    def __init__(self, plan: Plan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._numbers = {span.topic: span.number for span in plan.sources}
        #: Of each id the topic.
        self._named = {topic_id: topic for topic, topic_id in plan.ids.items()}
        self._places: dict[str, tuple[str, int] | None] = {}
        self._routed = {plan.settings.routes: 0, plan.settings.labels: 1}
        self._own = {plan.settings.forecasts, plan.settings.outcomes}
        self._values = OutputValues(plan.settings.registry)
        self.found = Gathered({}, 0, [], 0, [])

    def of(self, label: int, records: Iterable[KafkaRecord]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of one topic."""
        firsts: dict[tuple[str, int], int] = {}
        for record in records:
            try:
                made = self._outcome(record) if label == OUTCOMES else self._made(label, record, firsts)
            except (ValueError, KeyError, TypeError):
                made = None
                if label in self._plan.strict:
                    self._foreign(label, record)
            if made is not None:
                yield made
        if self._plan.written[label, self._partition][0] > self._plan.since(label, self._partition):
            self.found.cuts[label, self._partition] = firsts

    def _made(self, label: int, record: KafkaRecord, firsts: dict[tuple[str, int], int]) -> tuple[bytes, bytes] | None:
        value = record.value or b""
        if label == ANSWERS:
            found = self._raw_answer(value)
            if found is None:
                return None
            read, value = found
        else:
            read = orjson.loads(value)
        if label in (LETTERS, ANSWERS):
            letter = read if label == LETTERS else read["dead_letter"]
            topic, number, offset = letter["topic"], letter["partition"], letter["offset"]
            if label == LETTERS and topic in self._routed:
                left_out = skips.of_dead_letter(value)
                if left_out is not None:
                    self.found.skipped.append(left_out)
                said = digest(self._partition, record.key, value, None, record.headers)
                return router_verifier.letter_entry(self._partition, self._routed[topic], offset, record.offset, said)
            place = (topic, number) if topic in self._numbers else None
            if place is None:
                self.found = self.found._replace(unread=self.found.unread + (topic not in self._own))
            stamp = None
        else:
            name, offset = read["origin"]
            place, stamp = self._source(name), self._stamp(label, record)
            if place is None:
                self.found = self.found._replace(unread=self.found.unread + 1)
        if place is None:
            return None
        if type(offset) is not int or not 0 <= offset < 1 << 63 or type(place[1]) is not int:
            raise ValueError(offset)
        firsts[place] = min(offset, firsts.get(place, offset))
        said = digest(self._partition, record.key, value, stamp, record.headers)
        entry = Found(label, self._partition, record.offset, said)
        return intake_verifier.entry(self._numbers[place[0]], place[1], offset, entry)

    def _raw_answer(self, value: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Return a raw answer, and its value without the id of a schema; None of all other answers."""
        if value[:1] != b"\0":
            return (orjson.loads(value), value) if b'"calibrated":false' in value else None
        read = self._values.fields(value)
        return (read, self._values.bare(value)) if read.get("calibrated") is False else None

    def _stamp(self, label: int, record: KafkaRecord) -> int | None:
        """Return the Kafka timestamp of a record where it is that of what it was made of."""
        return max(0, record.timestamp) if label in self._plan.stamped else None

    def _source(self, name: str) -> tuple[str, int] | None:
        """Return topic and partition that an origin names; None if that topic is not there any more."""
        if name not in self._places:
            _, _, rest = name.rpartition("@")
            topic_id, _, partition = rest.partition("/")
            topic = self._named.get(topic_id)
            self._places[name] = None if topic is None else (topic, int(partition))
        return self._places[name]

    def _outcome(self, record: KafkaRecord) -> tuple[bytes, bytes] | None:
        if OUTCOMES not in self._plan.strict:
            return None
        value = record.value or b""
        read = orjson.loads(value)
        event_id, stream, number = read["event_id"], read["scope"], read["revision"]
        if "\0" in event_id or "\0" in stream or not 0 < number < 1 << 32:
            raise ValueError(event_id)
        said = digest(self._partition, record.key, value, self._stamp(OUTCOMES, record), record.headers)
        router = partitioner.partition(event_id.encode(), self._plan.partitions)
        found = router_verifier.Found(event_id, stream, number, said, self._partition, record.offset)
        return router_verifier.outcome_entry(router, found)

    def _foreign(self, label: int, record: KafkaRecord) -> None:
        who = "the router" if label == OUTCOMES else "intake"
        if len(self.found.differences) >= NAMED:
            self.found = self.found._replace(more=self.found.more + 1)
            return
        what = f"a record that {who} did not write: it names no source"
        self.found.differences.append(OutputDifference(self._partition, WRITTEN[label], record.offset, None, what))


# -- the second pass -------------------------------------------------------------------------------------------------


def _follow(
    plan: Plan, span: SourceSpan, at: Path, cuts: Mapping[tuple[int, int], Mapping[tuple[str, int], int]]
) -> tuple[Followed, list[OutputDifference], list[tuple[bytes, bytes]]]:
    """Map one source partition again, and meet what was made of it; the last are entries of what is not judged yet."""
    place = TopicPartition(span.topic, span.partition)
    with ExitStack() as stack:
        reader = _reader(plan, stack)
        mapper = Mapper(plan, span, _runner(stack))
        cut = {where: firsts.get((span.topic, span.partition)) for where, firsts in cuts.items()}
        served = _Served(plan, stack)
        compare = OutputValues(plan.settings.registry).compared
        earlier = partial(served.earlier, span)
        verifier = IntakeVerifier(
            span, mapper.make, cut, mapper.unknown_schema, served, compare, earlier, mapper.recorded, mapper.before
        )
        first = max(span.first, span.begin)
        (records,) = reader.stretches({place: (first, max(span.end, first))}, plan.settings.unpacked_bytes)
        found = entries.read(_written(plan, at), intake_verifier.prefix(span.number, span.partition))
        for _ in verifier.run(records, found):
            pass
        return verifier.checked, verifier.differences, verifier.left


class Mapper:
    """Makes what intake makes of the records of one source partition, by what it ran when it did.

    What intake has not written down is mapped by the streams file that is given.
    """

    def __init__(self, plan: Plan, span: SourceSpan, runner: asyncio.Runner) -> None:
        known = plan.mapped.get((span.topic, span.partition), [])
        self._since = [since for since, _ in known]
        self._names = ["", *(name for _, name in known)]
        self._mappings = [_Mapping(plan, under, span, runner) for under in (None, *(name for _, name in known))]

    def _at(self, offset: int) -> int:
        return bisect_right(self._since, offset)

    def recorded(self, offset: int) -> bool:
        """Whether intake has written down what it ran when it mapped the record at an offset."""
        return self._at(offset) > 0

    def shown(self, offset: int) -> str:
        """Return what people are told of the mapping of the record at an offset."""
        at = self._at(offset)
        if at:
            return f"mapping {self._names[at][:8]}, in force from offset {self._since[at - 1]} on"
        return "the streams file given: intake has not written down what was in force"

    def make(self, record: KafkaRecord, now: int) -> list[Made]:
        """Return what a record becomes at a time, ms."""
        return self._mappings[self._at(record.offset)].make(record, now)

    def before(self, record: KafkaRecord) -> list[Made]:
        """Return what a record becomes by the mapping before; nothing where there is none."""
        at = self._at(record.offset)
        return self._mappings[at - 1].make(record, NEVER) if at > 1 else []

    def unknown_schema(self, record: KafkaRecord) -> list[Made]:
        """Return the dead letter of a record whose schema the registry does not have."""
        return self._mappings[self._at(record.offset)].unknown_schema(record)


class _Mapping:
    """The same by one streams file; ``under`` is its hash, None for the one that is given."""

    def __init__(self, plan: Plan, under: str | None, span: SourceSpan, runner: asyncio.Runner) -> None:
        settings = plan.settings if under is None else plan.files[under]
        names = dict.fromkeys(mode.source.name for mode in settings.modes)
        self._intake = Intake(settings, IntakeGauges("", names, list))
        self._intake.know(plan.widths, plan.ids)
        self._place = TopicPartition(span.topic, span.partition)
        self._runner = runner
        self._readers = self._intake.readers[span.topic]
        self._unstamped = set(range(LETTERS)) - plan.stamped

    def make(self, record: KafkaRecord, now: int) -> list[Made]:
        lacking = {schema for reader in self._readers for schema in reader.lacking(record)}
        if lacking:
            self._runner.run(self._intake.schemas.load(lacking))
        made = intake_verifier.made(self._intake.make([(self._place, record)], now))
        if self._unstamped:
            return [one.unstamped() if one.label in self._unstamped else one for one in made]
        return made

    def unknown_schema(self, record: KafkaRecord) -> list[Made]:
        making = Making()
        rejected = Rejected(record.offset, record.key, record.value, FORECASTS, "schema")
        self._intake.maker.reject(making, self._place, rejected)
        return intake_verifier.made(making)


def _route(
    plan: Plan,
    span: RouterSpan,
    at: Path,
    skipped: list[tuple[str, int, int, str]],
    disk: bool,  # noqa: FBT001 - of a process
    checkpoint: Path | None,
) -> tuple[Sent, list[OutputDifference], dict[str, int], list[tuple[bytes, bytes]], Rows | None]:
    """Derive what one partition of the router has sent, and meet it; the last two are for the next audit."""
    places = [TopicPartition(name, span.partition) for name in (plan.settings.routes, plan.settings.labels)]
    with ExitStack() as stack:
        reader = _reader(plan, stack)
        for topic, number, offset, why in skipped:
            reader.skipped.setdefault((topic, number), {})[offset] = why
        served = _Served(plan, stack)
        rows: RowStore = Memory()
        if disk:
            rows = Disk(Path(stack.enter_context(TemporaryDirectory(prefix="trueup-audit-"))))
        settings = plan.settings.router
        earlier = plan.begun.routers.get(str(span.partition))
        if checkpoint is not None and earlier is not None:
            checkpoints.read_rows(checkpoint, earlier, rows)
        firsts = [max(first, begin) for first, begin in zip(span.first, span.begin, strict=True)]
        written: list[Rows] = []

        def settled(rows: RowStore) -> None:
            if checkpoint is not None:
                written.append(checkpoints.write_rows(checkpoint, span.partition, rows))

        def read() -> list[Iterator[KafkaRecord]]:
            stretch = zip(firsts, map(max, firsts, span.end), strict=True)
            return reader.stretches(dict(zip(places, stretch, strict=True)), plan.settings.unpacked_bytes)

        def letter(rejected: Rejected) -> bytes:
            value = encode(rejected, settings, span.partition)[2]
            return digest(span.partition, key_of(rejected, settings), value, None, ())

        router = RouterVerifier(
            span,
            settings.policies,
            plan.partitions,
            letter,
            read,
            lambda partition, offset: served(OUTCOMES, partition, offset),
            rows,
            stamped=OUTCOMES in plan.stamped,
            terms=_terms(plan, reader, span),
        )
        derived = at / f"derived-{span.partition}"
        with closing(Entries(derived)) as file:
            for _ in router.derive(file.put, settled):
                pass
        for kind in (b"O", b"L"):
            prefix = router_verifier.prefix(kind, span.partition)
            router.compare(entries.read([derived], prefix), entries.read(_written(plan, at), prefix), kind)
        return router.checked, router.differences, router.fates, router.left, next(iter(written), None)


def _terms(plan: Plan, reader: PartitionReader, span: RouterSpan) -> list[RouterTerms]:
    """Return what routers have written down of what they ran."""
    told = plan.told.get(span.partition, (0, 0))
    found = []
    for each in reader.in_force(span.partition, Span({}, {}, (0, 0), told), in_force.ROUTER):
        try:
            found.append(RouterTerms(each.next, in_force.restored(each.configuration, plan.settings).policies))
        except InForceError as exc:
            raise Unauditable(f"{plan.settings.configurations}/{span.partition}: {exc}") from exc
    return found


class _Served:
    """Reads single records, by a client of its own."""

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        self._plan, self._stack = plan, stack
        self._reader: PartitionReader | None = None

    def __call__(self, label: int, partition: int, offset: int) -> KafkaRecord | None:
        """Return a record by its label in `WRITTEN`, its partition and its offset; None if it cannot be read."""
        try:
            return self._one(self._plan.place(label, partition), offset)
        except (KafkaError, Unauditable):
            return None

    def earlier(self, span: SourceSpan, offset: int) -> KafkaRecord | None:
        """Return a record of a source that an earlier audit has judged; None if it is not there any more."""
        return None if offset < span.first else self._one(TopicPartition(span.topic, span.partition), offset)

    def _one(self, place: TopicPartition, offset: int) -> KafkaRecord | None:
        if self._reader is None:
            self._reader = _reader(self._plan, self._stack)
        unpacked_bytes = self._plan.settings.unpacked_bytes
        (records,) = self._reader.stretches({place: (offset, offset + 1)}, unpacked_bytes)
        return next(records, None)


def _written(plan: Plan, at: Path) -> list[Path]:
    return [at / "left", *(at / f"written-{n}" for n in range(plan.partitions))]


def _runner(stack: ExitStack) -> asyncio.Runner:
    return stack.enter_context(asyncio.Runner())


def _reader(plan: Plan, stack: ExitStack) -> PartitionReader:
    runner = _runner(stack)
    reader = PartitionReader(plan.settings, runner)
    stack.callback(lambda: runner.run(reader.stop()))
    runner.run(reader.start())
    return reader
