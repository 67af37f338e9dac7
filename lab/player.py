"""Plays a recorded stream into Kafka, in time order and as fast as possible.

Messages are sent in slices. A slice is acknowledged in both topics before the next one begins. So neither topic is
ahead of the other by more than a slice, and a worker that merges both by time need not wait.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from aiokafka import AIOKafkaProducer

from state.arrays import Integers
from streams.kafka.partitioner import partition
from streams.kafka.writer import Record, append

#: Messages in a slice: one or two record batches for each partition, one round trip, 50 ms between slices.
SLICE: Final = 8000
#: Largest record batch, bytes; below the 1 MiB that brokers accept by default.
BATCH_BYTES: Final = 900_000


class TimedRecord(NamedTuple):
    """One record to send; ``time_ms``, since the epoch, becomes its Kafka timestamp."""

    time_ms: int
    topic: str
    key: bytes
    value: bytes


def in_order(forecast_ms: Integers, outcome_ms: Integers) -> Iterator[tuple[int, int, bool]]:
    """Yield for forecasts and outcomes, [n] and [m] ms, in time order: time, number, whether it is an outcome.

    At equal times, forecasts first.
    """
    n, ms = len(forecast_ms), np.concatenate([forecast_ms, outcome_ms])
    is_outcome = np.arange(len(ms)) >= n
    for k in np.lexsort((is_outcome, ms)).tolist():
        yield int(ms[k]), k - n if k >= n else k, k >= n


class PlayerProgress(NamedTuple):
    """Progress of the player: messages acknowledged so far, by topic, and the time of the last one, ms."""

    sent: Counter[str]
    time_ms: int


class CopartitionError(ValueError):
    """The topics have different numbers of partitions, so records with equal keys would not meet."""


async def play(
    messages: Iterable[TimedRecord], client: Mapping[str, Any], *, slice_messages: int = SLICE
) -> AsyncIterator[PlayerProgress]:
    """Send messages in order, each to the partition of its key's hash. Yield after each acknowledged slice.

    The next slice is sent when the caller asks for it.

    Raises CopartitionError if the topics have different numbers of partitions.
    Raises aiokafka.errors.KafkaError if any message was not acknowledged by all in-sync replicas.

    ``messages``: ordered by time.
    ``client``: options of an aiokafka client: ``bootstrap_servers``, and those for the brokers' security.
    ``slice_messages``: the most messages in flight.
    """
    producer = AIOKafkaProducer(acks="all", enable_idempotence=True, max_batch_size=BATCH_BYTES, linger_ms=0, **client)
    try:
        await producer.start()
        sent: Counter[str] = Counter()
        counts: dict[str, int] = {}
        stream = iter(messages)
        while piece := list(islice(stream, slice_messages)):
            for topic in {message.topic for message in piece} - counts.keys():
                counts[topic] = len(await producer.partitions_for(topic))
            if len(set(counts.values())) > 1:
                raise CopartitionError(f"topics must have equally many partitions, they have: {counts}")
            places = defaultdict[tuple[str, int], list[Record]](list)
            for time_ms, topic, key, value in piece:
                places[topic, partition(key, counts[topic])].append((time_ms, key, value, ()))
            await asyncio.gather(*(append(producer, *place, records) for place, records in places.items()))
            sent.update(message.topic for message in piece)
            yield PlayerProgress(Counter(sent), piece[-1].time_ms)
    finally:
        await producer.stop()
