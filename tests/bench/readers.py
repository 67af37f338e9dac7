"""What readers of metrics cost a worker that answers: twelve of them scrape hundreds of streams every second.

``python -m tests.bench.readers [--streams N] [--rate R] [--readers N] [--seconds S]``

One worker of the checkout takes a forecast and an outcome of every stream in turn, so that between two scrapes most
streams change. Spans without readers and spans with them take turns; *answer* is from sending a forecast to reading its
answer. What is compared is side by side in one run; the last line is one JSON object.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from lab.broker import Broker
from lab.scrape import get
from streams.config.settings import Settings
from tests.bench import usage
from tests.bench.figures import quantile, table
from tests.bench.recovery import ROOT, Worker, world

#: Spans of each kind, in turns.
TURNS = 3
#: Events of each stream before the first span: they fill most of its bins.
EVENTS = 20
QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}


Figures = dict[str, dict[str, float]]


def scrape(port: int, readers: int, seconds: float) -> None:
    """Scrape from many threads, each every second; print how often it was done, how long it took, and what came."""
    until, took, series = time.monotonic() + seconds, list[float](), [0]

    def read(after: float) -> None:
        time.sleep(after)
        while (began := time.monotonic()) < until:
            with suppress(OSError):  # too late: it took as long as was waited
                _, text = get("127.0.0.1", port, "/metrics")
                series[0] = text.count("\n") - text.count("\n#")
            took.append(time.monotonic() - began)
            time.sleep(max(began + 1 - time.monotonic(), 0))

    threads = [threading.Thread(target=read, args=(i / readers,)) for i in range(readers)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    took.sort()
    print(orjson.dumps({"scrapes": len(took), "scrape_p50_s": quantile(took, 0.5), "series": series[0]}).decode())


def measure(broker: Broker, streams: int, rate: float, readers: int, seconds: float) -> Figures:
    """Return the figures of both kinds of span."""
    with world(broker, TRUEUP_METRICS_STREAMS=str(streams)) as (environment, settings, directory):
        worker = Worker(environment, directory / "worker.log")
        try:
            worker.ready()
            return asyncio.run(_measure(worker, settings, streams, rate, readers, seconds))
        finally:
            worker.end(signal.SIGTERM)


async def _measure(
    worker: Worker, settings: Settings, streams: int, rate: float, readers: int, seconds: float
) -> Figures:
    sent: dict[str, float] = {}
    answered: dict[str, float] = {}
    brokers = ",".join(settings.brokers)
    producer = AIOKafkaProducer(bootstrap_servers=brokers, linger_ms=0)
    consumer = AIOKafkaConsumer(settings.calibrated, bootstrap_servers=brokers)
    async with producer, consumer:

        async def hear() -> None:
            async for record in consumer:
                answered[orjson.loads(record.value)["event_id"]] = time.perf_counter()

        async def say() -> None:
            began = time.perf_counter()
            for i in count():
                await asyncio.sleep(max(began + i / rate - time.perf_counter(), 0))
                name, key = f"e{i}", str(i % streams).encode()
                forecast = {"event_id": name, "stream": f"s{i % streams}", "p": i * 7919 % 10_007 / 10_007}
                outcome = {"event_id": name, "y": i * 31 % 10 // 7}
                sent[name] = time.perf_counter()
                await producer.send(settings.forecasts, orjson.dumps(forecast), key=key)
                await producer.send(settings.outcomes, orjson.dumps(outcome), key=key)

        tasks = [asyncio.create_task(hear()), asyncio.create_task(say())]
        await asyncio.sleep(EVENTS * streams / rate)
        found: dict[str, list[dict[str, float]]] = {"without readers": [], "with readers": []}
        waits: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(TURNS):
            for name, of in found.items():
                of.append(await span(worker, readers if name == "with readers" else 0, seconds, sent))
                first, last = int(of[-1].pop("first")), int(of[-1].pop("last"))
                ids = [each for each in list(sent)[first:last] if each in answered]
                waits[name] += [(answered[each] - sent[each]) * 1000 for each in ids]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    result = {}
    for name, of in found.items():
        ordered = sorted(waits[name])
        result[name] = {key: quantile(ordered, q) for key, q in QUANTILES.items()}
        result[name] |= {key: sum(each[key] for each in of) / len(of) for key in of[0]}
    return result


async def span(worker: Worker, readers: int, seconds: float, sent: dict[str, float]) -> dict[str, float]:
    """Return what the worker used in a span, and the numbers of the first forecast in it and after it."""
    first, cpu = len(sent), usage.cpu_seconds(worker.process.pid)
    scraped = {"scrapes": 0.0, "scrape_p50_s": 0.0, "series": 0.0}
    if readers:
        reading = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.readers", "--port", str(worker.port)),
            *("--readers", str(readers), "--seconds", str(seconds)),
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        printed, _ = await reading.communicate()
        scraped = orjson.loads(printed.splitlines()[-1])
    else:
        await asyncio.sleep(seconds)
    used, last = usage.cpu_seconds(worker.process.pid) - cpu, len(sent)
    await asyncio.sleep(3)  # for the last answers
    return {"first": first, "last": last, "cpu_s": used, **scraped}


def main() -> None:
    """Measure, and print both kinds of span and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--rate", type=float, default=400, help="forecasts a second, and as many outcomes")
    parser.add_argument("--readers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a span; there are six")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.port:
        scrape(options.port, options.readers, options.seconds)
        return
    with Broker() as broker:
        result = measure(broker, options.streams, options.rate, options.readers, options.seconds)
    without, those = result.values()
    ratio = {key: those[key] / without[key] for key in (*QUANTILES, "cpu_s")}
    columns = list(those)
    lines = [[name, *(f"{figures[key]:,.2f}" for key in columns)] for name, figures in result.items()]
    lines.append(["ratio", *(f"{ratio[key]:.2f}" if key in ratio else "" for key in columns)])
    print(table(["", *columns], lines))
    print(orjson.dumps(result | {"ratio": ratio}).decode())


if __name__ == "__main__":
    main()
