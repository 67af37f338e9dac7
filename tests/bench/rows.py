"""A state of any size, as the changelog would hold it: pending events, their expiry queue, calibrators, the fence.

The engine itself makes the first rows of every partition, from forecasts that also stand in the input topic. The
many that follow are the same rows under other ids: encoded by the ledger, entered in the partition's own expiry queue,
counted in its fence, a thousand to a record batch. Ids are as random as UUIDs, so that RocksDB cannot append and has
to merge.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson
from aiokafka import AIOKafkaProducer

from state import kinds
from state.engine import Partition
from state.events import Forecast
from state.fence import EXPIRY, ISSUED
from streams.config.settings import Settings

#: Forecasts of each partition that the engine answers, and that stand in the input topic.
REAL = 100
#: Events whose rows share a record batch.
TOGETHER = 1000
#: Event time of the first, ms.
START = 1_700_000_000_000

Rows = Mapping[bytes, bytes | None]


@dataclass(frozen=True)
class Written:
    """What was appended to the changelog: different rows, records, and bytes of keys and values."""

    rows: int
    records: int
    bytes: int


def event_id(i: int) -> str:
    """Return the id of the i-th event: 16 letters that look random."""
    return f"{i * 0x9E3779B97F4A7C15 & (1 << 64) - 1:016x}"


def forecasts(partition: int, streams: int) -> list[Forecast]:
    """Return the forecasts the engine answers."""
    return [
        Forecast(i, name.encode(), name, f"stream-{i % streams}", (i * 7919 % 10_007) / 10_007, (), START + i)
        for i in range(REAL)
        for name in (f"real-{partition}-{i}",)
    ]


def batches(settings: Settings, partition: int, pending: int, streams: int) -> Iterator[Rows]:
    """Yield what the batches of one partition append, in order.

    ``pending``: events that wait for their outcome, at least `REAL`.
    ``streams``: streams they belong to, at most `REAL`.
    """
    engine = Partition(settings.policies, lambda _: None)
    first = engine.fold(forecasts(partition, streams)).rows
    yield dict(first)
    samples = [kinds.LEDGER.decode(row) for key, row in first.items() if row and key.startswith(kinds.LEDGER.letter)]
    ((_, ttl),) = engine.fence.queues
    fence, expiry = engine.fence, engine._expiry
    for start in range(REAL, pending, TOGETHER):
        rows: dict[bytes, bytes | None] = {}
        for i in range(start, min(start + TOGETHER, pending)):
            name = event_id(i * 1024 + partition)
            fence.applied += 1
            fence.stream_time = START + i
            raw = (i * 7919 % 10_007) / 10_007
            row = samples[i % streams]
            row.born, row.issued_ts, row.raw, row.p, row.draw = fence.applied, START + i, raw, raw, raw
            rows[kinds.LEDGER.key(name)] = kinds.LEDGER.encode(row)
            expiry.push(EXPIRY, ttl, fence.applied, name)
            fence.fates[ISSUED] += 1
        rows.update(expiry.changes())
        rows[kinds.FENCE.key()] = fence.encode()
        yield rows


async def write(settings: Settings, partitions: int, pending: int, streams: int = 10) -> Written:
    """Append the state of all partitions to the changelog, and the forecasts that the engine answered to their topic.

    ``partitions``: of all topics.
    ``pending``: events that wait for their outcome, all partitions together.
    """
    client = {"bootstrap_servers": ",".join(settings.brokers), **settings.security.client_options()}
    async with AIOKafkaProducer(max_batch_size=settings.batch_bytes, acks="all", **client) as producer:
        each = max(pending // partitions, REAL)
        written = await asyncio.gather(
            *(_write_partition(producer, settings, n, each, min(streams, REAL)) for n in range(partitions))
        )
    return Written(*(sum(found) for found in zip(*written, strict=True)))


async def _write_partition(
    producer: AIOKafkaProducer, settings: Settings, partition: int, pending: int, streams: int
) -> tuple[int, int, int]:
    inputs = producer.create_batch()
    for made in forecasts(partition, streams):
        value = orjson.dumps({"event_id": made.event_id, "stream": made.stream, "p": made.raw})
        inputs.append(timestamp=made.ts, key=made.key, value=value)
    await (await producer.send_batch(inputs, settings.forecasts, partition=partition))
    records = size = 0
    kept: set[bytes] = set()  # keys that are written again and again; a ledger row is written once
    events = 0
    for rows in batches(settings, partition, pending, streams):
        batch = producer.create_batch()
        for key, row in rows.items():
            if batch.append(timestamp=None, key=key, value=row) is None:
                raise ValueError(f"{len(rows)} rows do not fit a record batch of {settings.batch_bytes} bytes")
            size += len(key) + len(row or b"")
            if key.startswith(kinds.LEDGER.letter):
                events += 1
            else:
                kept.add(key)
        records += len(rows)
        await (await producer.send_batch(batch, settings.changelog, partition=partition))
    return events + len(kept), records, size
