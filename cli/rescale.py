"""``trueup state rescale --partitions N --to APP_ID``: divides a group's state anew among N partitions.

The state goes to another application id, with its own changelog. The old group does not change, whatever happens: to go
back, start its workers again.

1. The old and the new groups must have no members. The old workers were stopped, not killed, so checkpoints have
   everything. All records of the old inputs are applied.
2. The old changelogs are read and divided (`state.rescale`). The result is the same each time, so this can be repeated.
3. Each new partition is claimed: brokers then refuse another run of the command that was paused. The partition gets a
   fence that no worker accepts, then its rows, and a row that says what they were made from. Audits begin with a copy
   of the rows in the topic of configurations (`replay.first_rows`).
4. The offsets of the new groups are committed. The old changelogs must still have the same ends.
5. Each new partition gets its fence: **that is its commit point.** If the command is run again, it does not touch
   partitions that have their fence. Workers refuse the others until then.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from agents.taken_up import Noted
from cli import reading
from cli.group_states import (
    Rows,
    StageState,
    intake_offsets,
    read_stage,
    require_applied,
    require_idle,
    require_still,
    require_topics,
    topic_ends,
    topic_rows,
)
from cli.options import DONE, settings, tell
from replay import first_rows
from replay.first_rows import GROUP, Loaded, Upstream, open_group
from replay.moves import EVENT, STREAM, is_of_engine, plan
from state import kinds
from state.inputs import InputIds, Widths
from state.rescale import MOVED, Plan, RescaleError, rescaled, rescaled_routes
from streams.config import in_force
from streams.config.settings import Settings, SettingsError
from streams.faust.claims import UNFINISHED, Claims
from streams.kafka import owners, topics
from streams.kafka.topics import TopicsError
from streams.kafka.writer import writer

log = logging.getLogger("trueup")

#: Called with the number of each finished step, for each partition of each stage. Tests kill the process in this call.
#: 1: a fence that no worker accepts is written, 2: the rows are written, 3: the offsets are committed, 4: the fence is
#: written.
Probe = Callable[[int], None]
#: Writes the rows that a new partition begins with, for audits.
Tell = Callable[[int], Awaitable[None]]


def rescale(options: argparse.Namespace) -> int:
    """Move the state as the options say, and return the status."""
    new = settled(os.environ, options.to, options.changes)
    tell(options, run(settings(), new, options.partitions, options.keys, dry_run=options.dry_run))
    return DONE


def settled(environment: Mapping[str, str], app_id: str, changes: Sequence[str]) -> Settings:
    """Return the settings of the new group: those of the environment, with changes in the form ``NAME=VALUE``.

    Raises SettingsError if a change has a different form, or a value is not allowed.
    """
    changed = dict(environment)
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or not name.startswith("TRUEUP_") or name == "TRUEUP_APP_ID":
            raise SettingsError(f"{change!r} is not TRUEUP_NAME=VALUE; the application id is given by --to")
        changed[name] = value
    return Settings.from_env({**changed, "TRUEUP_APP_ID": app_id})


def run(
    old: Settings,
    new: Settings,
    width: int,
    by: str | None,
    probe: Probe = lambda _: None,
    *,
    dry_run: bool = False,
) -> str:
    """Divide a group's state; return a message about it.

    Raises SettingsError if both have the same application id, or different stages. Raises TopicsError if topics, groups
    or rows are not as required, or if the brokers cannot be asked.

    ``old, new``: settings of the old and the new group.
    ``by``: what the inputs' keys are, one of `replay.moves.KEYS`; None: behind a router the stream, else the event.
    """
    if old.app_id == new.app_id:
        raise SettingsError(f"--to must name another application id than {old.app_id}: its state is left as it is")
    if old.brokers != new.brokers:
        raise SettingsError("both groups must be on the same brokers")
    if len(old.stages) != len(new.stages):
        raise SettingsError("only one of both groups has a router: the sources must be read in the same way")
    try:
        with reading.asked("the brokers", "; run the command again"):
            return asyncio.run(_run(old, new, width, by, probe, dry_run=dry_run))
    except (RescaleError, owners.OwnersError) as exc:
        raise TopicsError(f"the state of {old.app_id} cannot be divided anew: {exc}") from exc


async def _run(old: Settings, new: Settings, width: int, by: str | None, probe: Probe, *, dry_run: bool) -> str:
    for stage in new.stages:
        await require_topics(stage, width)
    async with AsyncExitStack() as stack:
        options = old.client_options()
        admin = await stack.enter_async_context(topics.admin_client(old))
        producer = await stack.enter_async_context(writer(new))
        reader = await stack.enter_async_context(AIOKafkaConsumer(isolation_level="read_committed", **options))
        await require_idle(admin, [old, new])
        stages = [await read_stage(reader, producer, *each, width) for each in zip(old.stages, new.stages, strict=True)]
        for each in stages:
            await require_applied(each, width)
        intake = await intake_offsets(admin, producer, old, stages, width)
        by = by or (EVENT if len(stages) == 1 else STREAM)
        _divide(stages, width, by)
        # Claimed before it is read, so that from now on nobody else can write to it.
        claims = [] if dry_run else [await _claimed(each, producer) for each in stages]
        there = [await _there(each) for each in stages]
        if not any(partition is None for each in there for partition in each):
            return f"{new.app_id} has the state of {old.app_id} in {width} partitions already: nothing was written"
        rows = sum(len(part) for each in stages for part in each.parts)
        if dry_run:
            return f"{rows} rows of {old.app_id} can be divided among {width} partitions; nothing was written"
        log.info("dividing %d rows anew", rows)
        committed = any(each is not None for partitions in there for each in partitions)
        told = await _teller(reader, producer, stages, intake, again=committed)
        for each, changelog, finished, tell_of in zip(stages, claims, there, (told, None), strict=False):
            await _write(changelog, each, finished, tell_of, probe)
        if not committed:  # the workers may have gone on since then
            for each in stages:
                await _commit(each.new, _inputs(each))
            await _commit(new, intake, "-intake")
        probe(3)
        await require_idle(admin, [old, new])
        await require_still(reader, stages)
        await owners.take(admin, new)
        for each, changelog, finished in zip(stages, claims, there, strict=True):
            for n, done in enumerate(finished):
                if done is None:
                    await changelog.append(n, [(kinds.FENCE.key(), each.made[n][kinds.FENCE.key()])])
                    probe(4)
    written = sum(len(part) for each in stages for part in each.made)
    return (
        f"{written} rows of {old.app_id} are in {width} partitions of {new.app_id}. Start its workers; those of "
        f"{old.app_id} stay as they are, and are the way back until the new ones have answered"
    )


# -- dividing --------------------------------------------------------------------------------------------------------


def _divide(stages: Sequence[StageState], width: int, by: str) -> None:
    """Make the new rows."""
    worker, *routers = stages
    routed = routers[0].parts if routers else []
    worker.made = rescaled(worker.parts, _plan(worker, width, by, routed))
    for router in routers:
        router.made = rescaled_routes(router.parts, _plan(router, width, EVENT, []))
    for stage in stages:
        for part in stage.made:
            part[MOVED.key()] = MOVED.encode(stage.moved)
            part[kinds.WIDTHS.key()] = kinds.WIDTHS.encode(Widths(*(each.now.partitions for each in stage.inputs)))
            part[kinds.INPUTS.key()] = kinds.INPUTS.encode(InputIds(*(each.now.id for each in stage.inputs)))


def _plan(stage: StageState, width: int, by: str, routed: Sequence[Rows]) -> Plan:
    """Return the plan, which says where each row belongs."""
    following, shards = _following(stage, width), _shards(stage.new)
    return plan(by, len(stage.parts), following, shards, grown=any(each.same for each in stage.inputs), routed=routed)


def _shards(settings: Settings) -> Callable[[str], int]:
    def shards(stream: str) -> int:
        policy = settings.policies.of(stream)
        return 1 if policy is None else policy.shards

    return shards


def _following(stage: StageState, width: int) -> list[list[int]]:
    following = [[0, 0] for _ in range(width)]
    for topic, read in enumerate(stage.inputs):
        if read.same:
            for n, fence in enumerate(stage.fences[:width]):
                following[n][topic] = fence.next[topic]
    return following


# -- writing ---------------------------------------------------------------------------------------------------------


async def _claimed(stage: StageState, producer: AIOKafkaProducer) -> Claims:
    changelog = Claims(stage.new, producer.client, "trueup state rescale")
    await changelog.claim(range(stage.moved.partitions))
    return changelog


async def _there(stage: StageState) -> list[Rows | None]:
    """Return the rows of each new partition; None for a partition that is not finished.

    Raises TopicsError if a partition has a state that does not come from this move.
    """
    there: list[Rows | None] = []
    for n, part in enumerate(await topic_rows(stage.new, stage.new.changelog, stage.moved.partitions)):
        begun = part.get(kinds.FENCE.key()) in (None, UNFINISHED) and not any(
            key.startswith(kinds.JOURNAL.letter) for key in part
        )
        if not begun and part.get(MOVED.key()) != MOVED.encode(stage.moved):
            raise TopicsError(
                f"partition {n} of {stage.new.changelog} has a state that was not made from "
                f"{stage.old.app_id} as it is now: take another application id, or delete and recreate the topic"
            )
        there.append(None if begun else part)
    return there


async def _write(
    changelog: Claims, stage: StageState, finished: Sequence[Rows | None], told: Tell | None, probe: Probe
) -> None:
    unfinished = [n for n, done in enumerate(finished) if done is None]
    for n in unfinished:
        await changelog.begin(n)
        probe(1)
    before = await topic_rows(stage.new, stage.new.changelog, len(finished))
    for n in unfinished:
        made = stage.made[n]
        gone = [(key, None) for key in before[n] if key not in made and key != kinds.CLAIM.key()]
        await changelog.append(n, [*gone, *((key, row) for key, row in made.items() if key != kinds.FENCE.key())])
        if told is not None:
            await told(n)
        probe(2)


async def _teller(
    reader: AIOKafkaConsumer,
    producer: AIOKafkaProducer,
    stages: Sequence[StageState],
    intake: Mapping[TopicPartition, tuple[int, str]],
    *,
    again: bool,
) -> Tell:
    """Return the function that writes, for audits, the rows that a new partition begins with.

    If the command was interrupted, the ends of the outputs are those that the first run recorded, because workers may
    have written to the finished partitions. The progress of intake and router is as of the last commit of the new
    group's offsets. ``again``: whether a partition was finished after that commit.
    """
    worker, *routers = stages
    old, new, moved = worker.old, worker.new, worker.moved
    width, at = moved.partitions, datetime.now(UTC).isoformat(timespec="seconds")
    written = await topic_rows(new, new.configurations, width)
    outputs = [await _begins(reader, was, now, width) for was, now in zip(old.outputs, new.outputs, strict=True)]
    inputs = [await _begins(reader, was, now, width) for was, now, *_ in worker.inputs]
    sources = tuple((*place, offset, Noted.read(noted).id) for place, (offset, noted) in sorted(intake.items()))
    made_of = {GROUP: {"name": moved.app, "changelog": moved.changelog, "ends": list(moved.ends)}}

    async def tell(n: int) -> None:
        rows, *routes = ([each for each in stage.made[n].items() if is_of_engine(each[0])] for stage in stages)
        first, second, third = (each[n] for each in outputs)
        one, two = (each[n] for each in inputs)
        upstream = Upstream((one, two), sources, len(routes[0])) if routers else None
        if before := _known(written[n], made_of):
            first, second, third = before.since
            upstream = before.upstream if again else upstream
        told = Loaded(made_of, at, len(rows), new.outputs, (first, second, third), upstream)
        await first_rows.note(producer, new, n, rows, told, *routes)
        kept = {in_force.LOADED_ROW + key for key, _ in rows}
        kept |= {in_force.LOADED_ROUTE + key for part in routes for key, _ in part}
        for key in written[n]:
            if key.startswith(in_force.FIRST_ROWS) and key not in kept:
                await producer.send_and_wait(new.configurations, None, key, partition=n)

    return tell


async def _begins(reader: AIOKafkaConsumer, was: str, now: str, width: int) -> list[int]:
    """Return where the new group's records in a topic begin, by partition."""
    return await topic_ends(reader, now, width) if was == now else [0] * width


def _known(written: Rows, made_of: Mapping[str, Any]) -> Loaded | None:
    """Return what an earlier run of the same move has written for a partition."""
    try:
        told = Loaded.decode(written[in_force.LOADED])
    except (KeyError, ValueError, TypeError):
        return None
    return told if told.files == made_of else None


def _inputs(stage: StageState) -> dict[TopicPartition, tuple[int, str]]:
    return {
        TopicPartition(to.new, n): (following, "")
        for topic, to in enumerate(stage.inputs)
        for n, each in enumerate(_following(stage, stage.moved.partitions))
        if (following := each[topic])
    }


async def _commit(settings: Settings, offsets: Mapping[TopicPartition, tuple[int, str]], suffix: str = "") -> None:
    if not offsets:
        return
    async with open_group(settings, suffix) as consumer:
        consumer.assign(list(offsets))
        await consumer.commit(dict(offsets))
