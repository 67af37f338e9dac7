"""Writes forecasts and outcomes at a steady rate, whatever happens behind it, and says how well it kept the time.

``python -m tests.bench.pacer BROKERS PREFIX RATE SECONDS PARTITIONS`` is a process of its own, so that it does not
share a loop with what is measured. Events are due on a schedule that never waits for answers; what is late stays due
at its time, so a stall makes later events late and is not omitted from the latencies. The last line is JSON.
"""

import asyncio
import logging
import random
import sys
import time
from collections import deque

import orjson
from aiokafka import AIOKafkaProducer

from tests.bench.backlog import Job, forecast, outcome
from tests.bench.figures import quantile

#: Time between appends, s. Each goes to one partition: forecasts, and the outcomes of forecasts `DELAY` ago.
TICK = 0.002
DELAY = 1.0


def due(tick: int, rate: float) -> range:
    """Return which forecasts are due at a tick, when half of ``rate`` events a second are forecasts."""
    share = rate / 2 * TICK
    return range(int(tick * share), int((tick + 1) * share))


def delay(partitions: int) -> int:
    """Return after how many ticks the outcomes come: a multiple of the partitions, so they meet their forecasts."""
    return round(DELAY / TICK / partitions) * partitions


async def pace(brokers: str, prefix: str, rate: float, seconds: float, partitions: int) -> dict[str, float]:
    """Write for some seconds; return when that began and ended, how many forecasts were written, and how late."""
    rng, job = random.Random(3), Job()
    late: list[float] = []
    unknown: deque[tuple[range, list[float]]] = deque()
    async with AIOKafkaProducer(bootstrap_servers=brokers, acks="all") as producer:
        sent: set[asyncio.Future[object]] = set()

        async def append(label: str, records: list[tuple[bytes, bytes]], partition: int) -> None:
            batch = producer.create_batch()
            for key, value in records:
                batch.append(key=key, value=value, timestamp=None)
            if records:
                acknowledged = await producer.send_batch(batch, f"{prefix}-{label}", partition=partition)
                sent.add(acknowledged)
                acknowledged.add_done_callback(sent.discard)

        start = time.time() + 0.1
        for n in range(round(seconds / TICK)):  # as many as are due, however long that takes here
            at, now = start + (n + 1) * TICK, time.time()
            if at > now:
                await asyncio.sleep(at - now)
            late.append(max(time.time() - at, 0.0))
            made = [forecast(job, i, rng) for i in due(n, rate)]
            unknown.append((due(n, rate), [p for _, _, p in made]))
            await append("forecasts", [(key, value) for key, value, _ in made], n % partitions)
            if len(unknown) > delay(partitions):
                known, ps = unknown.popleft()
                outcomes = [
                    (f"event-{i:08d}".encode(), outcome(i, int(rng.random() < p * p)))
                    for i, p in zip(known, ps, strict=True)
                ]
                await append("outcomes", outcomes, n % partitions)
        end = time.time()
        await producer.flush()
    late.sort()
    written = due(n, rate).stop
    return {
        "start": start,
        "end": end,
        "forecasts": written,
        "achieved": 2 * written / (end - start),
        "late_ms": quantile(late, 0.99) * 1000,
        "latest_ms": late[-1] * 1000,
    }


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.ERROR)  # retries on topics made a moment ago are no news
    _brokers, _prefix, _rate, _seconds, _partitions = sys.argv[1:]
    print(orjson.dumps(asyncio.run(pace(_brokers, _prefix, float(_rate), float(_seconds), int(_partitions)))).decode())
