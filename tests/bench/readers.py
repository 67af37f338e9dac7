"""What readers of metrics cost a worker that answers: twelve of them scrape hundreds of streams every second.

``python -m tests.bench.readers [--streams N] [--rate R] [--readers N] [--seconds S] [--drippers N --bomb M --bombs N]``

One worker of the checkout takes a forecast and an outcome of every stream in turn, so that between two scrapes most
streams change. Spans without readers and spans with them take turns; *answer* is from the broker's
acknowledgement of a forecast to reading its answer: what the broker takes to unpack a batch before it is no time of the
worker. With ``--drippers`` and ``--bomb`` the readers read pages as well, so many connections send a byte every eight
seconds meanwhile, and in every such span come one or more batches that expand to so many MiB. The broker unpacks such a
batch to check it, and answers wait meanwhile, whatever the worker does. So there are spans of a third kind: the same
attack, and the batches go to a topic that the worker does not read.

Where there are two processors, one is the worker's alone, and readers and attackers take what the broker and the
measurement leave of the others: in use, attackers have machines of their own. What is compared is side by side in one
run; the last line is one JSON object. Health is asked for all the time; a probe or a record that is not answered ends
the run with an error.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from lab.broker import Broker
from lab.scrape import get
from streams.config.settings import Settings
from tests import attackers
from tests.bench import usage
from tests.bench.figures import quantile, table
from tests.bench.recovery import ROOT, Worker, world

#: Spans of each kind, in turns.
TURNS = 3
#: Events of each stream before the first span: they fill most of its bins.
EVENTS = 20
QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
#: How often health is asked for while a worker is pressed, s; how long the last answers are waited for, s.
PROBE, LAST = 0.25, 60.0
WITHOUT = "without"
#: What attackers leave to others, of 19.
NICE = 19


Figures = dict[str, dict[str, float]]


class Press(NamedTuple):
    """What presses a worker in a span: how many readers and dripping connections, and batches of so many MiB."""

    readers: int
    drippers: int
    bomb: int
    bombs: int

    def kinds(self, settings: Settings) -> "dict[str, Spans]":
        """Return the kinds of span that are compared."""
        kinds = {WITHOUT: Spans(None, "")}
        if self.bomb:
            kinds["attacked, bomb elsewhere"] = Spans(self, settings.resolved)
        attacked = self.drippers or self.bomb
        return kinds | {"attacked" if attacked else "with readers": Spans(self, settings.forecasts)}


class Spans(NamedTuple):
    """A kind of span: what presses the worker, if anything does, and which topic a bomb goes to."""

    press: Press | None
    topic: str


def press(port: int, with_: Press, seconds: float, brokers: str, topic: str) -> None:
    """Press a worker for a span; print how often it was read, how long that took, and what probes were told."""
    os.nice(NICE)
    until, health = time.monotonic() + seconds, list[int]()
    pages = attackers.PAGES if with_.drippers or with_.bomb else attackers.PAGES[:1]
    with ExitStack() as stack:
        stack.enter_context(attackers.dripping(port, with_.drippers))
        read = stack.enter_context(attackers.reading(port, with_.readers, 1.0, pages))
        if with_.bomb:
            sender = threading.Thread(target=_bomb, args=(brokers, topic, with_, seconds))
            sender.start()
            stack.callback(sender.join)
        while time.monotonic() < until:
            health.append(attackers.asked(port, "/healthz")[1])
            time.sleep(PROBE)
    _, text = get("127.0.0.1", port, "/metrics")
    scrapes = sorted(took for path, _, took in read if path == "/metrics")
    found = {
        "scrapes": len(read),
        "scrape_p50_s": quantile(scrapes, 0.5),
        "series": text.count("\n") - text.count("\n#"),
        "probes": len(health),
        "unhealthy": sum(status != 200 for status in health),
    }
    print(orjson.dumps(found).decode())


def _bomb(brokers: str, topic: str, with_: Press, seconds: float) -> None:
    values = [bytes(with_.bomb << 20)]
    asyncio.run(attackers.send_at_once(brokers, topic, "zstd", values, with_.bombs, seconds / with_.bombs))


def alone(worker: int, broker: int) -> None:
    """Give a worker a processor that neither the broker nor this process and its children use, if there are two."""
    own, *others = sorted(os.sched_getaffinity(0))
    if others:
        for pid, processors in ((worker, {own}), (broker, set(others)), (os.getpid(), set(others))):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), processors)


def measure(broker: Broker, streams: int, rate: float, with_: Press, seconds: float) -> Figures:
    """Return the figures of both kinds of span."""
    with world(broker, TRUEUP_METRICS_STREAMS=str(streams)) as (environment, settings, directory):
        worker = Worker(environment, directory / "worker.log")
        try:
            worker.ready()
            alone(worker.process.pid, broker.pid)
            return asyncio.run(_measure(worker, settings, streams, rate, with_, seconds))
        finally:
            worker.end(signal.SIGTERM)


async def _measure(
    worker: Worker, settings: Settings, streams: int, rate: float, with_: Press, seconds: float
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
                acked = await producer.send(settings.forecasts, orjson.dumps(forecast), key=key)
                acked.add_done_callback(lambda _, name=name: sent.update({name: time.perf_counter()}))
                await producer.send(settings.outcomes, orjson.dumps(outcome), key=key)

        hearing, saying = asyncio.create_task(hear()), asyncio.create_task(say())
        await asyncio.sleep(EVENTS * streams / rate)
        kinds = with_.kinds(settings)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
        waits: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(TURNS):
            for name, of in found.items():
                of.append(await span(worker, kinds[name], seconds, sent, settings.brokers[0]))
                first, last = int(of[-1].pop("first")), int(of[-1].pop("last"))
                ids = [each for each in list(sent)[first:last] if each in answered]
                waits[name] += [max(answered[each] - sent[each], 0.0) * 1000 for each in ids]
        saying.cancel()
        await asyncio.gather(saying, return_exceptions=True)
        await producer.flush()
        until = time.monotonic() + LAST
        while len(answered) < len(sent) and time.monotonic() < until:  # noqa: ASYNC110 - what is heard is what there is
            await asyncio.sleep(0.1)
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
    _account(worker, len(sent), len(answered), TURNS * with_.bombs if with_.bomb else 0)
    result = {}
    for name, of in found.items():
        ordered = sorted(waits[name])
        result[name] = {key: quantile(ordered, q) for key, q in QUANTILES.items()}
        result[name] |= {key: sum(each[key] for each in of) / len(of) for key in of[0]}
    return result


def _account(worker: Worker, sent: int, answered: int, bombs: int) -> None:
    """See that every forecast was answered, and that every bomb is a dead letter and nothing else is."""
    until = time.monotonic() + LAST  # metrics of many streams are some seconds old
    while (letters := worker.reading().total("dead_letters_total")) < bombs and time.monotonic() < until:
        time.sleep(0.5)
    print(f"{sent:,} forecasts sent, {answered:,} answered, {letters:.0f} dead letters for {bombs} bombs")
    if answered != sent or letters != bombs:
        raise SystemExit("records are lost")


async def span(worker: Worker, kind: Spans, seconds: float, sent: dict[str, float], broker: str) -> dict[str, float]:
    """Return what the worker used in a span, and the numbers of the first forecast in it and after it."""
    first, cpu = len(sent), usage.cpu_seconds(worker.process.pid)
    scraped = {"scrapes": 0.0, "scrape_p50_s": 0.0, "series": 0.0, "probes": 0.0, "unhealthy": 0.0}
    if (with_ := kind.press) is not None:
        pressing = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.readers", "--port", str(worker.port)),
            *("--readers", str(with_.readers), "--drippers", str(with_.drippers), "--bomb", str(with_.bomb)),
            *("--bombs", str(with_.bombs)),
            *("--seconds", str(seconds), "--brokers", broker, "--topic", kind.topic),
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        printed, _ = await pressing.communicate()
        scraped = orjson.loads(printed.splitlines()[-1])
        if scraped["unhealthy"]:
            raise SystemExit(f"{scraped['unhealthy']} of {scraped['probes']} probes were not told that all is well")
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
    parser.add_argument("--drippers", type=int, default=0)
    parser.add_argument("--bomb", type=int, default=0, help="MiB that a batch expands to")
    parser.add_argument("--bombs", type=int, default=1, help="such batches in a span, evenly")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a span; there are six, or nine")
    for name, kind in (("--port", int), ("--brokers", str), ("--topic", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with_ = Press(options.readers, options.drippers, options.bomb, options.bombs)
    if options.port:
        press(options.port, with_, options.seconds, options.brokers, options.topic)
        return
    with Broker() as broker:
        result = measure(broker, options.streams, options.rate, with_, options.seconds)
    *others, those = result.values()
    ratios = {
        f"ratio to {name}": {key: those[key] / other[key] for key in (*QUANTILES, "cpu_s")}
        for name, other in zip(result, others, strict=False)
    }
    columns = list(those)
    lines = [[name, *(f"{figures[key]:,.2f}" for key in columns)] for name, figures in result.items()]
    lines += [[name, *(f"{of[key]:.2f}" if key in of else "" for key in columns)] for name, of in ratios.items()]
    print(table(["", *columns], lines))
    print(orjson.dumps(result | ratios).decode())


if __name__ == "__main__":
    main()
