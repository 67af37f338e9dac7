"""``trueup state skip TOPIC/PARTITION@OFFSET``: leaves out a record that crashes every process that reads it.

For a record of an input, the command claims its partition, as a worker does. The worker that serves the partition is
shut out and starts again. Now nobody else can move the fence. So the row is appended only if the record is not applied
by then.

For a record of a source, the command writes a skip into the topic of configurations. Intake reads that topic when it
takes up the partition, and so also when it starts again after a crash.
"""

import argparse
import asyncio
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from cli import reading
from cli.options import DONE, settings, tell, user
from state import kinds
from state.fence import Fence
from state.journal import Entry
from streams.config.settings import Settings, SettingsError
from streams.faust import offsets
from streams.faust.claims import Claims
from streams.kafka import provenance
from streams.kafka.topics import TopicsError
from streams.records import skips

#: Longest reason, in characters.
REASON: Final = 500
#: Offsets at the end of a changelog that are searched first for the newest fence and the newest journal entry.
TAIL: Final = 10_000


def skip(options: argparse.Namespace) -> int:
    """Skip the record that the options name, and return the status."""
    of = settings()
    of_router = options.place.startswith((f"{of.routes}/", f"{of.labels}/"))
    tell(options, run(of.router if of_router else of, options.place, options.reason, dry_run=options.dry_run))
    return DONE


def run(settings: Settings, place: str, reason: str, *, dry_run: bool = False) -> str:
    """Skip a record, or check that it can be skipped; return a message about it.

    Raises SettingsError if the place is not in an input or source topic, or was applied already, or if the reason is
    too long. Raises TopicsError if the brokers cannot be asked, or if a worker took the partition over meanwhile.
    """
    inputs = settings.inputs
    sources = [mode.topic for mode in settings.modes if not mode.direct]
    topic, partition, offset = _parsed((*inputs, *sources), place)
    if not reason.strip() or len(reason) > REASON:
        raise SettingsError(f"--reason must say why, in at most {REASON} characters")
    said = reason.strip(), user(), datetime.now(UTC).isoformat(timespec="seconds")
    with reading.asked("cannot write it down"):
        if topic in sources:
            asyncio.run(_write(settings, skips.SourceSkip(topic, "", partition, offset, *said), dry_run=dry_run))
        else:
            asyncio.run(_append(settings, partition, skips.Skip(inputs.index(topic), offset, *said), dry_run=dry_run))
    if dry_run:
        return f"{place} can be left out; nothing was written"
    who = f"Workers of {settings.app_id} that served partition {partition} start again"
    if topic in sources:
        who = f"Intakes of {settings.app_id} know of it once they have started again"
    return (
        f"{place} is left out from now on: {reason.strip()}. {who}; the record becomes a dead letter with the reason "
        "'skipped'."
    )


def _parsed(topics: Sequence[str], place: str) -> tuple[str, int, int]:
    """Return topic, partition and offset of ``TOPIC/PARTITION@OFFSET``."""
    found = re.fullmatch(r"([a-zA-Z0-9._-]+)/([0-9]{1,9})@([0-9]{1,18})", place)
    if found is None or found[1] not in topics:
        raise SettingsError(
            f"{place!r} must be TOPIC/PARTITION@OFFSET, with topic {' or '.join(dict.fromkeys(topics))}"
        )
    return found[1], int(found[2]), int(found[3])


async def _require_partition(settings: Settings, topic: str, partition: int) -> None:
    if partition >= await reading.width(settings, topic):
        raise TopicsError(f"there is no partition {partition} of topic {topic}")


async def _write(settings: Settings, skip: skips.SourceSkip, *, dry_run: bool) -> None:
    await _require_partition(settings, skip.topic, skip.partition)
    to = skip.partition % await reading.width(settings, settings.configurations)
    place = TopicPartition(skip.topic, skip.partition)
    options = settings.client_options()
    # Nothing is subscribed, so it does not join the group.
    group = AIOKafkaConsumer(group_id=settings.intake_group, enable_auto_commit=False, **options)
    async with group, AIOKafkaProducer(acks="all", **options) as producer, asyncio.timeout(settings.request_seconds):
        ends = await group.end_offsets([place])
        following = await offsets.reached(producer, settings.intake_group, [place])
        _require_open(place, skip.offset, following[place], ends[place])
        if dry_run:
            return
        identity = await provenance.identity(producer.client, skip.topic)
        key, value = skips.source_record(skip._replace(topic_id=identity.id))
        await producer.send_and_wait(settings.configurations, value, key, to)


def _require_open(place: TopicPartition, offset: int, following: int, end: int) -> None:
    if not following <= offset < end:
        raise SettingsError(
            f"offset {offset} is not waiting to be applied: the next of "
            f"{place.topic}/{place.partition} is {following}, and the topic ends at {end}"
        )


async def _append(settings: Settings, partition: int, skip: skips.Skip, *, dry_run: bool) -> None:
    topic = settings.inputs[skip.topic]
    for name in (topic, settings.changelog):
        await _require_partition(settings, name, partition)
    options = settings.client_options()
    async with AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(AIOKafkaConsumer(enable_auto_commit=False, **options))
        producer = await stack.enter_async_context(AIOKafkaProducer(**options))
        claims = Claims(settings, producer.client, "trueup state skip")
        await _require(settings, consumer, partition, skip)  # before the claim shuts a worker out
        if dry_run:
            return
        await claims.claim([partition])
        await _require(settings, consumer, partition, skip)
        await claims.append(partition, [skips.row(skip)])


async def _require(settings: Settings, consumer: AIOKafkaConsumer, partition: int, skip: skips.Skip) -> None:
    """Require that the record exists and has not been applied yet."""
    following = await _following(settings, partition)
    source = TopicPartition(settings.inputs[skip.topic], partition)
    end = (await consumer.end_offsets([source]))[source]
    _require_open(source, skip.offset, following[skip.topic], end)


async def _following(settings: Settings, partition: int) -> Sequence[int]:
    """Return the next offsets of the inputs, from a changelog's newest journal entry or checkpoint."""
    place = TopicPartition(settings.changelog, partition)
    for last in (TAIL, None):
        newest: dict[bytes, bytes] = {}
        async for record in reading.records(settings, [settings.changelog], starts={place: 0}, last=last):
            key = record.key or b""
            if record.value and (key == kinds.FENCE.key() or key[:1] == kinds.JOURNAL.letter != key):
                newest[key[:1]] = record.value
        if len(newest) == 2:
            break
    rows = Fence.decode(newest[kinds.FENCE.key()]).next if kinds.FENCE.key() in newest else (0, 0)
    folded = Entry.decode(newest[kinds.JOURNAL.letter]).ends if kinds.JOURNAL.letter in newest else (0, 0)
    return [max(each) for each in zip(rows, folded, strict=True)]
