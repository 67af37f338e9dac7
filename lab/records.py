"""``trueup dev broker send`` and ``trueup dev broker watch``: a few records to and from a topic, by hand."""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any, cast

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewTopic

from streams.config.settings import Settings
from streams.kafka import topics
from streams.kafka.topics import TopicsError
from streams.records.output_values import OutputValues


async def send(settings: Settings, topic: str, lines: Iterable[bytes], key: str, partitions: int | None = None) -> int:
    """Send each line that is not empty as one record. Return their number when all are acknowledged.

    Raises TopicsError if there is no such topic.
    Raises KafkaError if the brokers refuse.

    ``key``: the field of a JSON line whose text is the record's key. A line without it gets no key.
    ``partitions``: number of partitions if the topic has to be made; None: no topic is made.
    """
    if partitions and await topics.partitions(settings, topic) is None:
        await topics.make(settings, [NewTopic(topic, partitions, 1)])
    await _exists(settings, topic)
    async with AIOKafkaProducer(acks="all", **settings.client_options()) as producer:
        sent = [
            await producer.send(topic, value, key=_key(value, key)) for line in lines if (value := line.rstrip(b"\r\n"))
        ]
        for each in sent:
            await each
    return len(sent)


async def watch(settings: Settings, topic: str, *, first: bool) -> None:
    """Print the records of a topic as they come, one on each line, until cancelled.

    Avro values that trueup wrote are printed as JSON, others as they are.

    Raises TopicsError if there is no such topic.

    ``first``: begin with the first record that is kept, not with those that come from now on.
    """
    await _exists(settings, topic)
    reads = OutputValues(settings.registry)
    consumer = AIOKafkaConsumer(
        topic,
        auto_offset_reset="earliest" if first else "latest",
        isolation_level="read_committed",
        **settings.client_options(),
    )
    async with consumer:
        for tp in consumer.assignment():
            await consumer.position(tp)
        print(f"watching {topic}; Ctrl-C ends it", file=sys.stderr, flush=True)
        while True:
            fetched = await consumer.getmany(timeout_ms=500)
            if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():  # the client may swallow it
                raise asyncio.CancelledError
            for record in chain.from_iterable(fetched.values()):
                said = record.value or b""
                with suppress(Exception):  # a value without a schema is shown as it is
                    await reads.load([record.value])
                    said = reads.json(said)
                print(said.decode(errors="backslashreplace"), flush=True)


async def _exists(settings: Settings, topic: str) -> None:
    if await topics.partitions(settings, topic) is None:
        raise TopicsError(
            f"there is no topic {topic}: 'trueup topics create' makes trueup's own, and 'trueup dev broker send "
            f"--partitions 1 {topic}' one for your records"
        )


def _key(value: bytes, field: str) -> bytes | None:
    try:
        found: Any = orjson.loads(value)
    except ValueError:
        return None
    text = found.get(field) if isinstance(found, dict) else None
    return None if text is None else str(text).encode()
