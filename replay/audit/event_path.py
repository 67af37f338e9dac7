"""``trueup audit --event ID``: the path of one event, from its source records to its answer and its label."""

import asyncio
import base64
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from rich.markup import escape

from replay.audit.mapper import Made, Mapper
from replay.audit.plan import MADE, AuditPlan, planned
from replay.audit.reader import PartitionReader, named
from replay.console import Console
from streams.config.settings import Settings
from streams.kafka.topics import TopicsError, partitions
from streams.kafka.whole_topics import batches
from streams.records import skips
from streams.records.mentions import mentions
from streams.records.merge import NEVER
from streams.records.routing import LOADED
from streams.records.skips import PoisonError

#: The topics that are read, by label, in the order in which an event goes through them.
READ: Final = ("forecasts", "routes", "calibrated", "labels", "outcomes", "resolved", "dead-letters")
#: The most characters of a source record that are shown.
_SHOWN: Final = 300
#: Exit statuses: a record names the event, none does, or the topics cannot be read.
FOUND, NOTHING, UNREAD = 0, 1, 2


#: Records that name an event, by the label of their topic.
_Read = dict[str, list[Any]]


class PathStep(NamedTuple):
    """A record that names an event."""

    #: ``source``, or the label of its topic.
    stage: str
    #: Topic, partition and offset.
    place: str
    #: Its Kafka timestamp, ms; None if the record is missing.
    ts: int | None
    #: Content of the record; for a source record its text.
    said: Any
    #: A remark for the reader.
    note: str = ""


def run(settings: Settings, event_id: str, *, json_output: bool) -> int:
    """Print the path of an event. Return the exit status: 0; 1 if no record names it; 2 if it cannot be read."""
    console = Console(stderr=json_output)
    try:
        steps = path(settings, event_id)
    except (KafkaError, TopicsError, PoisonError, OSError) as exc:
        console.print(f"[yellow]not read[/]  {escape(repr(exc))}", highlight=False, soft_wrap=True)
        return UNREAD
    said = verdict(steps)
    if json_output:
        sys.stdout.write(
            orjson.dumps({"event_id": event_id, "steps": [each._asdict() for each in steps], "verdict": said}).decode()
            + "\n"
        )
    else:
        for step in steps:
            at = (
                ""
                if step.ts is None
                else datetime.fromtimestamp(step.ts / 1000, UTC).isoformat(timespec="milliseconds")
            )
            text = step.said if isinstance(step.said, str) else orjson.dumps(step.said).decode()
            console.print(f"[bold]{step.stage:12}[/] {step.place}  {at}", highlight=False, soft_wrap=True)
            console.print(f"{'':12} {escape(text)}", highlight=False, soft_wrap=True)
            if step.note:
                console.print(f"{'':12} {escape(step.note)}", highlight=False, soft_wrap=True)
        console.print(said, highlight=False, soft_wrap=True)
    return FOUND if steps else NOTHING


def path(settings: Settings, event_id: str) -> list[PathStep]:
    """Return the records of an event, in the order in which it goes through the topics.

    Raises KafkaError, TopicsError, PoisonError or Unauditable if they cannot be read.
    """
    if all(mode.direct for mode in settings.modes):
        found = asyncio.run(_found(settings, event_id, {}))
        return [_step(label, record) for label in READ for record in found[label]]
    with PartitionReader(settings) as reader:
        seen: set[tuple[str, int, int]] = set()
        steps: list[PathStep] = []
        plan, found = planned(settings), asyncio.run(_found(settings, event_id, reader.skipped))
        for step in (_step(label, record) for label in READ for record in found[label]):
            origin = _origin(plan, step.said)
            if origin is not None and origin[1:] not in seen:
                seen.add(origin[1:])
                steps.append(_source(plan, reader, origin, found))
            steps.append(step)
        return steps


def _step(label: str, record: Any) -> PathStep:  # noqa: ANN401 - as aiokafka reads it
    place = f"{record.topic}/{record.partition}@{record.offset}"
    return PathStep(label, place, record.timestamp, orjson.loads(record.value))


async def _found(settings: Settings, event_id: str, skipped: dict[tuple[str, int], dict[int, str]]) -> _Read:
    """Return the records of each topic that name an event. Note which records were skipped."""
    quoted, holds = orjson.dumps(event_id), mentions([event_id])
    topics = zip(named(settings, READ), READ, strict=True)
    names = {name: label for name, label in topics if await partitions(settings, name) is not None}
    found: _Read = {label: [] for label in READ}
    letters = [name for name in names if names[name] == "dead-letters"]
    for read in filter(None, (letters, [name for name in names if name not in letters])):
        async for topic, records in batches(settings, read, left_out=lambda place: skipped.get(place, {})):
            for record in records:
                value = record.value or b""
                if topic in letters and (said := skips.of_dead_letter(value)):
                    name, partition, offset, why = said
                    skipped.setdefault((name, partition), {})[offset] = why
                # Other programs may escape text that is not ASCII differently.
                if topic in letters:
                    speaks = holds(_refused(value))
                else:
                    speaks = (quoted in value or b"\\u" in value) and _of_event(value, event_id)
                if speaks:
                    found[names[topic]].append(record)
    return {label: sorted(each, key=lambda record: record.timestamp) for label, each in found.items()}


def _of_event(value: bytes, event_id: str) -> bool:
    try:
        return bool(orjson.loads(value)["event_id"] == event_id)
    except (ValueError, KeyError, TypeError):
        return False


def _refused(letter: bytes) -> bytes:
    """Return the value of a dead letter's record."""
    try:
        return base64.b64decode(orjson.loads(letter)["value"] or "")
    except (ValueError, KeyError, TypeError):
        return b""


class _Origin(NamedTuple):
    """A source record. The source's name is empty if a dead letter names only the topic."""

    name: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic or self.name}/{self.partition}@{self.offset}"


def _origin(plan: AuditPlan, said: dict[str, Any]) -> _Origin | None:
    """Return the source record from which a record was made; None if there is none."""
    if "reason" in said and said.get("topic") in plan.ids:
        return _Origin("", said["topic"], said["partition"], said["offset"])
    if "origin" not in said:
        return None
    place, offset = said["origin"]
    name, _, rest = place.rpartition("@")
    topic_id, _, number = rest.partition("/")
    topic = next((topic for topic, known in plan.ids.items() if known == topic_id), "")
    return _Origin(name, topic, int(number), offset)


def _source(plan: AuditPlan, reader: PartitionReader, origin: _Origin, found: _Read) -> PathStep:
    """Return the content of a source record, and the record that it becomes."""
    if origin.name == LOADED:
        return PathStep("source", str(origin), None, "of a table that 'trueup load' was given")
    place = TopicPartition(origin.topic, origin.partition)
    span = next((each for each in plan.sources if (each.topic, each.partition) == place), None)
    if span is None or not span.first <= origin.offset < span.end:
        return PathStep("source", str(origin), None, "not there any more")
    (records,) = reader.stretches({place: (origin.offset, origin.offset + 1)}, plan.settings.unpacked_bytes)
    record = next(records, None)
    if record is None:
        return PathStep("source", str(origin), None, "not there")
    mapper = Mapper(plan, span)
    made = mapper.make(record, NEVER)
    text = (record.value or b"").decode(errors="backslashreplace")
    key = "" if record.key is None else f"key {record.key.decode(errors='backslashreplace')}; "
    note = (
        f"{key}{origin.name and f'by [sources.{origin.name}]: '}{_becomes(made, found)} ({mapper.shown(origin.offset)})"
    )
    return PathStep("source", str(origin), record.timestamp, text[:_SHOWN], note)


def _becomes(made: Sequence[Made], found: _Read) -> str:
    """Return what a record becomes, and whether the topics have it."""
    if not made:
        return "becomes nothing: `when` or `skip` passes it over"
    parts = []
    for one in made:
        there = [
            record
            for record in found.get(MADE[one.label], ())
            if record.partition == one.partition and record.value == one.value
        ]
        at = ", ".join(f"@{record.offset}" for record in there) or " (not there)"
        parts.append(f"{MADE[one.label]}/{one.partition}{at}")
    return "becomes " + " and ".join(parts)


def verdict(steps: Sequence[PathStep]) -> str:
    """Say in one sentence how far an event has come."""
    there = {step.stage for step in steps}
    checks: list[tuple[bool, str]] = [
        (not there, "no record mentions this event"),
        (
            any(step.said.get("erase") is True for step in steps if isinstance(step.said, dict)),
            "it was erased; what it had taught before stays",
        ),
        ("resolved" in there, "answered, and its label is learnt"),
        (
            "labels" in there and not there & {"forecasts", "routes"},
            "its label waits in the router: no forecast of it has come",
        ),
        ("labels" in there and "outcomes" not in there, "its label is not sent on by the router"),
        ("outcomes" in there and "calibrated" in there, "answered, and its label is not resolved"),
        ("outcomes" in there, "it has a label, and no answer"),
        ("calibrated" in there, "answered, and its label has not come"),
        ("forecasts" in there, "it has no answer yet"),
    ]
    return next((said for holds, said in checks if holds), "only dead letters mention it")
