"""What a worker holds while it is pressed: memory, buffers and rows over time, in five scenarios.

``python -m tests.bench.pressure [NAME ...] [--seconds S]``; without names, all of them:

``silence``  outcomes never come: rows expire after a minute of event time, and state must not grow
``flood``    forecasts come several times faster than the worker takes them: fetching must stop, not the worker
``hot``      nine of ten events share one key, and so one partition: the others must not wait for it
``huge``     values up to 1.9 MB among small ones, larger than a fetch: dead letters, and nobody waits
``streams``  100,000 streams, each with a calibrator and scores of its own

Each prints a table over time and, where it has one, what must hold; the last line is one JSON object of all.
"""

import argparse
import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import orjson
from aiokafka import AIOKafkaProducer

from lab.broker import Broker
from lab.player import Message, play
from lab.scrape import ScrapedSamples
from state.engine import BATCH_LIMIT
from tests.bench import usage
from tests.bench.recovery import PARTITIONS, Worker, world

START_MS: Final = 1_700_000_000_000
#: Between two samples, s; more where a scrape takes long, so that watching does not press by itself.
EVERY: Final = 1.0
#: Lines of a table.
LINES: Final = 10


class Sample(NamedTuple):
    """What a worker held at a moment; sums over all partitions."""

    s: float
    rss_mib: int
    applied: int
    lag: int
    buffered: int
    buffered_mib: float
    paused: int
    pending: int
    expired: int
    disk_mib: int
    scrape_s: float


class Scene(NamedTuple):
    """One run of a scenario: where to send, and how the worker is."""

    prefix: str
    brokers: str
    worker: Worker
    data: Path
    samples: list[Sample]

    async def send(self, messages: Iterator[Message], pace: float = 0) -> None:
        """Send messages in their order, ``pace`` of them a second; 0 is as fast as it goes."""
        began = time.perf_counter()
        client = {"bootstrap_servers": self.brokers}
        async for played in play(messages, client, slice_messages=int(pace / 4) or 8000):
            due = began + played.sent.total() / pace if pace else 0
            await asyncio.sleep(max(due - time.perf_counter(), 0))

    async def flood(self, messages: Iterator[Message]) -> None:
        """Send messages of one topic as fast as the broker takes them, to the partitions in turn."""
        producer = AIOKafkaProducer(bootstrap_servers=self.brokers, max_batch_size=900_000)
        async with producer:
            while piece := list(islice(messages, 10_000 * PARTITIONS)):
                batches = [producer.create_batch() for _ in range(PARTITIONS)]
                for i, message in enumerate(piece):
                    batches[i % PARTITIONS].append(timestamp=message.time_ms, key=message.key, value=message.value)
                sent = [
                    await producer.send_batch(batch, piece[0].topic, partition=n) for n, batch in enumerate(batches)
                ]
                await asyncio.gather(*sent)

    async def settled(self, records: int) -> None:
        """Return when as many records have been applied."""
        while not self.samples or self.samples[-1].applied < records:  # noqa: ASYNC110 - the samples are what there is
            await asyncio.sleep(EVERY / 4)

    def forecast(self, i: int, *, key: bytes | None = None, stream: str = "s", ts: int | None = None) -> Message:
        """Return the i-th forecast."""
        name = f"event-{i:08d}"
        value = orjson.dumps({"event_id": name, "stream": stream, "p": (i * 7919 % 10_007) / 10_007})
        return Message(START_MS + (i if ts is None else ts), f"{self.prefix}-forecasts", key or name.encode(), value)

    def outcome(self, i: int, *, key: bytes | None = None, ts: int | None = None) -> Message:
        """Return the outcome of the i-th forecast."""
        name = f"event-{i:08d}"
        value = orjson.dumps({"event_id": name, "y": i % 3 // 2})
        return Message(START_MS + (i if ts is None else ts), f"{self.prefix}-outcomes", key or name.encode(), value)


async def silence(scene: Scene, seconds: float) -> dict[str, float]:
    """Send forecasts, a thousand for each second of event time, and no outcome."""
    n = int(seconds * 10_000)
    await scene.send((scene.forecast(i) for i in range(n)), 10_000)
    await scene.settled(n)
    most = max(sample.pending for sample in scene.samples)
    # A minute of rows, and what lies between two samples of each partition.
    held("pending events stay at what a minute brings", most <= 60_000 + BATCH_LIMIT * PARTITIONS, most)
    return {"events": n, "most_pending": most}


async def flood(scene: Scene, seconds: float) -> dict[str, float]:
    """Send forecasts as fast as the broker takes them."""
    n = int(seconds * 40_000)
    began = time.perf_counter()
    await scene.flood(scene.forecast(i) for i in range(n))
    sent = n / (time.perf_counter() - began)
    await asyncio.sleep(seconds)
    taken = scene.samples[-1].applied / scene.samples[-1].s
    most = max(sample.buffered for sample in scene.samples)
    # A fetch of 1 MiB holds 10,000 records, and is buffered whole.
    held("buffers stay at their limit and one fetch", most <= PARTITIONS * (20_000 + 11_000), most)
    held("fetching stops", any(sample.paused for sample in scene.samples), 0)
    return {"sent_per_s": round(sent), "applied_per_s": round(taken), "most_buffered": most}


async def hot(scene: Scene, seconds: float) -> dict[str, float]:
    """Send nine events of ten under one key, their outcomes a second of event time later."""
    n = int(seconds * 4_000)

    def messages() -> Iterator[Message]:
        for i in range(n):
            yield scene.forecast(i, key=b"hot" if i % 10 else None, ts=i)
            if i >= 1000:
                j = i - 1000
                yield scene.outcome(j, key=b"hot" if j % 10 else None, ts=i)

    sending = asyncio.create_task(scene.send(messages()))
    hottest, others = [0.0], [0.0]
    while not sending.done():
        reading = await asyncio.to_thread(scene.worker.reading)
        lagging = sorted(
            sum(
                reading.value("lag_records", {"topic": topic, "partition": str(n)})
                for topic in ("forecasts", "outcomes")
            )
            for n in range(PARTITIONS)
        )
        if not math.isnan(sum(lagging)):  # known of all
            hottest.append(lagging[-1])
            others.append(lagging[-2])
        await asyncio.sleep(EVERY)
    await sending
    await scene.settled(2 * n - 1000)
    return {"events": 2 * n - 1000, "most_lag_hot": max(hottest), "most_lag_others": max(others)}


async def huge(scene: Scene, seconds: float) -> dict[str, float]:
    """Send values of 1 MB and 1.9 MB among small ones; the broker takes 2 MB."""
    n, large = int(seconds * 1_000), 0
    topic = f"{scene.prefix}-forecasts"
    producer = AIOKafkaProducer(bootstrap_servers=scene.brokers, max_request_size=4 << 20, max_batch_size=1 << 20)
    async with producer:
        for i in range(n):
            small = scene.forecast(i)
            await producer.send(topic, small.value, key=small.key, timestamp_ms=small.time_ms)
            if not i % 50:
                large += 1
                size = (1_000_000, 1_900_000)[i // 50 % 2]
                await producer.send_and_wait(topic, bytes(size), key=small.key, timestamp_ms=small.time_ms)
    await scene.settled(n + large)
    reading = scene.worker.reading()
    letters = reading.total("dead_letters_total")
    held("every huge record is a dead letter, no other is", letters == large, letters)
    issued = reading.fates()["forecasts"]["issued"]
    held("every small one is answered", issued == n, issued)
    return {"huge": large, "huge_mb": round(large * 1.45), "small": n, "dead_letters": letters}


async def streams(scene: Scene, seconds: float) -> dict[str, float]:
    """Send a forecast and an outcome of each of many streams, keyed by stream, as often as there is time for."""
    many, rounds = 100_000, max(int(seconds / 20), 1)

    def messages() -> Iterator[Message]:
        for turn in range(rounds):
            for i in range(many):
                stream, event = f"stream-{i}", turn * many + i
                yield scene.forecast(event, key=stream.encode(), stream=stream, ts=2 * event)
                yield scene.outcome(event, key=stream.encode(), ts=2 * event + 1)

    await scene.send(messages())
    await scene.settled(2 * many * rounds)
    shown = scene.worker.reading().total("resolved")
    slowest = max(sample.scrape_s for sample in scene.samples)
    held("gauges are of the streams that may be shown", shown <= 200 * rounds, shown)
    return {"streams": many, "events": 2 * many * rounds, "slowest_scrape_s": round(slowest, 2)}


#: By name: the scenario, and the settings its worker runs under.
SCENARIOS: Final[dict[str, tuple[Callable[[Scene, float], Awaitable[dict[str, float]]], dict[str, str]]]] = {
    "silence": (silence, {"TRUEUP_STREAMS": '[streams."*"]\nttl = "60s"\n'}),
    "flood": (flood, {}),
    "hot": (hot, {}),
    "huge": (huge, {}),
    "streams": (streams, {}),
}


def held(claim: str, holds: bool, found: float) -> None:  # noqa: FBT001 - it is what the claim is about
    """Print whether a claim holds; end if it does not."""
    if not holds:
        raise SystemExit(f"does not hold: {claim} (found {found:,.0f})")
    print(f"holds: {claim}")


async def watch(scene: Scene) -> None:
    """Sample the worker until cancelled."""
    began = time.perf_counter()
    while True:
        at = time.perf_counter()
        reading = await asyncio.to_thread(scene.worker.reading)
        took = time.perf_counter() - at
        scene.samples.append(_sample(scene, reading, at - began, took))
        await asyncio.sleep(max(EVERY, 10 * took))


def _sample(scene: Scene, reading: ScrapedSamples, s: float, took: float) -> Sample:
    return Sample(
        s=round(s, 1),
        rss_mib=round(usage.resident(scene.worker.process.pid)),
        applied=int(reading.total("records_total")),
        lag=int(reading.total("lag_records")),
        buffered=int(reading.total("buffered_records")),
        buffered_mib=round(reading.total("buffered_bytes") / usage.MIB, 1),
        paused=int(reading.total("fetch_paused")),
        pending=int(reading.total("pending_events")),
        expired=int(reading.total("expired_total")),
        disk_mib=round(usage.disk_bytes(scene.data) / usage.MIB),
        scrape_s=round(took, 3),
    )


@asynccontextmanager
async def watched(scene: Scene) -> AsyncIterator[None]:
    """Watch the worker meanwhile."""
    watching = asyncio.create_task(watch(scene))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def run(broker: Broker, name: str, seconds: float) -> dict[str, float]:
    """Run one scenario, print its table, and return its figures."""
    scenario, settings = SCENARIOS[name]
    with world(broker) as (environment, made, directory):
        if toml := settings.get("TRUEUP_STREAMS"):
            (directory / "streams.toml").write_text(toml)
            environment["TRUEUP_STREAMS"] = str(directory / "streams.toml")
        worker = Worker(environment, directory / "worker.log")
        try:
            start = worker.ready()
            scene = Scene(made.app_id, broker.bootstrap, worker, directory / "data", [])
            print(f"\n{name}: {(scenario.__doc__ or '').splitlines()[0]}")

            async def play_it() -> dict[str, float]:
                async with watched(scene), asyncio.timeout(40 * seconds):
                    return await scenario(scene, seconds)

            found = asyncio.run(play_it())
            if worker.process.poll() is not None:
                raise SystemExit(f"the worker ended with {worker.process.returncode}")
            peak = usage.peak(worker.process.pid)
        finally:
            worker.process.kill()
            worker.process.wait()
    table(scene.samples)
    half, last = scene.samples[len(scene.samples) // 2], scene.samples[-1]
    memory = {
        "rss_start_mib": start.rss_mib,
        "rss_half_mib": half.rss_mib,
        "rss_end_mib": last.rss_mib,
        "rss_peak_mib": peak,
    }
    return {**found, **{key: round(value) for key, value in memory.items()}}


def table(samples: list[Sample]) -> None:
    """Print about `LINES` of the samples."""
    print("".join(f"{name:>13}" for name in Sample._fields))
    step = max(len(samples) // LINES, 1)
    for sample in [*samples[:-1:step], samples[-1]]:
        print("".join(f"{value:>13,}" for value in sample))


def main() -> None:
    """Run the scenarios that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*SCENARIOS, []], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long each presses")
    options = parser.parse_args()
    found = {}
    with Broker() as broker:
        for name in options.names or SCENARIOS:
            found[name] = run(broker, name, options.seconds)
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    main()
