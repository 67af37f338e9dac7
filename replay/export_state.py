"""The state of a replay as the beginning of a worker: rows and fence in the changelog, offsets in the group.

A worker with this ``TRUEUP_APP_ID`` restores the rows and goes on where the old group had answered. The changelog must
be empty and the group unused, so nothing that lives is touched. Until all rows are acknowledged the fence is one that
no worker accepts (it stops with `CorruptFrame`): a replay that dies on the way leaves nothing that could be taken for a
state.

The journal of the new group does not lead to these rows. So the topic of configurations keeps a copy of them, with a
record of what they were made of, and audits begin with them (`give`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from replay.engine_output import EngineOutput
from replay.loaded import Loaded
from replay.moves import is_of_engine
from replay.sources.topics import TopicSource
from state import kinds
from state.fence import Fence
from streams.config import in_force
from streams.config.settings import Settings
from streams.faust.claims import Claims
from streams.kafka import groups, owners, topics
from streams.kafka.topics import TopicsError
from streams.kafka.whole_topics import batches
from streams.kafka.writer import writer

#: The fence while rows are being written.
UNFINISHED = b"trueup replay has not finished writing this state"


def target(environment: Mapping[str, str], app_id: str) -> Settings:
    """Return the settings of the worker that will go on."""
    return Settings.from_env({**environment, "TRUEUP_APP_ID": app_id})


def check(settings: Settings, partitions: int) -> None:
    """Refuse an application that has a state, before anything is read.

    Raises TopicsError if its changelog is missing, not empty, or has another number of partitions, or its group has
    offsets.
    """
    try:
        asyncio.run(_check(settings, partitions))
    except KafkaError as exc:
        raise TopicsError(f"cannot look at {settings.changelog}: {exc!r}") from exc


async def _check(settings: Settings, partitions: int) -> None:
    for name in (settings.changelog, settings.configurations, *settings.outputs):
        count = await topics.partitions(settings, name)
        if count is None:
            raise TopicsError(
                f"there is no topic {name}: make it with "
                f"TRUEUP_APP_ID={settings.app_id} trueup topics create --partitions {partitions}"
            )
        if count != partitions:
            raise TopicsError(f"topic {name} has {count} partitions, the replay {partitions}")
    async with open_group(settings) as consumer:
        places = [TopicPartition(settings.changelog, n) for n in range(partitions)]
        first, end = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        if first != end:
            raise TopicsError(
                f"topic {settings.changelog} is not empty: state is written only where there is none. Take another "
                "application id, or delete the topic and make it anew"
            )
        inputs = [
            TopicPartition(name, n) for name in (settings.forecasts, settings.outcomes) for n in range(partitions)
        ]
        if await groups.committed(consumer, settings.app_id, inputs):
            raise TopicsError(
                f"group {settings.app_id} has committed offsets: a worker has run with this application id"
            )


def answered(settings: Settings, source: TopicSource) -> TopicSource:
    """Return the offsets up to which a group has answered a source; another group must answer the rest.

    Raises TopicsError if the group has committed nothing, or the brokers do not answer.
    """
    try:
        committed = asyncio.run(_committed(settings, source))
    except KafkaError as exc:
        raise TopicsError(f"cannot ask what group {settings.app_id} has answered: {exc!r}") from exc
    if not any(offset for offsets in committed for offset in offsets):
        raise TopicsError(
            f"group {settings.app_id} (TRUEUP_APP_ID) has committed no offset, so nobody knows which records it has "
            "answered, and the new group must answer all others. If it has answered some, commit how far by "
            "'kafka-consumer-groups.sh --reset-offsets'; if none, a new group needs no state"
        )
    first, second = (
        tuple((start, max(start, min(end, offset))) for (start, end), offset in zip(spans, offsets, strict=True))
        for spans, offsets in zip(source.spans, committed, strict=True)
    )
    return replace(source, spans=(first, second))


async def _committed(settings: Settings, source: TopicSource) -> list[list[int]]:
    places = [[TopicPartition(name, n) for n in range(source.partitions)] for name in source.names]
    async with open_group(settings) as consumer:
        found = await groups.committed(consumer, settings.app_id, chain(*places))
    return [[found[place].offset if place in found else 0 for place in each] for each in places]


def write(settings: Settings, source: TopicSource, folded: Sequence[EngineOutput]) -> None:
    """Write the state, all of it acknowledged and committed.

    Raises TopicsError if the brokers refuse. Then the changelog holds no state; delete it, or take another application
    id.
    """
    try:
        asyncio.run(_write(settings, source, folded))
    except (KafkaError, OSError) as exc:
        raise TopicsError(
            f"cannot write {settings.changelog}: {exc!r}; it holds no state that a worker would accept: delete it and "
            f"{settings.configurations}"
        ) from exc


async def _write(settings: Settings, source: TopicSource, folded: Sequence[EngineOutput]) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    read = {label: {"name": of["topic"], "offsets": of["offsets"]} for label, of in source.manifest().items()}
    async with writer(settings) as producer, open_group(settings) as consumer:
        changelog = await begun(producer, settings, len(folded), "trueup replay")
        fences = []
        for n, each in enumerate(folded):
            places = [TopicPartition(name, n) for name in settings.outputs]
            ends = await consumer.end_offsets(places)
            first, second, third = (ends[place] for place in places)
            fences.append(_fence(source, n, each))
            told = Loaded(read, at, 0, settings.outputs, (first, second, third))
            await give(producer, changelog, settings, n, each.rows, fences[n], told)
        for n, fence in enumerate(fences):
            await changelog.append(n, [(kinds.FENCE.key(), fence.encode())])
        offsets = {
            TopicPartition(name, n): span[1]
            for name, spans in zip(source.names, source.spans, strict=True)
            for n, span in enumerate(spans)
        }
        consumer.assign(list(offsets))
        await consumer.commit(offsets)


def next_commands(settings: Settings) -> list[str]:
    """Return the commands that follow: the new group's stages, and before them `take` if its topics are another's."""
    foreign: list[str] = []
    with suppress(KafkaError):  # who may not read the owners is told by the worker
        foreign = asyncio.run(owners.problems(settings, None))
    of = f"TRUEUP_APP_ID={settings.app_id} trueup"
    return [*[f"{of} topics take"] * bool(foreign), f"{of} run"]


def _fence(source: TopicSource, partition: int, folded: EngineOutput) -> Fence:
    """Return the fence; a topic of which nothing was applied is fenced off where its range ended."""
    fence = folded.fence
    for topic, spans in enumerate(source.spans):
        start, end = spans[partition]
        if not fence.next[topic] and start:
            fence.next[topic] = end
    return fence


async def has_state(settings: Settings) -> bool:
    """Whether the changelog has rows of a state, or the journal entries: audits follow it from its first one."""
    async for topic, records in batches(settings, [settings.changelog, settings.journal]):
        keys = [record.key for record in records if record.key is not None]
        if topic == settings.journal or any(is_of_engine(key) or key.startswith(kinds.JOURNAL.letter) for key in keys):
            return True
    return False


async def begun(producer: AIOKafkaProducer, settings: Settings, partitions: int, command: str) -> Claims:
    """Claim all partitions of a changelog, and give each a fence that no worker accepts.

    Raises TopicsError if there is a state: another run of the command, or a worker, has written it meanwhile.
    """
    changelog = Claims(settings, producer.client, command)
    await changelog.claim(range(partitions))
    if await has_state(settings):
        raise TopicsError(f"{settings.changelog} has a state by now, of another run of '{command}' or of a worker")
    for n in range(partitions):
        await changelog.append(n, [(kinds.FENCE.key(), UNFINISHED)])
    return changelog


async def append(
    producer: AIOKafkaProducer,
    topic: str,
    partition: int,
    records: Iterable[tuple[bytes, bytes]],
    stamp: int | None = None,
) -> int:
    """Append records, key and value, in as few batches as they fit, each acknowledged before the next.

    ``stamp``: their time, ms; None: that of now.

    Raises TopicsError if one does not fit a batch.
    Returns how many.
    """
    count = 0
    batch = producer.create_batch()
    for key, row in records:
        if batch.append(timestamp=stamp, key=key, value=row) is None:
            await (await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            if batch.append(timestamp=stamp, key=key, value=row) is None:
                raise TopicsError(f"a row of {len(row)} bytes does not fit TRUEUP_BATCH_BYTES")
        count += 1
    if batch.record_count():
        await (await producer.send_batch(batch, topic, partition=partition))
    return count


async def give(
    producer: AIOKafkaProducer,
    changelog: Claims,
    settings: Settings,
    partition: int,
    rows: Callable[[], Iterable[tuple[bytes, bytes]]],
    fence: Fence,
    told: Loaded,
) -> int:
    """Write the rows of a partition, but for its fence, and for audits all of them and what they were made of.

    Returns how many, with the fence.

    Parameters
    ----------
    rows
        Returns them. A fence among them is left out: ``fence`` is written once all partitions have their rows.
    told
        What they were made of; how many there are is filled in.
    """
    own = kinds.FENCE.key()
    count = 1 + await changelog.append(partition, (each for each in rows() if each[0] != own))
    others = (each for each in rows() if each[0] != own)
    again = ((in_force.LOADED_ROW + key, row) for key, row in chain(others, [(own, fence.encode())]))
    await append(producer, settings.configurations, partition, again)
    said = replace(told, rows=count).encode()
    await append(producer, settings.configurations, partition, [(in_force.LOADED, said)])
    return count


@asynccontextmanager
async def open_group(settings: Settings, suffix: str = "") -> AsyncIterator[Any]:
    """Open a consumer that may read and commit the group's offsets and does not join it.

    ``suffix`` is what stands behind the application id in the name of the group.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=",".join(settings.brokers),
        group_id=settings.app_id + suffix,
        enable_auto_commit=False,
        **settings.security.client_options(),
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()
