"""The first rows of a group. Commands write them, workers go on from them, and audits begin with them.

The group must have no state. Until all partitions have their rows, each has a fence that no worker accepts (it stops
with `CorruptFrame`). So a command that dies halfway leaves no state that a worker would use.

These rows cannot be derived from the group's journal. So the topic of configurations keeps a copy, with a record of
what they were made from.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, Self

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from replay.moves import is_of_engine
from state import kinds
from state.fence import Fence
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust import offsets
from streams.faust.claims import Claims
from streams.kafka import groups, topics
from streams.kafka.topics import TopicsError
from streams.kafka.whole_topics import batches
from streams.kafka.writer import append, writer
from streams.records.skips import PoisonError

VERSION: Final = 3
#: Name that stands for the file of a snapshot, not for a table or records.
SNAPSHOT: Final = "snapshot"
#: Name that stands in place of a file if the rows come from a moved group.
GROUP: Final = "group"


@dataclass(frozen=True)
class Upstream:
    """Where an audit that begins at the sources starts in a partition of a moved group."""

    #: Next offsets of forecasts and of outcomes. Earlier records were written for the previous group.
    since: tuple[int, int]
    #: For each source partition that intake had read: topic, partition, next offset, and the topic's id.
    sources: tuple[tuple[str, int, int, str], ...]
    #: Number of the router's rows, in addition to those of the worker.
    routes: int

    @classmethod
    def of_json(cls, made: Mapping[str, Any]) -> Self:
        """Return an object from its JSON; raises ValueError, KeyError or TypeError if it is something else."""
        (first, second), sources = made["since"], tuple((topic, n, at, id_) for topic, n, at, id_ in made["sources"])
        return cls((first, second), sources, made["routes"])


@dataclass(frozen=True)
class Loaded:
    """What a partition began with."""

    #: Name, size and digest of each file; or name and offsets of each topic.
    files: Mapping[str, Any]
    #: Time of writing, ISO 8601, for people.
    at: str
    #: Number of rows.
    rows: int
    #: Topics of calibrated records, resolved records and dead letters; and their next offsets at that time.
    outputs: tuple[str, str, str]
    since: tuple[int, int, int]
    #: Only for a moved group with intake and router.
    upstream: Upstream | None = None

    def encode(self) -> bytes:
        """Return the record."""
        return orjson.dumps({"version": VERSION, **asdict(self)}, option=orjson.OPT_SORT_KEYS)

    def begins(self, outputs: Sequence[str]) -> tuple[int, int, int]:
        """Return the offsets from which the group wrote its outputs; 0 for a topic that the record does not name."""
        known = dict(zip(self.outputs, self.since, strict=True))
        first, second, third = (known.get(name, 0) for name in outputs)
        return first, second, third

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record; raises ValueError, KeyError or TypeError if it is something else."""
        made = orjson.loads(value)
        if made.pop("version") != VERSION:
            raise ValueError("it has another version")
        first, second, third = made.pop("since")
        upstream = None if (said := made.pop("upstream")) is None else Upstream.of_json(said)
        return cls(**made | {"outputs": tuple(made["outputs"])}, since=(first, second, third), upstream=upstream)

    def __str__(self) -> str:
        named = " and ".join(str(each["name"]) for each in self.files.values())
        command = "trueup load"
        if SNAPSHOT in self.files:
            command = "trueup state restore"
        elif GROUP in self.files:
            command = "trueup state rescale"
        elif any("offsets" in each for each in self.files.values()):
            command = "trueup replay --write-state"
        return f"{self.rows:,} rows that '{command}' made of {named} ({self.at})"


@dataclass(frozen=True)
class FreshGroup:
    """A group to which first rows may be given."""

    #: By partition: next offsets of forecasts and of outcomes that the group has not answered yet; 0 in a new group.
    next: Sequence[tuple[int, int]]
    #: `Loaded.since` of each partition.
    since: Sequence[tuple[int, int, int]]

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self.next)


def opened(settings: Settings) -> FreshGroup:
    """Check a group before anything is read.

    Raises TopicsError if its topics are missing, workers run, or it has a state.
    """
    try:
        return asyncio.run(_opened(settings))
    except (KafkaError, PoisonError) as exc:
        raise TopicsError(f"cannot look at {settings.changelog}: {exc!r}") from exc


async def _opened(settings: Settings) -> FreshGroup:
    own = settings.changelog, settings.journal, settings.configurations
    names = [*settings.inputs, *settings.outputs, *own]
    if settings.has_intake:
        names.append(settings.routes)
    counts = {name: await topics.partitions(settings, name) for name in names}
    if lacking := [name for name, found in counts.items() if found is None]:
        raise TopicsError(
            f"there is no topic {lacking[0]}: 'trueup topics create' makes it with TRUEUP_APP_ID={settings.app_id}"
        )
    if len({*counts.values()}) > 1:
        raise TopicsError(f"the topics have different numbers of partitions: {counts}")
    count = counts[settings.forecasts] or 0
    outputs = [[TopicPartition(name, n) for name in settings.outputs] for n in range(count)]
    async with open_group(settings) as consumer:
        ends = await consumer.end_offsets([*chain(*outputs)])
        inputs = [[TopicPartition(name, n) for name in settings.inputs] for n in range(count)]
        found = await offsets.reached(consumer, settings.app_id, [*chain(*inputs)])
    await _require_stopped(settings)  # after the first request about the group, which makes brokers look it up
    if await _has_state(settings):
        raise TopicsError(
            f"group {settings.app_id} has a state already, of a worker or of an earlier load or restore. Nothing was "
            "written, so nothing counts twice. Give another TRUEUP_APP_ID, whose workers answer all that topics keep. "
            f"If it is to write the topics of {settings.app_id}, run 'trueup topics take' with it before its workers. "
            f"Or delete the topics {settings.changelog}, {settings.journal} and {settings.configurations}, make them "
            "by 'trueup topics create', and run the command again: after a load the group then goes on behind its last "
            "answer, and labels of forecasts that it answered before do not find them"
        )
    since = [[ends[place] for place in places] for places in outputs]
    answered = [[found[place] for place in places] for places in inputs]
    return FreshGroup([(one, two) for one, two in answered], [(one, two, three) for one, two, three in since])


async def _require_stopped(settings: Settings) -> None:
    async with topics.admin_client(settings) as admin:
        there = await groups.members(admin, settings.app_id)
    if there:
        raise TopicsError(
            f"group {settings.app_id} runs ({there} members): stop its workers, and run the command again. Producers "
            "may go on"
        )


async def _has_state(settings: Settings) -> bool:
    """Whether the changelog has rows of a state, or the journal has entries, which an audit would follow."""
    async for topic, records in batches(settings, [settings.changelog, settings.journal]):
        keys = [record.key for record in records if record.key is not None]
        if topic == settings.journal or any(is_of_engine(key) or key.startswith(kinds.JOURNAL.letter) for key in keys):
            return True
    return False


@dataclass
class Beginning:
    """Writes the first rows of a group, for a command."""

    settings: Settings
    group: FreshGroup
    producer: AIOKafkaProducer
    changelog: Claims
    #: What the rows were made from, and when, see `Loaded`.
    files: Mapping[str, Any]
    at: str
    #: Fences of the partitions that have their rows.
    fences: list[Fence] = field(default_factory=list)

    async def give(
        self, rows: Callable[[], Iterable[tuple[bytes, bytes]]], fence: Fence, more: Iterable[tuple[bytes, bytes]] = ()
    ) -> int:
        """Write the rows of the next partition except its fence, and for audits all of them; return how many.

        ``rows``: returns the rows. A fence among them is left out.
        ``more``: rows that audits do not begin with.
        """
        own, partition = kinds.FENCE.key(), len(self.fences)
        self.fences.append(fence)
        count = 1 + await self.changelog.append(partition, (each for each in rows() if each[0] != own))
        await self.changelog.append(partition, more)
        again = chain((each for each in rows() if each[0] != own), [(own, fence.encode())])
        told = Loaded(self.files, self.at, count, self.settings.outputs, self.group.since[partition])
        await note(self.producer, self.settings, partition, again, told)
        return count


async def note(
    producer: AIOKafkaProducer,
    settings: Settings,
    partition: int,
    rows: Iterable[tuple[bytes, bytes]],
    told: Loaded,
    routes: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Write the copy of a partition's first rows, with which audits begin.

    ``rows, routes``: those of the worker, its fence included, and those of the router.
    """
    copied = ((None, in_force.LOADED_ROW + key, row, ()) for key, row in rows)
    routed = ((None, in_force.LOADED_ROUTE + key, row, ()) for key, row in routes)
    for records in (copied, routed, [(None, in_force.LOADED, told.encode(), ())]):
        await append(producer, settings.configurations, partition, records)


@asynccontextmanager
async def beginning(
    settings: Settings, group: FreshGroup, files: Mapping[str, Any], command: str, at: str = ""
) -> AsyncIterator[Beginning]:
    """Claim all partitions of a changelog, let the caller give rows, then write each partition's fence.

    Raises TopicsError if another run of the command, or a worker, has written a state meanwhile, if workers run, or if
    the brokers refuse. The changelog then has no state from this command that a worker would accept.

    ``files``: what the rows are made from, see `Loaded`.
    ``at``: when the rows were made; now if empty.
    """
    try:
        async with writer(settings) as producer:
            at = at or datetime.now(UTC).isoformat(timespec="seconds")
            made = Beginning(settings, group, producer, Claims(settings, producer.client, command), files, at)
            await made.changelog.claim(range(group.partitions))
            if await _has_state(settings):
                raise TopicsError(
                    f"{settings.changelog} has a state by now, of another run of '{command}' or of a worker"
                )
            for n in range(group.partitions):
                await made.changelog.begin(n)
            yield made
            await _require_stopped(settings)
            for n, fence in enumerate(made.fences):
                await made.changelog.append(n, [(kinds.FENCE.key(), fence.encode())])
    except (KafkaError, OSError) as exc:
        raise TopicsError(
            f"cannot write {settings.changelog}: {exc!r}; it holds no state that a worker would accept. Delete it and "
            f"{settings.configurations}, make them by 'trueup topics create', and run the command again"
        ) from exc


@asynccontextmanager
async def open_group(settings: Settings, suffix: str = "") -> AsyncIterator[Any]:
    """Open a consumer that may read and commit the group's offsets but does not join the group.

    ``suffix``: end of the group's name, after the application id.
    """
    consumer = AIOKafkaConsumer(
        group_id=settings.app_id + suffix,
        enable_auto_commit=False,
        **settings.client_options(),
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()
