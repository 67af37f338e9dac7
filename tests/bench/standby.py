"""How long a partition goes unanswered after kill -9 of the worker that serves it, without a copy and with one.

``python -m tests.bench.standby [--rows 1e6 1e7] [--standbys 0 1]``: one partition whose state `tests.bench.rows`
appends to the changelog of a real broker, two workers, and a steady feed of forecasts. When one serves, and the other
has a whole copy where it keeps one, the one that serves is killed and not started again. Silence lasts from the kill
until an answer to a forecast that was sent after it; what the other worker read of the changelog until then comes
along. The table is followed by one line of JSON.
"""

import argparse
import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from lab.broker import Broker
from streams.config.settings import Settings
from tests.bench import recovery, rows, usage
from tests.bench.recovery import PATIENCE, Worker

#: Forecasts a second, and the default session, s.
RATE, SESSION = 20, 15


@contextmanager
def world(broker: Broker, standbys: int) -> Iterator[tuple[dict[str, str], Settings, Path]]:
    """Make topics of one partition; sessions are those of the default."""
    session = {"TRUEUP_SESSION_SECONDS": str(SESSION), "TRUEUP_REQUEST_SECONDS": str(SESSION)}
    with recovery.world(broker, 1, TRUEUP_STANDBYS=str(standbys), **session) as made:
        yield made


def started(environment: dict[str, str], directory: Path, name: str, port: int) -> Worker:
    """Start a worker on a disk of its own."""
    own = {"TRUEUP_DATA_DIR": str(directory / name), "TRUEUP_METRICS_PORT": str(port)}
    return Worker({**environment, **own}, directory / f"{name}.log")


def until(what: str, condition: Any, patience: float = PATIENCE) -> None:
    """Wait for something."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited {patience:.0f} s for {what}")
        time.sleep(0.2)


def serves(worker: Worker) -> bool:
    """Whether a worker serves the partition."""
    return worker.get("/readyz") == 200 and worker.reading().value("held_partitions") == 1


def copied(worker: Worker) -> bool:
    """Whether a worker has a whole copy."""
    reading = worker.reading()
    return reading.value("standby_partitions") == 1 and reading.value("standby_lag_records", {"partition": "0"}) < 100


async def silence(settings: Settings, victim: Worker) -> float:
    """Feed forecasts, kill a worker, and return the s until one that was sent after that is answered."""
    options = {"bootstrap_servers": ",".join(settings.brokers)}
    async with AIOKafkaProducer(**options) as producer, AIOKafkaConsumer(**options) as consumer:
        consumer.assign([TopicPartition(settings.calibrated, 0)])
        await consumer.seek_to_end()
        sent: dict[str, float] = {}

        async def feed() -> None:
            while True:
                name = f"fed-{len(sent)}"
                value = orjson.dumps({"event_id": name, "stream": "stream-0", "p": 0.4})
                sent[name] = time.monotonic()
                await producer.send(settings.forecasts, value, key=name.encode(), partition=0)
                await asyncio.sleep(1 / RATE)

        feeding = asyncio.create_task(feed())
        answered: set[str] = set()

        async def read() -> None:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                answered.update(orjson.loads(record.value)["event_id"] for record in records)

        while len(answered) < 3 * RATE:
            await read()
        victim.end(signal.SIGKILL)
        killed = time.monotonic()
        while not any(sent.get(name, 0.0) > killed for name in answered):
            if time.monotonic() - killed > PATIENCE:
                raise SystemExit("nobody answers")
            await read()
        silent = time.monotonic() - killed
        feeding.cancel()
        return silent


def measure(broker: Broker, pending: int, standbys: int) -> dict[str, float]:
    """Measure one size of state."""
    with world(broker, standbys) as (environment, settings, directory), ExitStack() as stack:
        written = asyncio.run(rows.write(settings, 1, pending))
        one = started(environment, directory, "one", 29464)
        stack.callback(one.process.kill)
        began = time.monotonic()
        until("the first worker", lambda: serves(one))
        restored = time.monotonic() - began
        two = started(environment, directory, "two", 29465)
        stack.callback(two.process.kill)
        until("the second worker", lambda: two.get("/metrics") == 200)
        if standbys:
            until("the copy", lambda: (copied(two) and serves(one)) or (copied(one) and serves(two)))
        copying = time.monotonic() - began - restored
        until("one to serve", lambda: serves(one) or serves(two))
        victim, heir = (one, two) if serves(one) else (two, one)
        cpu, before = usage.cpu_seconds(heir.process.pid), heir.reading().value("recovery_restored_rows_total")
        silent = asyncio.run(silence(settings, victim))
        return {
            "rows": written.rows,
            "standbys": standbys,
            "silent_s": round(silent, 1),
            "rows_read": heir.reading().value("recovery_restored_rows_total") - before,
            "heir_cpu_s": round(usage.cpu_seconds(heir.process.pid) - cpu, 1),
            "heir_rss_mib": round(usage.resident(heir.process.pid)),
            "restore_s": round(restored, 1),
            "copy_s": round(copying, 1),
            "disk_mib": round(usage.disk_bytes(directory / ("two" if heir is two else "one")) / 2**20),
        }


def main() -> None:
    """Measure, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6], help="pending events of the partition")
    parser.add_argument("--standbys", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    found: list[dict[str, float]] = []
    with Broker() as broker:
        for size in options.rows:
            for standbys in options.standbys:
                found.append(measure(broker, int(size), standbys))
                print(orjson.dumps(found[-1]).decode(), flush=True)
    for name in found[0]:
        print(f"{name:16}" + "".join(f"{figures[name]:>14,}" for figures in found))
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    main()
