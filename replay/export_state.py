"""The state of a replay as the beginning of a worker: rows and fence in the changelog, offsets in the group.

A worker with this ``TRUEUP_APP_ID`` restores the rows and goes on where the old group had answered. The group must be
new, so no running group is touched.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from replay import first_rows
from replay.engine_output import EngineOutput
from replay.first_rows import FreshGroup, open_group
from replay.sources.topics import TopicSource
from state.fence import Fence
from streams.config.settings import Settings
from streams.faust import offsets
from streams.kafka import owners
from streams.kafka.topics import TopicsError


def opened(settings: Settings, partitions: int) -> FreshGroup:
    """Check a group before anything is read.

    Raises TopicsError as `first_rows.opened`, or if the group has a different number of partitions, or has offsets.
    """
    group = first_rows.opened(settings)
    if group.partitions != partitions:
        raise TopicsError(f"topics of {settings.app_id} have {group.partitions} partitions, the replay {partitions}")
    if any(map(any, group.next)):
        raise TopicsError(f"group {settings.app_id} has committed offsets: a worker has run with this application id")
    return group


def answered(settings: Settings, source: TopicSource) -> TopicSource:
    """Return the offsets up to which a group has answered a source. The new group must answer the rest.

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
        found = await offsets.reached(consumer, settings.app_id, [*chain(*places)])
    return [[found[place] for place in each] for each in places]


def write(settings: Settings, source: TopicSource, group: FreshGroup, folded: Sequence[EngineOutput]) -> None:
    """Write the state; all of it is acknowledged and committed. Raises TopicsError as `first_rows.beginning`."""
    asyncio.run(_write(settings, source, group, folded))


async def _write(settings: Settings, source: TopicSource, group: FreshGroup, folded: Sequence[EngineOutput]) -> None:
    read = {label: {"name": of["topic"], "offsets": of["offsets"]} for label, of in source.manifest().items()}
    async with first_rows.beginning(settings, group, read, "trueup replay") as begun:
        for n, each in enumerate(folded):
            await begun.give(each.rows, _fence(source, n, each))
        offsets = {
            TopicPartition(name, n): span[1]
            for name, spans in zip(source.names, source.spans, strict=True)
            for n, span in enumerate(spans)
        }
        async with open_group(settings) as consumer:
            consumer.assign(list(offsets))
            await consumer.commit(offsets)


def next_commands(settings: Settings) -> list[str]:
    """Return the commands to run next: the new group's stages; before that `take`, if others own its topics."""
    foreign: list[str] = []
    with suppress(KafkaError):  # if the owners may not be read, the worker will say so
        foreign = asyncio.run(owners.problems(settings, None))
    of = f"TRUEUP_APP_ID={settings.app_id} trueup"
    return [*[f"{of} topics take"] * bool(foreign), f"{of} run"]


def _fence(source: TopicSource, partition: int, folded: EngineOutput) -> Fence:
    """Return the fence. For a topic from which nothing was applied, it has the end of the range."""
    fence = folded.fence
    for topic, spans in enumerate(source.spans):
        start, end = spans[partition]
        if not fence.next[topic] and start:
            fence.next[topic] = end
    return fence
