"""Events a second of one worker through the real broker, beside the plain loop on the same machine in the same run.

``plain`` and ``trueup`` keep a histogram calibrator; ``default`` is a worker with the default calibrator.
``python -m tests.bench.throughput [--events N] [--repeat R]``: each contender drains the same backlog as a process
of its own, in turn, several times; the table gives medians and the ratio, the last line is one JSON object.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from agents.broker import Broker
from state.policy import DEFAULT_CALIBRATOR
from streams import topics
from streams.settings import Settings

PARTITIONS = 4
ROOT = Path(__file__).resolve().parents[2]
LABELS = ("forecasts", "outcomes", "calibrated", "resolved", "dead-letters")


def backlog(events: int) -> list[list[tuple[int, bytes, bytes]]]:
    """Return a backlog a topic: forecasts, and their outcomes a thousand forecasts later."""
    forecasts, outcomes = [], []
    for i in range(events // 2):
        event_id, p = f"event-{i:07d}", (i * 7919 % 10_007) / 10_007
        key = event_id.encode()
        ts = 1_700_000_000_000 + i * 10
        forecasts.append((ts, key, orjson.dumps({"event_id": event_id, "stream": f"s{i % 3}", "p": p, "ts": ts})))
        y = int((i * 104_729 % 10_009) / 10_009 < p * p)
        outcomes.append((ts + 10_000, key, orjson.dumps({"event_id": event_id, "y": y, "ts": ts + 10_000})))
    return [forecasts, outcomes]


async def fill(brokers: str, prefix: str, made: list[list[tuple[int, bytes, bytes]]]) -> None:
    """Produce the backlog."""
    async with AIOKafkaProducer(bootstrap_servers=brokers, max_batch_size=900_000) as producer:
        for label, records in zip(LABELS, made, strict=False):
            batches = [producer.create_batch() for _ in range(PARTITIONS)]
            sent = []
            for i, (ts, key, value) in enumerate(records):
                n = i % PARTITIONS
                if batches[n].append(key=key, value=value, timestamp=ts) is None:
                    sent.append(await producer.send_batch(batches[n], f"{prefix}-{label}", partition=n))
                    batches[n] = producer.create_batch()
                    batches[n].append(key=key, value=value, timestamp=ts)
            for n, batch in enumerate(batches):
                sent.append(await producer.send_batch(batch, f"{prefix}-{label}", partition=n))
            await asyncio.gather(*sent)


async def drain(brokers: str, prefix: str, events: int, command: Sequence[str], environment: dict[str, str]) -> float:
    """Run a contender until all answers are out and all offsets committed; return its events a second."""
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop yet
        command, env={**os.environ, **environment}, cwd=ROOT, stderr=subprocess.DEVNULL
    )
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers, group_id=prefix, enable_auto_commit=False)
    inputs = [TopicPartition(f"{prefix}-{label}", n) for label in LABELS[:2] for n in range(PARTITIONS)]
    answers = [TopicPartition(f"{prefix}-calibrated", n) for n in range(PARTITIONS)]
    first: tuple[float, int] | None = None
    try:
        async with consumer:
            consumer.assign(answers)
            while True:
                if process.poll() is not None:
                    raise SystemExit(f"{command} ended with {process.returncode}")
                out = sum((await consumer.end_offsets(answers)).values())
                now = time.perf_counter()
                if first is None and out:
                    first = now, out
                if first is not None and out >= events // 2:
                    done = sum([await consumer.committed(tp) or 0 for tp in inputs])
                    if done >= events:
                        # Answers stand for events: their outcomes are drained beside them.
                        return float(2 * (out - first[1]) / (now - first[0]))
                await asyncio.sleep(0.05)
    finally:
        process.terminate()
        process.wait()


def run(contender: str, broker: Broker, made: list[list[tuple[int, bytes, bytes]]], events: int) -> dict[str, float]:
    """Measure a contender once, on topics of its own."""
    prefix = f"b{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            "TRUEUP_BROKERS": broker.bootstrap,
            "TRUEUP_APP_ID": prefix,
            "TRUEUP_DATA_DIR": directory,
            "TRUEUP_METRICS_PORT": "0",
            "TRUEUP_COMMIT_SECONDS": "0.2",
            "TRUEUP_DEFAULT_CALIBRATOR": DEFAULT_CALIBRATOR if contender == "default" else "histogram",
            **{f"TRUEUP_{label.upper().replace('-', '_')}": f"{prefix}-{label}" for label in LABELS},
        }
        settings = Settings.from_env(environment)
        asyncio.run(topics.create(settings, partitions=PARTITIONS))
        if contender == "plain":
            plain = Settings.from_env({**environment, "TRUEUP_FORECASTS": f"{prefix}-changelog"})
            asyncio.run(topics.create(plain, partitions=PARTITIONS))
        asyncio.run(fill(broker.bootstrap, prefix, made))
        command = [sys.executable, "-m", "agents.command", "worker"]
        if contender == "plain":
            command = [sys.executable, "-m", "tests.bench.plain", broker.bootstrap, prefix]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        rate = asyncio.run(drain(broker.bootstrap, prefix, events, command, environment))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"events_per_s": rate, "cpu_us_per_event": cpu / events * 1e6}


def main() -> None:
    """Measure, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="forecasts and outcomes, together")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each contender")
    options = parser.parse_args()
    made = backlog(options.events)
    found: dict[str, list[dict[str, float]]] = {"plain": [], "trueup": [], "default": []}
    with Broker() as broker:
        for i in range(options.repeat):
            for contender in sorted(found, reverse=bool(i % 2)):
                found[contender].append(run(contender, broker, made, options.events))
    result = {
        contender: {name: round(median(one[name] for one in runs), 1) for name in runs[0]}
        for contender, runs in found.items()
    }
    print(f"{options.events:,} events, {PARTITIONS} partitions, {options.repeat} runs each, medians")
    print(f"{'':10}{'events/s':>12}{'CPU µs/event':>14}")
    for contender, figures in result.items():
        print(f"{contender:10}{figures['events_per_s']:>12,.0f}{figures['cpu_us_per_event']:>14.1f}")
    ratio = result["trueup"]["events_per_s"] / result["plain"]["events_per_s"]
    print(f"trueup reaches {ratio:.2f} of the plain loop (CPU includes the start of the process)")
    print(orjson.dumps({**result, "ratio": round(ratio, 3)}).decode())


if __name__ == "__main__":
    main()
