"""``trueup rescale --partitions N --to APP_ID``: a group's state, divided anew among N partitions.

The state goes to another application id, with a changelog of its own; nothing of the old one is changed. So whatever
happens on the way, the old group is as it was, and starting its workers again is the way back.

1. Nobody may be in the old groups or the new ones. All records of the old inputs are applied and answered.
2. The old changelogs are read, and divided (`state.rescale`). It is the same each time, so it can be done again.
3. Each new partition gets a fence that no worker accepts, then its rows, and a row that says what they were made of.
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
from aiokafka.errors import KafkaError, for_code

from replay.export_state import append, open_group, writer
from state import keys, routes
from state.fence import Fence
from state.frames import CorruptFrame
from state.inputs import InputIds, Widths
from state.rescale import Moved, Moves, Plan, RescaleError, rescaled, rescaled_routes
from streams.config import in_force
from streams.config.settings import Settings, SettingsError
from streams.kafka import provenance, topics
from streams.kafka.partitioner import partition
from streams.kafka.provenance import Identity
from streams.kafka.topics import TopicsError
from streams.kafka.whole_topics import FETCH_BYTES
from streams.records.decoding import SCOPED
from streams.records.routing import target

log = logging.getLogger("trueup")

#: The fence of a partition while its rows are being written.
UNFINISHED: Final = b"trueup rescale has not finished writing this state"
#: What the inputs of a worker are keyed by.
EVENT, STREAM = KEYS = ("event", "stream")
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


def run(old: Settings, new: Settings, width: int, by: str | None, probe: Probe = lambda _: None) -> str:
    """Divide a group's state, and return a message about it.

    Parameters
    ----------
    old, new
        Settings of the group that was, and of the one that is to be.
    width
        The new number of partitions.
    by
        What the worker's inputs are keyed by, one of `KEYS`; None: the stream behind a router, else the event.
    probe
        Called after each step.

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
        return asyncio.run(_run(old, new, width, by, probe))
    except CorruptFrame as exc:
        raise TopicsError(f"the state of {old.app_id} cannot be read: {exc}") from exc
    except RescaleError as exc:
        raise TopicsError(f"the state of {old.app_id} cannot be divided anew: {exc}") from exc
    except (KafkaError, TimeoutError) as exc:
        raise TopicsError(f"the brokers: {exc or type(exc).__name__}; run the command again", lasting=False) from exc


async def _run(old: Settings, new: Settings, width: int, by: str | None, probe: Probe) -> str:
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
            await _require_applied(admin, reader, each, width)
        intake = await _intake(admin, producer, old, stages, width)
        _divide(stages, width, by or (EVENT if len(stages) == 1 else STREAM))
        there = [await _there(reader, each) for each in stages]
        if not any(partition is None for each in there for partition in each):
            return f"{new.app_id} has the state of {old.app_id} in {width} partitions already: nothing was written"
        log.info("dividing %d rows anew", sum(len(part) for each in stages for part in each.parts))
        committed = any(each is not None for partitions in there for each in partitions)
        for each, finished in zip(stages, there, strict=True):
            await _write(producer, reader, each, finished, probe)
        if not committed:  # the workers may have gone on since
            for each in stages:
                await _commit(each.new, _inputs(each))
            await _commit(new, intake, "-intake")
        probe(3)
        await _require_idle(admin, [old, new])
        for each in stages:
            if await _ends(reader, each.old.changelog, len(each.ends)) != each.ends:
                raise TopicsError(
                    f"{each.old.changelog} has grown meanwhile: stop its workers, then run the command again"
                )
        for each, finished in zip(stages, there, strict=True):
            for n, done in enumerate(finished):
                if done is None:
                    await append(producer, each.new, n, [(keys.FENCE, each.made[n][keys.FENCE])])
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
            for name in ("app_id", "forecasts", "outcomes", "calibrated", "resolved", "dead_letters", "maps")
            if getattr(settings, name)
        )
        raise TopicsError(
            "; ".join(problems) + f". Make the topics of the new group, which may have other names: {named} trueup "
            f"topics create --partitions {width}; and name them to this command, too"
        )


async def _require_idle(admin: AIOKafkaAdminClient, each: Sequence[Settings]) -> None:
    groups = [
        name
        for settings in each
        for name in (*[stage.app_id for stage in settings.stages], f"{settings.app_id}-intake")
    ]
    for name in groups:
        (response,) = await admin.describe_consumer_groups([name])
        code, _, _, _, _, members, *_ = response.groups[0]
        if code:
            raise for_code(code)(f"group {name} cannot be described")
        if members:
            raise TopicsError(
                f"group {name} has {len(members)} members: stop them first. Producers may go on, if they write to the "
                "topics of the new group or intake reads what they write"
            )


async def _require_applied(admin: AIOKafkaAdminClient, reader: AIOKafkaConsumer, stage: Stage, width: int) -> None:
    """See that all records of the inputs are applied and answered, or stay in the partition that they are in."""
    committed = await admin.list_consumer_group_offsets(stage.old.app_id)
    for topic, (name, _) in enumerate(stage.names):
        following = {TopicPartition(name, n): fence.next[topic] for n, fence in enumerate(stage.fences)}
        for place, offset in following.items():
            answered = committed.get(place, (0, ""))[0]
            if answered < offset:
                raise TopicsError(
                    f"{offset - max(answered, 0)} records of {name}/{place.partition} are applied, but may not be "
                    f"answered: start the workers of {stage.old.app_id} once more, and stop them by SIGTERM"
                )
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
    committed = await admin.list_consumer_group_offsets(f"{old.app_id}-intake")
    names = dict.fromkeys(mode.topic for mode in old.modes if not mode.direct)
    ids = {(await provenance.identity(producer.client, name)).id: name for name in names}
    for part in stages[1].parts:
        for key, row in part.items():
            if key[:1] != routes.ORIGIN:
                continue
            topic_id, _, number = key[1:].decode().rpartition("@")[2].rpartition("/")
            place = TopicPartition(ids.get(topic_id, ""), int(number))
            sent = routes.offset_of(row)
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
    if any(part.get(keys.FENCE) == UNFINISHED for part in parts):
        raise TopicsError(f"{old.changelog} is itself half written by trueup rescale: finish that first")
    fences = [Fence.decode(part[keys.FENCE]) if keys.FENCE in part else Fence() for part in parts]
    stage = Stage(old, new, parts, ends, fences, ids, inputs, Moved(old.app_id, changelog.id, tuple(ends), width), [])
    _require_known(stage)
    return stage


async def _exists(settings: Settings) -> bool:
    return await topics.partitions(settings, settings.changelog) is not None


def _require_known(stage: Stage) -> None:
    """See that the old inputs are the topics whose records were applied."""
    for part in stage.parts:
        if keys.INPUTS not in part:
            continue
        for name, known, now in zip(stage.names, InputIds.decode(part[keys.INPUTS]), stage.ids, strict=True):
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
    return parts


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


def _divide(stages: Sequence[Stage], width: int, by: str) -> None:
    worker, *routers = stages
    routed = routers[0].parts if routers else []
    worker.made = rescaled(worker.parts, _plan(worker, width, by, routed))
    for router in routers:
        router.made = rescaled_routes(router.parts, _plan(router, width, EVENT, []))
    for stage in stages:
        for part in stage.made:
            part[keys.MOVED] = stage.moved.encode()
            part[keys.WIDTHS] = Widths(*(each.partitions for each in stage.inputs)).encode()
            if all(each.id for each in stage.inputs):
                part[keys.INPUTS] = InputIds(*(each.id for each in stage.inputs)).encode()


def _plan(stage: Stage, width: int, by: str, routed: Sequence[Rows]) -> Plan:
    before = len(stage.parts)
    policies = stage.new.policies
    grown = any(stage.same)

    def shards(stream: str) -> int:
        policy = policies.of(stream)
        return 1 if policy is None else policy.shards

    def right(key: str, old: int) -> bool:
        """Whether a key's records stand there; also where an input has grown while it was read."""
        name = key.encode()
        return partition(name, before) == old or (grown and partition(name, width) == old)

    def of_event(name: str, stream: str, old: int) -> int:
        key = name if by == EVENT else _stream_key(name, stream, old, shards, right, routed)
        if not right(key, old):
            other = STREAM if by == EVENT else EVENT
            raise RescaleError(
                f"event {name!r} is in partition {old}, and its {by} would be in {partition(key.encode(), before)}. "
                f"Are the inputs keyed by {other}? Then give --keys {other}. If they are keyed by anything else, it is "
                "not known where records of an event will be; see docs/routing.md"
            )
        return partition(key.encode(), width)

    def of_stream(stream: str) -> Moves:
        if by == EVENT:
            return frozenset((old, new) for old in range(before) for new in range(width))
        names = [stream] if shards(stream) == 1 else [f"{stream}#{k}" for k in range(shards(stream))]
        return frozenset((partition(each.encode(), before), partition(each.encode(), width)) for each in names)

    def home(stream: str) -> int:
        many = by == STREAM and shards(stream) > 1
        return partition((f"{stream}#0" if many else stream).encode(), width)

    return Plan(width, of_event, of_stream, home, _following(stage, width))


def _stream_key(
    name: str,
    stream: str,
    old: int,
    shards: Callable[[str], int],
    right: Callable[[str, int], bool],
    routed: Sequence[Rows],
) -> str:
    """Return the key of an event's records, where they are keyed by stream."""
    event_id, _, scope = name.partition(SCOPED)
    stream = stream or scope
    if not stream:
        raise RescaleError(
            f"an outcome of event {event_id!r} waits for its forecast and does not say its stream: wait until it has "
            "expired (early_ttl)"
        )
    key = target(stream, event_id, shards(stream))
    if right(key, old) or not routed:
        return key
    # The number of shards has changed since: the router knows where its forecast went.
    row = routed[partition(event_id.encode(), len(routed))].get(routes.EVENT + event_id.encode())
    known = routes.Row.decode(row).routes if row is not None else []
    return next((each.target for each in known if each.stream == stream), key)


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
        begun = part.get(keys.FENCE) in (None, UNFINISHED)
        if not begun and part.get(keys.MOVED) != stage.moved.encode():
            raise TopicsError(
                f"partition {n} of {stage.new.changelog} has a state that is not of {stage.old.app_id} as it is now: "
                "take another application id, or delete the topic and make it anew"
            )
        there.append(None if begun else part)
    return there


async def _write(
    producer: AIOKafkaProducer, reader: AIOKafkaConsumer, stage: Stage, finished: Sequence[Rows | None], probe: Probe
) -> None:
    unfinished = [n for n, done in enumerate(finished) if done is None]
    for n in unfinished:
        await append(producer, stage.new, n, [(keys.FENCE, UNFINISHED)])
        probe(1)
    before = await _rows(reader, stage.new.changelog, len(finished))
    for n in unfinished:
        made = stage.made[n]
        gone = [(key, None) for key in before[n] if key not in made]
        await append(producer, stage.new, n, [*gone, *((key, row) for key, row in made.items() if key != keys.FENCE)])
        if not stage.new.routed:  # an audit cannot derive these rows
            said = stage.moved.encode()
            await producer.send_and_wait(stage.new.configurations, said, in_force.MOVED, partition=n)
        probe(2)


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
