"""``trueup state rescale --partitions N --to APP_ID``: a group's state, divided anew among N partitions.

The state goes to another application id, with a changelog of its own; nothing of the old one is changed. So whatever
happens on the way, the old group is as it was, and starting its workers again is the way back.

1. Nobody may be in the old groups or the new ones. Their workers were stopped, not killed: checkpoints have everything.
   All records of the old inputs are applied.
2. The old changelogs are read, and divided (`state.rescale`). It is the same each time, so it can be done again.
3. Each new partition gets a fence that no worker accepts, then its rows, and a row that says what they were made of.
   What an audit has to know to make them again goes to the topic of what is in force (`replay.moves`).
4. The offsets of the new groups are committed. The old changelogs must end where they did.
5. Each new partition gets its fence: **that is its commit point.** One that has it is left as it is when the command
   is run again; workers refuse the others until then.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from replay import moves
from replay.export_state import append, open_group
from replay.moves import EVENT, STREAM, Move, MoveError, Upstream, plan
from state import journal, kinds, routes
from state.fence import Fence
from state.frames import CorruptFrame
from state.inputs import InputIds, Widths
from state.rescale import MOVED, Moved, Plan, RescaleError, rescaled, rescaled_routes
from streams.config import in_force
from streams.config.settings import Settings, SettingsError
from streams.kafka import groups, owners, provenance, topics
from streams.kafka.partitioner import partition
from streams.kafka.provenance import Identity
from streams.kafka.topics import TopicsError
from streams.kafka.whole_topics import FETCH_BYTES
from streams.kafka.writer import writer

log = logging.getLogger("trueup")

#: The fence of a partition while its rows are being written.
UNFINISHED: Final = b"trueup state rescale has not finished writing this state"
#: Longest wait for anything of a topic, s.
STILL_SECONDS: Final = 60.0

#: Called with the number of the step just finished, for each partition of each stage; tests kill the process here. 1:
#: a fence that no worker accepts is written, 2: the rows are, 3: the offsets are committed, 4: the fence is written.
Probe = Callable[[int], None]
Rows = dict[bytes, bytes]


@dataclass
class Stage:
    """A worker's or a router's state, from the old application to the new one.

    Attributes
    ----------
    old, new
        The settings of both.
    parts, ends
        Rows of the old partitions, and where their changelogs end.
    fences
        Fences of the old partitions.
    ids, inputs
        Ids of the old inputs and of the new ones, with their numbers of partitions.
    moved
        What the new rows are made of.
    made
        The new rows.
    """

    old: Settings
    new: Settings
    parts: list[Rows]
    ends: list[int]
    fences: list[Fence]
    ids: list[Identity]
    inputs: list[Identity]
    moved: Moved
    made: list[Rows]

    @property
    def names(self) -> list[tuple[str, str]]:
        """The inputs by their old and their new name."""
        return [(self.old.forecasts, self.new.forecasts), (self.old.outcomes, self.new.outcomes)]

    @property
    def same(self) -> list[bool]:
        """Whether an input is the topic that it was."""
        return [
            old == new and before.id == now.id
            for (old, new), before, now in zip(self.names, self.ids, self.inputs, strict=True)
        ]


def settled(environment: Mapping[str, str], app_id: str, changes: Sequence[str]) -> Settings:
    """Return the settings of the new group: the environment's with some changed, each ``NAME=VALUE``.

    Raises
    ------
    SettingsError
        If a change has another form, or what it sets is not allowed.
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

    Parameters
    ----------
    old, new
        Settings of the group that was, and of the one that is to be.
    width
        The new number of partitions.
    by
        What the worker's inputs are keyed by, one of `replay.moves.KEYS`; None: behind a router the stream, else the
        event.
    probe
        Called after each step.
    dry_run
        Divide it, and write nothing.

    Raises
    ------
    SettingsError
        If both have one application id, or not the same stages.
    TopicsError
        If topics, groups or rows are not as they have to be, or the brokers cannot be asked; the message says more.
    """
    if old.app_id == new.app_id:
        raise SettingsError(f"--to must name another application id than {old.app_id}: its state is left as it is")
    if old.brokers != new.brokers:
        raise SettingsError("both groups must be on the same brokers")
    if len(old.stages) != len(new.stages):
        raise SettingsError("only one of both groups has a router: the sources must be read in the same way")
    try:
        return asyncio.run(_run(old, new, width, by, probe, dry_run=dry_run))
    except CorruptFrame as exc:
        raise TopicsError(f"the state of {old.app_id} cannot be read: {exc}") from exc
    except owners.OwnersError as exc:
        raise TopicsError(str(exc)) from exc
    except RescaleError as exc:
        raise TopicsError(f"the state of {old.app_id} cannot be divided anew: {exc}") from exc
    except (KafkaError, TimeoutError) as exc:
        raise TopicsError(f"the brokers: {exc or type(exc).__name__}; run the command again", lasting=False) from exc


async def _run(old: Settings, new: Settings, width: int, by: str | None, probe: Probe, *, dry_run: bool) -> str:
    for stage in new.stages:
        await _require_topics(stage, width)
    async with AsyncExitStack() as stack:
        options = {"bootstrap_servers": ",".join(old.brokers), **old.security.client_options()}
        admin = AIOKafkaAdminClient(**options)
        await admin.start()
        stack.push_async_callback(admin.close)
        producer = await stack.enter_async_context(writer(new))
        reader = await stack.enter_async_context(_reader(options))
        await _require_idle(admin, [old, new])
        stages = [await _stage(reader, producer, *each, width) for each in zip(old.stages, new.stages, strict=True)]
        for each in stages:
            await _require_applied(reader, each, width)
        intake = await _intake(admin, producer, old, stages, width)
        by = by or (EVENT if len(stages) == 1 else STREAM)
        shards = _divide(stages, width, by)
        there = [await _there(reader, each) for each in stages]
        if not any(partition is None for each in there for partition in each):
            return f"{new.app_id} has the state of {old.app_id} in {width} partitions already: nothing was written"
        rows = sum(len(part) for each in stages for part in each.parts)
        if dry_run:
            return f"{rows} rows of {old.app_id} can be divided among {width} partitions; nothing was written"
        log.info("dividing %d rows anew", rows)
        committed = any(each is not None for partitions in there for each in partitions)
        told = await _told(reader, producer, stages, by, shards, intake, again=committed)
        for each, finished, said in zip(stages, there, (told, None), strict=False):
            await _write(producer, reader, each, finished, said, probe)
        if not committed:  # the workers may have gone on since
            for each in stages:
                await _commit(each.new, _inputs(each))
            await _commit(new, intake, "-intake")
        probe(3)
        await _require_idle(admin, [old, new])
        await _require_still(reader, stages)
        await owners.take(admin, new)
        for each, finished in zip(stages, there, strict=True):
            for n, done in enumerate(finished):
                if done is None:
                    await append(producer, each.new, n, [(kinds.FENCE.key(), each.made[n][kinds.FENCE.key()])])
                    probe(4)
    written = sum(len(part) for each in stages for part in each.made)
    return (
        f"{written} rows of {old.app_id} are in {width} partitions of {new.app_id}. Start its workers; those of "
        f"{old.app_id} stay as they are, and are the way back until the new ones have answered"
    )


def _reader(options: Mapping[str, Any]) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=FETCH_BYTES,
        **options,
    )


# -- what is required ------------------------------------------------------------------------------------------------


async def _require_topics(settings: Settings, width: int) -> None:
    problems = await topics.check(settings, as_worker=False, partitions=width)
    if problems:
        named = " ".join(
            f"TRUEUP_{name.upper()}={getattr(settings, name)}"
            for name in (
                "app_id",
                "topic_prefix",
                "forecasts",
                "outcomes",
                "calibrated",
                "resolved",
                "dead_letters",
                "maps",
            )
            if getattr(settings, name)
        )
        raise TopicsError(
            "; ".join(problems) + f". Make the topics of the new group, which may have other names: {named} trueup "
            f"topics create --partitions {width}; and name them to this command, too"
        )


async def _require_idle(admin: AIOKafkaAdminClient, each: Sequence[Settings]) -> None:
    names = [
        name for settings in each for name in (*[stage.app_id for stage in settings.stages], settings.intake_group)
    ]
    for name in names:
        if there := await groups.members(admin, name):
            raise TopicsError(
                f"group {name} has {there} members: stop them first. Producers may go on, if they write to the "
                "topics of the new group or intake reads what they write"
            )


async def _require_still(reader: AIOKafkaConsumer, stages: Sequence[Stage]) -> None:
    for each in stages:
        if await _ends(reader, each.old.changelog, len(each.ends)) != each.ends:
            raise TopicsError(f"{each.old.changelog} has grown meanwhile: stop its workers, then run the command again")


async def _require_applied(reader: AIOKafkaConsumer, stage: Stage, width: int) -> None:
    """See that all records of the inputs are applied, or stay in the partition that they are in."""
    for topic, (name, _) in enumerate(stage.names):
        following = {TopicPartition(name, n): fence.next[topic] for n, fence in enumerate(stage.fences)}
        behind: dict[TopicPartition, int] = defaultdict(int)
        async for place, record in _records(reader, following):
            stays = stage.same[topic] and record.key is not None and partition(record.key, width) == place.partition
            behind[place] += not stays
        if any(behind.values()):
            places = ", ".join(f"{n} of {place.topic}/{place.partition}" for place, n in behind.items() if n)
            raise TopicsError(
                f"records are not applied yet: {places}. Let producers write to the new topics, let the workers of "
                f"{stage.old.app_id} read the old ones to their ends, stop them, and run the command again"
            )


async def _intake(
    admin: AIOKafkaAdminClient, producer: AIOKafkaProducer, old: Settings, stages: Sequence[Stage], width: int
) -> dict[TopicPartition, tuple[int, str]]:
    """Return what intake of the new group is to go on from.

    Raises
    ------
    TopicsError
        If records were sent whose offsets were not committed: they would be sent to other partitions once more.
    """
    if len(stages) == 1:
        return {}
    committed = await admin.list_consumer_group_offsets(old.intake_group)
    names = dict.fromkeys(mode.topic for mode in old.modes if not mode.direct)
    ids = {(await provenance.identity(producer.client, name)).id: name for name in names}
    for part in stages[1].parts:
        for key, row in part.items():
            if key[:1] != routes.ORIGIN.letter:
                continue
            topic_id, _, number = key[1:].decode().rpartition("@")[2].rpartition("/")
            place = TopicPartition(ids.get(topic_id, ""), int(number))
            sent = routes.ORIGIN.decode(row)
            if place.topic and committed.get(place, (0, ""))[0] < sent:
                raise TopicsError(
                    f"intake has sent {place.topic}/{place.partition} up to offset {sent - 1} and not committed it: "
                    f"start all stages of {old.app_id} once more, and stop intake, router and workers by SIGTERM"
                )
    return {place: (offset, _noted(noted, width)) for place, (offset, noted) in committed.items() if offset >= 0}


def _noted(noted: str, width: int) -> str:
    """Return what intake has committed beside an offset, with other widths of the topics that it sends to."""
    try:
        said = json.loads(noted)
        said["partitions"] = [width for _ in said["partitions"]]
    except (ValueError, TypeError, KeyError):
        return noted
    return json.dumps(said, separators=(",", ":"))


def _source_id(noted: str) -> str:
    """Return the id of the source topic that intake has committed beside an offset; empty if there is none."""
    try:
        return str(json.loads(noted)["id"])
    except (ValueError, TypeError, KeyError):
        return ""


# -- reading ---------------------------------------------------------------------------------------------------------


async def _stage(
    reader: AIOKafkaConsumer, producer: AIOKafkaProducer, old: Settings, new: Settings, width: int
) -> Stage:
    changelog = await provenance.identity(producer.client, old.changelog) if await _exists(old) else None
    if changelog is None:
        raise TopicsError(f"there is no topic {old.changelog}: is TRUEUP_APP_ID that of the workers?")
    ids = [await provenance.identity(producer.client, name) for name in (old.forecasts, old.outcomes)]
    inputs = [await provenance.identity(producer.client, name) for name in (new.forecasts, new.outcomes)]
    ends = await _ends(reader, old.changelog, changelog.partitions)
    parts = await _rows(reader, old.changelog, changelog.partitions)
    if any(part.get(kinds.FENCE.key()) == UNFINISHED for part in parts):
        raise TopicsError(f"{old.changelog} is itself half written by trueup state rescale: finish that first")
    _require_written(old, parts)
    fences = [Fence.decode(part[kinds.FENCE.key()]) if kinds.FENCE.key() in part else Fence() for part in parts]
    stage = Stage(old, new, parts, ends, fences, ids, inputs, Moved(old.app_id, changelog.id, tuple(ends), width), [])
    _require_known(stage)
    return stage


async def _exists(settings: Settings) -> bool:
    return await topics.partitions(settings, settings.changelog) is not None


def _require_written(old: Settings, parts: Sequence[Rows]) -> None:
    """See that the last checkpoint of each partition has everything that was folded."""
    for n, part in enumerate(parts):
        if behind := journal.read(part.get).entries:
            records = sum(len(each.topics) for each in behind)
            raise TopicsError(
                f"{records:,} records of partition {n} of {old.changelog} are in its journal and not yet in its rows: "
                f"{old.app_id} was killed, not stopped. Start its workers once more, stop them by SIGTERM, and run the "
                "command again"
            )


def _require_known(stage: Stage) -> None:
    """See that the old inputs are the topics whose records were applied."""
    for part in stage.parts:
        if kinds.INPUTS.key() not in part:
            continue
        for name, known, now in zip(stage.names, kinds.INPUTS.decode(part[kinds.INPUTS.key()]), stage.ids, strict=True):
            if now.id and known != now.id:
                raise TopicsError(
                    f"{name[0]} was deleted and made anew since the state of {stage.old.app_id} was written"
                )


async def _ends(reader: AIOKafkaConsumer, topic: str, count: int) -> list[int]:
    places = [TopicPartition(topic, n) for n in range(count)]
    ends = await reader.end_offsets(places)
    return [ends[place] for place in places]


async def _rows(reader: AIOKafkaConsumer, topic: str, count: int) -> list[Rows]:
    """Return the rows of each partition of a changelog."""
    parts: list[Rows] = [{} for _ in range(count)]
    first = await reader.beginning_offsets([TopicPartition(topic, n) for n in range(count)])
    async for place, record in _records(reader, first):
        if record.value is None:
            parts[place.partition].pop(record.key, None)
        else:
            parts[place.partition][record.key] = record.value
    return [dict(sorted(part.items())) for part in parts]  # sums of rounded numbers depend on the order


async def _records(reader: AIOKafkaConsumer, since: Mapping[TopicPartition, int]) -> Any:  # noqa: ANN401 - an iterator
    """Yield place and record of all that stands behind some offsets now."""
    ends = await reader.end_offsets(list(since))
    first = await reader.beginning_offsets(list(since))
    left = {place for place, offset in since.items() if max(offset, first[place]) < ends[place]}
    if not left:
        return
    reader.assign(list(left))
    for place in left:
        reader.seek(place, max(since[place], first[place]))
    still = asyncio.get_running_loop().time()
    while left:
        found = await reader.getmany(*left, timeout_ms=500)
        for place, records in found.items():
            for record in records:
                if record.offset < ends[place]:
                    yield place, record
        for place in list(left):
            if await reader.position(place) >= ends[place]:
                left.discard(place)
        now = asyncio.get_running_loop().time()
        if found:
            still = now
        elif now - still > STILL_SECONDS:
            raise TopicsError(f"nothing of {', '.join(map(str, left))} came for {STILL_SECONDS:g} s", lasting=False)


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
    """Return the next offsets of the new partitions."""
    following = [[0, 0] for _ in range(width)]
    for topic, same in enumerate(stage.same):
        if same:
            for n, fence in enumerate(stage.fences[:width]):
                following[n][topic] = fence.next[topic]
    return following


# -- writing ---------------------------------------------------------------------------------------------------------


async def _there(reader: AIOKafkaConsumer, stage: Stage) -> list[Rows | None]:
    """Return the rows of each new partition that is finished, and None of the others.

    Raises
    ------
    TopicsError
        If a partition has a state that is of something else.
    """
    there: list[Rows | None] = []
    for n, part in enumerate(await _rows(reader, stage.new.changelog, stage.moved.partitions)):
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
    reader: AIOKafkaConsumer,
    stage: Stage,
    finished: Sequence[Rows | None],
    told: Sequence[Move] | None,
    probe: Probe,
) -> None:
    unfinished = [n for n, done in enumerate(finished) if done is None]
    for n in unfinished:
        await append(producer, stage.new, n, [(kinds.FENCE.key(), UNFINISHED)])
        probe(1)
    before = await _rows(reader, stage.new.changelog, len(finished))
    for n in unfinished:
        made = stage.made[n]
        gone = [(key, None) for key in before[n] if key not in made]
        await append(
            producer, stage.new, n, [*gone, *((key, row) for key, row in made.items() if key != kinds.FENCE.key())]
        )
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
    """Return what audits are told of each new partition.

    Where outputs end was told by the first command of several that were stopped on the way: workers may have written to
    the partitions that it had finished. What intake and router had done is told as it was when the offsets of the new
    group were committed last: ``again`` is whether some partition was finished after that.
    """
    stage = stages[0]
    old, new, width = stage.old, stage.new, stage.moved.partitions
    labels = [(label, getattr(old, label), getattr(new, label)) for label in ("calibrated", "resolved", "dead_letters")]
    ids = {name: await provenance.identity(producer.client, name) for _, *names in labels for name in names}
    known = await _known(reader, stage)
    if known is None:
        ends = [await _ends(reader, name, ids[name].partitions) for _, name, _ in labels]
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
    ends = [await _ends(reader, name, len(worker.parts)) for name, _ in worker.names]
    begin = [[*each, *[0] * width] if stay else [0] * width for each, stay in zip(ends, worker.same, strict=True)]
    return Upstream(
        {
            label: (name, each.id)
            for label, (name, _), each in zip(("routes", "labels"), router.names, router.ids, strict=True)
        },
        tuple((each.applied, each.next[0], each.next[1]) for each in router.fences),
        tuple(zip(*ends, strict=True)),
        tuple((begin[0][n], begin[1][n]) for n in range(width)),
        tuple((*place, offset, _source_id(noted)) for place, (offset, noted) in sorted(intake.items())),
    )


async def _known(reader: AIOKafkaConsumer, stage: Stage) -> Move | None:
    """Return what an earlier command has told of the same move."""
    name, found = stage.new.configurations, None
    first = await reader.beginning_offsets([TopicPartition(name, n) for n in range(stage.moved.partitions)])
    async for _, record in _records(reader, first):
        if record.key == in_force.MOVED and record.value is not None:
            try:
                move = Move.decode(record.value)
            except MoveError as exc:
                raise TopicsError(f"{name}: {exc}") from exc
            found = move if move.of(stage.moved) else found
    return found


def _inputs(stage: Stage) -> dict[TopicPartition, tuple[int, str]]:
    """Return the offsets of the new group."""
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
