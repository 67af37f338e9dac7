"""``trueup state rescale --partitions N --to APP_ID``: a group's state, divided anew among N partitions.

The state goes to another application id, with a changelog of its own; nothing of the old one is changed. So whatever
happens on the way, the old group is as it was, and starting its workers again is the way back.

1. Nobody may be in the old groups or the new ones. Their workers were stopped, not killed: checkpoints have everything.
   All records of the old inputs are applied.
2. The old changelogs are read, and divided (`state.rescale`). It is the same each time, so it can be done again.
3. Each new partition is claimed: brokers refuse another run of the command that stood still meanwhile. It gets a fence
   that no worker accepts, then its rows, and a row that says what they were made of.
   What an audit has to know to make them again goes to the topic of what is in force (`replay.moves`).
4. The offsets of the new groups are committed. The old changelogs must end where they did.
5. Each new partition gets its fence: **that is its commit point.** One that has it is left as it is when the command
   is run again; workers refuse the others until then.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from cli import reading
from cli.group_states import (
    Rows,
    Stage,
    intake_offsets,
    read_stage,
    require_applied,
    require_idle,
    require_still,
    require_topics,
    source_id,
    topic_ends,
    topic_rows,
)
from cli.options import DONE, settings, tell
from replay import moves
from replay.first_rows import open_group
from replay.moves import EVENT, STREAM, Move, MoveError, Upstream, plan
from state import kinds
from state.inputs import InputIds, Widths
from state.rescale import MOVED, Plan, RescaleError, rescaled, rescaled_routes
from streams.config import in_force
from streams.config.settings import Settings, SettingsError
from streams.faust.claims import UNFINISHED, Claims
from streams.kafka import owners, provenance
from streams.kafka.topics import TopicsError
from streams.kafka.writer import writer

log = logging.getLogger("trueup")

#: Called with the number of the finished step, for each partition of each stage; tests kill the process in it. 1: a
#: fence that no worker accepts is written, 2: the rows are written, 3: the offsets are committed, 4: the fence is
#: written.
Probe = Callable[[int], None]


def rescale(options: argparse.Namespace) -> int:
    """Move the state as the options say, and return the status."""
    new = settled(os.environ, options.to, options.changes)
    tell(options, run(settings(), new, options.partitions, options.keys, dry_run=options.dry_run))
    return DONE


def settled(environment: Mapping[str, str], app_id: str, changes: Sequence[str]) -> Settings:
    """Return the settings of the new group: the environment's with some changed, each ``NAME=VALUE``.

    Raises SettingsError if a change has another form, or what it sets is not allowed.
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
    """Divide a group's state, and return a message about it.

    Raises SettingsError if both have one application id, or not the same stages.
    Raises TopicsError if topics, groups or rows are not as they have to be, or the brokers cannot be asked; the message
    says more.

    ``old, new``: settings of the group that was, and of the one that is to be.
    ``by``: what inputs are keyed by, one of `replay.moves.KEYS`; None: behind a router the stream, else the event.
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
        admin = AIOKafkaAdminClient(**options)
        await admin.start()
        stack.push_async_callback(admin.close)
        producer = await stack.enter_async_context(writer(new))
        reader = await stack.enter_async_context(AIOKafkaConsumer(isolation_level="read_committed", **options))
        await require_idle(admin, [old, new])
        stages = [await read_stage(reader, producer, *each, width) for each in zip(old.stages, new.stages, strict=True)]
        for each in stages:
            await require_applied(each, width)
        intake = await intake_offsets(admin, producer, old, stages, width)
        by = by or (EVENT if len(stages) == 1 else STREAM)
        shards = _divide(stages, width, by)
        # Claimed before it is looked at what is there: nobody else can write it from now on.
        claims = [] if dry_run else [await _claimed(each, producer) for each in stages]
        there = [await _there(each) for each in stages]
        if not any(partition is None for each in there for partition in each):
            return f"{new.app_id} has the state of {old.app_id} in {width} partitions already: nothing was written"
        rows = sum(len(part) for each in stages for part in each.parts)
        if dry_run:
            return f"{rows} rows of {old.app_id} can be divided among {width} partitions; nothing was written"
        log.info("dividing %d rows anew", rows)
        committed = any(each is not None for partitions in there for each in partitions)
        told = await _told(reader, producer, stages, by, shards, intake, again=committed)
        for each, changelog, finished, said in zip(stages, claims, there, (told, None), strict=False):
            await _write(producer, changelog, each, finished, said, probe)
        if not committed:  # the workers may have gone on since
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


def _divide(stages: Sequence[Stage], width: int, by: str) -> dict[str, int]:
    """Make the new rows, and return how many keys each stream of the worker has that has more than one."""
    worker, *routers = stages
    routed = routers[0].parts if routers else []
    shards, divided = _shards(worker.new), {}

    def asked(stream: str) -> int:
        found = shards(stream)
        if found > 1:
            divided[stream] = found
        return found

    worker.made = rescaled(worker.parts, _plan(worker, width, by, routed, asked))
    for router in routers:
        router.made = rescaled_routes(router.parts, _plan(router, width, EVENT, []))
    for stage in stages:
        for part in stage.made:
            part[MOVED.key()] = MOVED.encode(stage.moved)
            part[kinds.WIDTHS.key()] = kinds.WIDTHS.encode(Widths(*(each.partitions for each in stage.inputs)))
            if all(each.id for each in stage.inputs):
                part[kinds.INPUTS.key()] = kinds.INPUTS.encode(InputIds(*(each.id for each in stage.inputs)))
    return divided


def _plan(
    stage: Stage, width: int, by: str, routed: Sequence[Rows], shards: Callable[[str], int] | None = None
) -> Plan:
    """Return where what belongs; ``shards`` returns how many keys a stream has, None: as the new settings say."""
    following = _following(stage, width)
    asked = shards or _shards(stage.new)
    return plan(by, len(stage.parts), following, asked, grown=any(stage.same), routed=routed)


def _shards(settings: Settings) -> Callable[[str], int]:
    def shards(stream: str) -> int:
        policy = settings.policies.of(stream)
        return 1 if policy is None else policy.shards

    return shards


def _following(stage: Stage, width: int) -> list[list[int]]:
    following = [[0, 0] for _ in range(width)]
    for topic, same in enumerate(stage.same):
        if same:
            for n, fence in enumerate(stage.fences[:width]):
                following[n][topic] = fence.next[topic]
    return following


# -- writing ---------------------------------------------------------------------------------------------------------


async def _claimed(stage: Stage, producer: AIOKafkaProducer) -> Claims:
    changelog = Claims(stage.new, producer.client, "trueup state rescale")
    await changelog.claim(range(stage.moved.partitions))
    return changelog


async def _there(stage: Stage) -> list[Rows | None]:
    """Return the rows of each new partition that is finished, and None of the others.

    Raises TopicsError if a partition has a state that is of something else.
    """
    there: list[Rows | None] = []
    for n, part in enumerate(await topic_rows(stage.new, stage.new.changelog, stage.moved.partitions)):
        begun = part.get(kinds.FENCE.key()) in (None, UNFINISHED) and not any(
            key.startswith(kinds.JOURNAL.letter) for key in part
        )
        if not begun and part.get(MOVED.key()) != MOVED.encode(stage.moved):
            raise TopicsError(
                f"partition {n} of {stage.new.changelog} has a state that is not of {stage.old.app_id} as it is now: "
                "take another application id, or delete the topic and make it anew"
            )
        there.append(None if begun else part)
    return there


async def _write(
    producer: AIOKafkaProducer,
    changelog: Claims,
    stage: Stage,
    finished: Sequence[Rows | None],
    told: Sequence[Move] | None,
    probe: Probe,
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
            await producer.send_and_wait(stage.new.configurations, told[n].encode(), in_force.MOVED, partition=n)
        probe(2)


async def _told(
    reader: AIOKafkaConsumer,
    producer: AIOKafkaProducer,
    stages: Sequence[Stage],
    by: str,
    shards: Mapping[str, int],
    intake: Mapping[TopicPartition, tuple[int, str]],
    *,
    again: bool,
) -> list[Move]:
    """Return the record of the move for audits, of each new partition.

    If the command was interrupted, the first run recorded the ends of the outputs, because workers may have written to
    partitions that it had finished. The progress of intake and router is as of the last commit of the new group's
    offsets; ``again`` is whether some partition was finished after that.
    """
    stage = stages[0]
    old, new, width = stage.old, stage.new, stage.moved.partitions
    labels = [(label, getattr(old, label), getattr(new, label)) for label in ("calibrated", "resolved", "dead_letters")]
    ids = {name: await provenance.identity(producer.client, name) for _, *names in labels for name in names}
    known = await _known(stage)
    if known is None:
        ends = [await topic_ends(reader, name, ids[name].partitions) for _, name, _ in labels]
        stays = [name == now for _, name, now in labels]
        outputs = tuple((ends[0][n], ends[1][n], ends[2][n]) for n in range(len(stage.parts)))
        begin = [each if stay else [0] * width for each, stay in zip(ends, stays, strict=True)]
        since = tuple((begin[0][n], begin[1][n], begin[2][n]) for n in range(width))
    else:
        outputs, since = known.outputs, known.since
    upstream = known.upstream if known is not None and again else await _upstream(reader, stages, intake)
    inputs = zip(("forecasts", "outcomes"), (old.forecasts, old.outcomes), (each.id for each in stage.ids), strict=True)
    topics_ = {label: (name, id_) for label, name, id_ in inputs}
    topics_ |= {label.replace("_", "-"): (name, ids[name].id) for label, name, _ in labels}
    moved = stage.moved
    return [
        Move(
            moved.app,
            moved.changelog,
            moved.ends,
            by,
            topics_,
            tuple((each.applied, each.next[0], each.next[1]) for each in stage.fences),
            outputs,
            shards,
            any(stage.same),
            tuple((first, second) for first, second in _following(stage, width)),
            since,
            moves.digests(made),
            upstream,
            old.topic_prefix,
        )
        for made in stage.made
    ]


async def _upstream(
    reader: AIOKafkaConsumer, stages: Sequence[Stage], intake: Mapping[TopicPartition, tuple[int, str]]
) -> Upstream | None:
    """Return how far intake and router of the old group have come; None if there are none."""
    if len(stages) == 1:
        return None
    worker, router = stages
    width = worker.moved.partitions
    ends = [await topic_ends(reader, name, len(worker.parts)) for name, _ in worker.names]
    begin = [[*each, *[0] * width] if stay else [0] * width for each, stay in zip(ends, worker.same, strict=True)]
    return Upstream(
        {
            label: (name, each.id)
            for label, (name, _), each in zip(("routes", "labels"), router.names, router.ids, strict=True)
        },
        tuple((each.applied, each.next[0], each.next[1]) for each in router.fences),
        tuple(zip(*ends, strict=True)),
        tuple((begin[0][n], begin[1][n]) for n in range(width)),
        tuple((*place, offset, source_id(noted)) for place, (offset, noted) in sorted(intake.items())),
    )


async def _known(stage: Stage) -> Move | None:
    """Return what an earlier command has told of the same move."""
    name, found = stage.new.configurations, None
    async for record in reading.records(stage.new, [name]):
        if record.key == in_force.MOVED and record.value is not None:
            try:
                move = Move.decode(record.value)
            except MoveError as exc:
                raise TopicsError(f"{name}: {exc}") from exc
            found = move if move.of(stage.moved) else found
    return found


def _inputs(stage: Stage) -> dict[TopicPartition, tuple[int, str]]:
    return {
        TopicPartition(name, n): (following, "")
        for topic, (_, name) in enumerate(stage.names)
        for n, each in enumerate(_following(stage, stage.moved.partitions))
        if (following := each[topic])
    }


async def _commit(settings: Settings, offsets: Mapping[TopicPartition, tuple[int, str]], suffix: str = "") -> None:
    if not offsets:
        return
    async with open_group(settings, suffix) as consumer:
        consumer.assign(list(offsets))
        await consumer.commit(dict(offsets))
