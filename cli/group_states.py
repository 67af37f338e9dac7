"""The states that ``trueup state rescale`` reads and writes, a worker's or a router's, and what it requires of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from agents.taken_up import Noted
from cli import reading
from state import journal, kinds, routes
from state.fence import Fence
from state.rescale import Moved
from streams.config.settings import Settings
from streams.faust import offsets
from streams.faust.claims import UNFINISHED
from streams.kafka import groups, provenance, topics
from streams.kafka.metadata import Metadata
from streams.kafka.partitioner import partition
from streams.kafka.topics import TopicsError

Rows = dict[bytes, bytes]


class MovedInput(NamedTuple):
    """An input of a stage: its topic in the old group and in the new group, and what identifies both."""

    old: str
    new: str
    before: Metadata
    now: Metadata

    @property
    def same(self) -> bool:
        """Whether it is still the same topic."""
        return self.old == self.new and self.before.id == self.now.id


@dataclass
class StageState:
    """The state of a worker or router, on its way from the old application to the new one."""

    #: Settings of the old and the new application.
    old: Settings
    new: Settings
    #: Rows of the old partitions, and the ends of their changelogs.
    parts: list[Rows]
    ends: list[int]
    #: Fences of the old partitions.
    fences: list[Fence]
    #: The inputs, in the order of their numbers.
    inputs: list[MovedInput]
    #: What the new rows were made from.
    moved: Moved
    #: The new rows.
    made: list[Rows]


# -- what is required ------------------------------------------------------------------------------------------------


async def require_topics(settings: Settings, width: int) -> None:
    """Require that the topics of the new group exist and are as needed."""
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


async def require_idle(admin: AIOKafkaAdminClient, each: Sequence[Settings]) -> None:
    """Require that the groups have no members."""
    names = [
        name for settings in each for name in (*[stage.app_id for stage in settings.stages], settings.intake_group)
    ]
    for name in names:
        if there := await groups.members(admin, name):
            raise TopicsError(
                f"group {name} has {there} members: stop them first. Producers may go on, if they write to the "
                "topics of the new group or intake reads what they write"
            )


async def require_still(reader: AIOKafkaConsumer, stages: Sequence[StageState]) -> None:
    """Require that the old changelogs have not grown."""
    for each in stages:
        if await topic_ends(reader, each.old.changelog, len(each.ends)) != each.ends:
            raise TopicsError(f"{each.old.changelog} has grown meanwhile: stop its workers, then run the command again")


async def require_applied(stage: StageState, width: int) -> None:
    """Require that all records of the inputs are applied, or stay in their partition."""
    for topic, read in enumerate(stage.inputs):
        following = {TopicPartition(read.old, n): fence.next[topic] for n, fence in enumerate(stage.fences)}
        behind = Counter[int]()
        async for record in reading.records(stage.old, [read.old], committed=True, starts=following):
            to = None if record.key is None else partition(record.key, width)
            behind[record.partition] += not (read.same and to == record.partition)
        if behind.total():
            places = ", ".join(f"{n} of {read.old}/{place}" for place, n in behind.items() if n)
            raise TopicsError(
                f"records are not applied yet: {places}. Let producers write to the new topics, let the workers of "
                f"{stage.old.app_id} read the old ones to their ends, stop them, and run the command again"
            )


async def intake_offsets(
    admin: AIOKafkaAdminClient, producer: AIOKafkaProducer, old: Settings, stages: Sequence[StageState], width: int
) -> dict[TopicPartition, tuple[int, str]]:
    """Return the offsets from which intake of the new group will go on.

    Raises TopicsError if records were sent but their offsets were not committed: they would be sent again, to other
    partitions.
    """
    if len(stages) == 1:
        return {}
    committed = await offsets.committed(admin, old.intake_group)
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
                    f"start all stages of {old.app_id} once more, and when they have read all, stop intake, router and "
                    "workers by SIGTERM"
                )
    return {place: (offset, _widened(noted, width)) for place, (offset, noted) in committed.items() if offset >= 0}


def _widened(noted: str, width: int) -> str:
    """Return the metadata that intake has committed with an offset, with new widths of the topics that it sends to."""
    said = Noted.read(noted)
    return said._replace(partitions=[width] * len(said.partitions)).text if said.id else noted


# -- reading ---------------------------------------------------------------------------------------------------------


async def read_stage(
    reader: AIOKafkaConsumer, producer: AIOKafkaProducer, old: Settings, new: Settings, width: int
) -> StageState:
    """Read the state of a worker or a router, and require that it can be divided."""
    await reading.width(old, old.changelog, ": is TRUEUP_APP_ID that of the workers?")
    changelog = await provenance.identity(producer.client, old.changelog)
    names = zip(old.inputs, new.inputs, strict=True)
    inputs = [MovedInput(*pair, *[await provenance.identity(producer.client, name) for name in pair]) for pair in names]
    ends = await topic_ends(reader, old.changelog, changelog.partitions)
    parts = await topic_rows(old, old.changelog, changelog.partitions)
    if any(part.get(kinds.FENCE.key()) == UNFINISHED for part in parts):
        raise TopicsError(f"{old.changelog} is itself half written by a command: finish that first")
    _require_written(old, parts)
    fences = [Fence.decode(part[kinds.FENCE.key()]) if kinds.FENCE.key() in part else Fence() for part in parts]
    stage = StageState(old, new, parts, ends, fences, inputs, Moved(old.app_id, changelog.id, tuple(ends), width), [])
    _require_known(stage)
    return stage


def _require_written(old: Settings, parts: Sequence[Rows]) -> None:
    """Require that the last checkpoint of each partition holds all that was applied."""
    for n, part in enumerate(parts):
        if behind := journal.read(part.get).entries:
            records = sum(len(each.topics) for each in behind)
            raise TopicsError(
                f"{records:,} records of partition {n} of {old.changelog} are in its journal and not yet in its rows: "
                f"{old.app_id} was killed, not stopped. Start its workers once more, stop them by SIGTERM, and run the "
                "command again"
            )


def _require_known(stage: StageState) -> None:
    """Require that the old inputs are the same topics whose records were applied."""
    for part in stage.parts:
        if kinds.INPUTS.key() not in part:
            continue
        for known, read in zip(kinds.INPUTS.decode(part[kinds.INPUTS.key()]), stage.inputs, strict=True):
            if read.before.id and known != read.before.id:
                raise TopicsError(
                    f"{read.old} was deleted and recreated since the state of {stage.old.app_id} was written"
                )


async def topic_ends(reader: AIOKafkaConsumer, topic: str, count: int) -> list[int]:
    """Return where each partition of a topic ends."""
    places = [TopicPartition(topic, n) for n in range(count)]
    ends = await reader.end_offsets(places)
    return [ends[place] for place in places]


async def topic_rows(settings: Settings, topic: str, count: int) -> list[Rows]:
    """Return the rows of each partition of a changelog."""
    parts: list[Rows] = [{} for _ in range(count)]
    async for record in reading.records(settings, [topic]):
        if record.value is None:
            parts[record.partition].pop(record.key, None)
        else:
            parts[record.partition][record.key] = record.value
    return [dict(sorted(part.items())) for part in parts]  # sums of rounded numbers depend on the order
