"""``trueup sources try``: what a few records of a source become, or why they become nothing."""

import asyncio
import json
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import orjson
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from state.events import Rejected
from streams.config.settings import Settings, SettingsError
from streams.kafka.topics import TopicsError, partitions
from streams.records.decoding import REASONS, Decoder
from streams.sources import far_off
from streams.sources.carrying import shown
from streams.sources.fields import FORECAST
from streams.sources.mapping import Mapping
from streams.sources.references import Headers
from streams.sources.refusal import Refusal
from streams.sources.schemas import Schemas
from streams.sources.source import Source

#: Longest wait for the records of a topic, s.
SECONDS = 30.0
#: How a record is called that the mapping says to pass over.
PASSED = "passed over"


class Found(NamedTuple):
    """A record to try, and where it was found."""

    place: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


def run(settings: Settings, name: str, records: int, file: Path | None, *, json_output: bool = False) -> int:
    """Print what each record becomes, and return the status: 0 if any becomes a record, else 1.

    Parameters
    ----------
    records
        How many of the newest records of each of its topics to try.
    file
        A file of JSON lines, or a single value of another format, in the place of the topics.

    Raises
    ------
    SettingsError
        If there is no such source, or the file cannot be read.
    TopicsError
        If the topics cannot be read.
    """
    source = next((each for each in settings.sources if each.name == name), None)
    if source is None:
        known = ", ".join(each.name for each in settings.sources) or "none; TRUEUP_STREAMS names the file"
        raise SettingsError(f"there is no source {name!r}; there are: {known}")
    found = _of_file(source, file, records) if file is not None else asyncio.run(_of_topics(settings, source, records))
    if not found:
        raise TopicsError(f"there are no records in {', '.join(source.topics) if file is None else file}")
    tried = list(attempts(settings, source, found))
    for place, made, said, strange in tried:
        at = far_off.date(ts) if made is not None and isinstance(ts := made.get("ts"), int) else None
        if json_output:
            print(json.dumps({"place": place, "record": made, "ts": at, "refused": said, "warning": strange or None}))
            continue
        print(f"{place}  {json.dumps(made) if made is not None else said}{f'  ts: {at}' if at else ''}")
        if strange:
            print(f"{place}  warning: {strange}")
    if all(said is not None and said.startswith(PASSED) for _, _, said, _ in tried):
        whose = "newest" if file is None else "first"
        sys.stderr.write(
            f"all of the {whose} records are passed over ({len(tried)}), so nothing is said of others; "
            f"--records {10 * records} tries more\n"
        )
    return 0 if any(made is not None for _, made, _, _ in tried) else 1


def attempts(
    settings: Settings, source: Source, records: Iterable[Found]
) -> Iterable[tuple[str, dict[str, object] | None, str | None, str]]:
    """Yield of each record its place, what it becomes or why not, and what is strange about its time."""
    schemas = Schemas(settings.registry)
    mapping, decoder = Mapping(source, schemas), Decoder(settings.policies, settings.limits)
    decode = decoder.forecast if source.role == FORECAST else decoder.outcome
    for place, topic, key, value, headers, timestamp in records:
        if lacking := mapping.lacking(value, key, headers):
            asyncio.run(schemas.load(lacking))
        made = mapping.read(value, key, headers, topic, timestamp)
        if isinstance(made, Refusal):
            verdict = PASSED if made.passed else f"dead letter, {made.reason}"
            yield place, None, f"{verdict}: {made.why}", ""
            continue
        carried = made.pop("carried", None)
        event = decode(0, key, orjson.dumps(made), timestamp)
        if isinstance(event, Rejected):
            yield (
                place,
                None,
                f"dead letter, {event.reason}: {REASONS[event.reason]}; it was mapped to {json.dumps(made)}",
                "",
            )
        else:
            strange = far_off.said(made.get("ts", timestamp), timestamp, source)
            yield place, {**made, **(shown(carried) if carried else {})}, None, strange


def _of_file(source: Source, file: Path, records: int) -> list[Found]:
    try:
        held = file.read_bytes()
    except OSError as exc:
        raise SettingsError(f"cannot read {file}: {exc.strerror}") from exc
    values = held.splitlines() if source.table.get("format", "json") == "json" else [held]
    now = int(file.stat().st_mtime * 1000)
    return [
        Found(f"{file.name}:{number}", source.topics[0], None, value, (), now)
        for number, value in enumerate(values[:records], 1)
    ]


async def _of_topics(settings: Settings, source: Source, records: int) -> list[Found]:
    """Return the newest records of each topic."""
    found: list[Found] = []
    try:
        async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
            places = {topic: await _places(settings, topic) for topic in source.topics}
            consumer = AIOKafkaConsumer(
                bootstrap_servers=",".join(settings.brokers),
                enable_auto_commit=False,
                isolation_level="read_committed",
                **settings.security.client_options(),
            )
            stack.push_async_callback(consumer.stop)
            await consumer.start()
            for each in places.values():
                newest = await _newest(consumer, each, records)
                found += sorted(newest, key=lambda each: each.timestamp)[-records:]
    except (KafkaError, TimeoutError) as exc:
        raise TopicsError(f"cannot read {', '.join(source.topics)}: {exc or type(exc).__name__}") from exc
    return found


async def _places(settings: Settings, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic; TopicsError if it does not exist."""
    count = await partitions(settings, topic)
    if count is None:
        raise TopicsError(f"there is no topic {topic}")
    return [TopicPartition(topic, n) for n in range(count)]


async def _newest(consumer: AIOKafkaConsumer, places: list[TopicPartition], records: int) -> list[Found]:
    """Return the newest records of each partition."""
    first, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    consumer.assign(places)
    for place in places:
        consumer.seek(place, max(first[place], ends[place] - records))
    found = []
    while any([await consumer.position(place) < ends[place] for place in places]):
        for place, fetched in (await consumer.getmany(timeout_ms=500)).items():
            found += [
                Found(f"{place.topic}/{place.partition}@{each.offset}", place.topic, *_said(each))
                for each in fetched
                if each.offset < ends[place]
            ]
    return found


def _said(record: object) -> tuple[bytes | None, bytes | None, Headers, int]:
    return record.key, record.value, record.headers, max(0, record.timestamp)  # type: ignore[attr-defined]  # aiokafka's
