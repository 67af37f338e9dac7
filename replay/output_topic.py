"""Calibrated records of a replay on a topic of their own, marked with the replay they are of."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder

from replay.row_engine import PositionedRecord
from streams.config.settings import Settings, SettingsError
from streams.kafka import topics
from streams.kafka.topics import TopicsError
from streams.kafka.writer import writer

#: Header of every record: the name of the replay, `replay.result.Result.run`.
HEADER = "trueup-replay"
#: Record batches on their way at once.
_IN_FLIGHT = 32


def check(settings: Settings, topic: str, partitions: int) -> None:
    """Refuse a topic that must not be written, or cannot be, before anything is read.

    Raises
    ------
    SettingsError
        If it is one of the live topics.
    TopicsError
        If it does not exist or has too few partitions.
    """
    live = {each.name for each in topics.wanted(settings)}
    if topic in live:
        raise SettingsError(f"--to-topic {topic}: workers use it; a replay writes only to a topic of its own")
    count = asyncio.run(topics.partitions(settings, topic))
    if count is None:
        raise TopicsError(f"there is no topic {topic}: make it, with at least {partitions} partitions")
    if count < partitions:
        raise TopicsError(f"topic {topic} has {count} partitions, the replay {partitions}: it needs as many")


def send(settings: Settings, topic: str, run: str, answers: Iterable[PositionedRecord]) -> int:
    """Produce records, each to the partition of what it answers, and return how many once all are acknowledged.

    Raises
    ------
    TopicsError
        If the brokers refuse. Records sent before carry the header of the run, by which they can be told.
    """
    try:
        return asyncio.run(_send(settings, topic, run, answers))
    except (KafkaError, OSError) as exc:
        raise TopicsError(
            f"cannot write to {topic}: {exc!r}; what was written has the header {HEADER}={run}, "
            "and the same replay writes it again"
        ) from exc


async def _send(settings: Settings, topic: str, run: str, answers: Iterable[PositionedRecord]) -> int:
    producer = writer(settings)
    headers = [(HEADER, run.encode())]
    sent = 0
    try:
        await producer.start()
        batches: dict[int, BatchBuilder] = {}
        waiting: dict[int, list[asyncio.Future[object]]] = defaultdict(list)

        async def flush(partition: int) -> None:
            waiting[partition].append(await producer.send_batch(batches.pop(partition), topic, partition=partition))
            if len(waiting[partition]) >= _IN_FLIGHT:
                await asyncio.gather(*waiting.pop(partition))

        for answer in answers:
            batch = batches.get(answer.partition) or batches.setdefault(answer.partition, producer.create_batch())
            # A batch's first record is always taken, however large; the broker judges its size.
            fields = {"key": answer.key, "value": answer.value, "headers": headers}
            if batch.append(timestamp=answer.ts, **fields) is None:
                await flush(answer.partition)
                batches[answer.partition] = producer.create_batch()
                batches[answer.partition].append(timestamp=answer.ts, **fields)
            sent += 1
        for partition in list(batches):
            await flush(partition)
        await asyncio.gather(*(future for futures in waiting.values() for future in futures))
    finally:
        await producer.stop()
    return sent
