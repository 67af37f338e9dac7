"""What it costs to keep zombies out of the changelog: appends unfenced, fenced by a claim, and in transactions.

``python -m tests.bench.fencing [--seconds S] [--repeat R]``: on the real broker, four partitions at once, each one
batch after another as a worker appends them; contenders take turns. The table gives medians over the repeats, the last
line is one JSON object. ``claim 64`` is the time in which a worker claims 64 partitions, as when they are assigned.
"""

import argparse
import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import cast

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from agents.topology import build
from lab.broker import Broker
from streams.config.settings import Settings
from streams.faust.changelog import Changelog
from streams.faust.producing import BatchProducer

PARTITIONS = 4
#: Of a batch of a thousand events, which change about as many ledger rows and little else.
ROWS, ROW_BYTES = 1000, 150
CLAIMED = 64

#: Appends a batch of rows to a partition, and returns once it is acknowledged.
Append = Callable[[int, Mapping[bytes, bytes | None]], Awaitable[object]]


async def drive(append: Append, seconds: float) -> tuple[float, list[float]]:
    """Append to all partitions for so long; return batches a second, and each one's time in ms."""
    rows = {b"Levent-%07d" % i: bytes([i % 251]) * ROW_BYTES for i in range(ROWS)}
    took: list[float] = []
    start = time.perf_counter()

    async def partition(n: int) -> None:
        while (began := time.perf_counter()) < start + seconds:
            await append(n, rows)
            took.append((time.perf_counter() - began) * 1000)

    await asyncio.gather(*map(partition, range(PARTITIONS)))
    return len(took) / (time.perf_counter() - start), took


async def plain(producer: BatchProducer, topic: str, seconds: float) -> tuple[float, list[float]]:
    """Append as before claims: idempotent, as whatever producer this process is."""

    async def append(partition: int, rows: Mapping[bytes, bytes | None]) -> None:
        batch = producer.batch()
        for key, value in rows.items():
            batch.append(timestamp=None, key=key, value=value)
        await producer.append([(batch, topic, partition)])

    return await drive(append, seconds)


async def claimed(changelog: Changelog, seconds: float) -> tuple[float, list[float]]:
    """Append under claims."""
    for partition in range(PARTITIONS):
        await changelog.claim(partition)
        changelog.activate(partition)
    return await drive(lambda partition, rows: changelog.append({partition: rows}), seconds)


async def transactions(settings: Settings, seconds: float) -> tuple[float, list[float]]:
    """Append each batch in a transaction, by one transactional producer a partition."""
    producers = [
        AIOKafkaProducer(
            bootstrap_servers=settings.brokers[0],
            transactional_id=f"{settings.changelog}-{n}",
            max_batch_size=settings.batch_bytes,
            max_request_size=settings.batch_bytes + 100_000,
        )
        for n in range(PARTITIONS)
    ]
    await asyncio.gather(*(producer.start() for producer in producers))

    async def append(partition: int, rows: Mapping[bytes, bytes | None]) -> None:
        producer = producers[partition]
        batch = producer.create_batch()
        for key, value in rows.items():
            batch.append(timestamp=None, key=key, value=value)
        async with producer.transaction():
            await (await producer.send_batch(batch, settings.changelog, partition=partition))

    try:
        return await drive(append, seconds)
    finally:
        await asyncio.gather(*(producer.stop() for producer in producers))


async def started(settings: Settings) -> BatchProducer:
    """Return a worker's producer."""
    topology = build(settings, abort=lambda: None, memory=True)
    producer = cast("BatchProducer", topology.app.faust.producer_transport.create_producer())
    producer._producer = producer._new_producer()  # the service around it needs a running application
    await producer._producer.start()
    return producer


async def measure(bootstrap: str, directory: str, seconds: float, repeat: int) -> dict[str, dict[str, float]]:
    """Run the contenders in turn; return the medians of each one's figures."""
    settings = Settings(
        brokers=(bootstrap,), app_id=f"b{uuid.uuid4().hex[:8]}", data_dir=Path(directory), metrics_port=0
    )
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(settings.changelog, CLAIMED, 1, topic_configs={"cleanup.policy": "compact"})])
    await admin.close()
    producer, unfenced = await started(settings), await started(settings)
    changelog = Changelog(lambda: settings.changelog, lambda: producer, "bench")
    runs: dict[str, Callable[[], Awaitable[tuple[float, list[float]]]]] = {
        "unfenced": lambda: plain(unfenced, settings.changelog, seconds),
        "claimed": lambda: claimed(changelog, seconds),
        "transactions": lambda: transactions(settings, seconds),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    claims = []
    try:
        await asyncio.gather(*map(changelog.claim, range(CLAIMED)))  # returns when all have leaders
        await plain(unfenced, settings.changelog, 2.0)
        for turn in range(repeat):
            for name in sorted(runs, reverse=bool(turn % 2)):
                rate, took = await runs[name]()
                cuts = quantiles(took, n=100)
                found[name].append({"batches_per_s": rate, "p50_ms": cuts[49], "p99_ms": cuts[98]})
            start = time.perf_counter()
            await asyncio.gather(*map(changelog.claim, range(CLAIMED)))
            claims.append((time.perf_counter() - start) * 1000)
    finally:
        await asyncio.gather(*(each._producer.stop() for each in (producer, unfenced) if each._producer))
    result = {
        name: {figure: round(median(one[figure] for one in each), 2) for figure in each[0]}
        for name, each in found.items()
    }
    return {**result, f"claim {CLAIMED}": {"ms": round(median(claims), 1)}}


def main() -> None:
    """Measure, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each contender")
    options = parser.parse_args()
    with Broker() as broker, TemporaryDirectory() as directory:
        result = asyncio.run(measure(broker.bootstrap, directory, options.seconds, options.repeat))
    print(f"{PARTITIONS} partitions, batches of {ROWS} rows of {ROW_BYTES} bytes, {options.repeat} runs each, medians")
    print(f"{'':14}{'batches/s':>11}{'rows/s':>12}{'p50 ms':>9}{'p99 ms':>9}")
    for name, figures in result.items():
        if "batches_per_s" in figures:
            rate = figures["batches_per_s"]
            print(f"{name:14}{rate:>11,.1f}{rate * ROWS:>12,.0f}{figures['p50_ms']:>9.1f}{figures['p99_ms']:>9.1f}")
        else:
            print(f"{name:14}{figures['ms']:>11,.1f} ms")
    print(orjson.dumps(result).decode())


if __name__ == "__main__":
    main()
