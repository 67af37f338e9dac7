"""Calibrated records of a replay on a topic of their own, marked with the replay they are of."""

import asyncio
from collections.abc import Sequence

from aiokafka.errors import KafkaError

from replay.engine_output import EngineOutput
from streams.config.settings import Settings, SettingsError
from streams.kafka import topics
from streams.kafka.topics import TopicsError
from streams.kafka.writer import append, writer

#: Header of every record: the name of the replay, `replay.result.Result.run`.
HEADER = "trueup-replay"


def check(settings: Settings, topic: str, partitions: int) -> None:
    """Refuse a topic that must not be written, or cannot be, before anything is read.

    Raises SettingsError if it is one of the live topics.
    Raises TopicsError if it does not exist or has too few partitions.
    """
    live = {each.name for each in topics.wanted(settings)}
    if topic in live:
        raise SettingsError(f"--to-topic {topic}: workers use it; a replay writes only to a topic of its own")
    count = asyncio.run(topics.partitions(settings, topic))
    if count is None:
        raise TopicsError(f"there is no topic {topic}: make it, with at least {partitions} partitions")
    if count < partitions:
        raise TopicsError(f"topic {topic} has {count} partitions, the replay {partitions}: it needs as many")


def send(settings: Settings, topic: str, run: str, folded: Sequence[EngineOutput]) -> None:
    """Produce the calibrated records of all partitions, each to the partition of what it answers; all acknowledged.

    Raises TopicsError if the brokers refuse. Records sent before carry the header of the run, by which they can be
    told.
    """
    try:
        asyncio.run(_send(settings, topic, run, folded))
    except (KafkaError, OSError) as exc:
        raise TopicsError(
            f"cannot write to {topic}: {exc!r}; what was written has the header {HEADER}={run}, "
            "and the same replay writes it again"
        ) from exc


async def _send(settings: Settings, topic: str, run: str, folded: Sequence[EngineOutput]) -> None:
    headers = [(HEADER, run.encode())]
    async with writer(settings) as producer:
        for partition, each in enumerate(folded):
            records = ((answer.ts, answer.key, answer.value, headers) for answer in each.answers())
            await append(producer, topic, partition, records)
