"""A producer for what is written only once: rows of a state, answers of a replay, claims, dead letters sent again."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from streams.config.settings import Settings

#: The most records in flight.
_FLYING: Final = 1000
#: A record to append: time (ms; None: now), key, value and headers.
Record = tuple[int | None, bytes | None, bytes, Sequence[tuple[str, bytes | None]]]


def writer(settings: Settings, **options: Any) -> AIOKafkaProducer:  # noqa: ANN401 - as aiokafka takes them
    """Return a producer, not started, that writes each record once, in batches as large as the topics allow."""
    return AIOKafkaProducer(
        acks="all",
        enable_idempotence=True,
        max_batch_size=settings.batch_bytes,
        max_request_size=settings.batch_bytes + 100_000,
        **settings.client_options(),
        **options,
    )


async def send_all(settings: Settings, records: Iterable[Mapping[str, Any]]) -> None:
    """Send records, each as `AIOKafkaProducer.send` takes it. Return when all are acknowledged."""
    async with writer(settings) as producer:
        left = iter(records)
        while some := list(islice(left, _FLYING)):
            await asyncio.gather(*[await producer.send(**each) for each in some])


async def append(producer: AIOKafkaProducer, topic: str, partition: int, records: Iterable[Record]) -> int:
    """Append records in as few batches as possible; return their number. Each batch is acknowledged before the next.

    A batch takes its first record however large it is; the broker judges the size.
    """
    count, batch = 0, producer.create_batch()
    for count, (stamp, key, value, headers) in enumerate(records, 1):  # noqa: B007 - how many there were
        if batch.append(timestamp=stamp, key=key, value=value, headers=[*headers]) is None:
            await (await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(timestamp=stamp, key=key, value=value, headers=[*headers])
    if count:
        await (await producer.send_batch(batch, topic, partition=partition))
    return count
