"""From a forecast in the log to its answer in the log, by the broker's clock, at rates that a process of its own keeps.

``python -m tests.bench.latency [--rates 1000,10000,half] [--seconds S] [--only NAME] [--out FILE]``

A rate is events a second, half of them forecasts, half outcomes of a second before. *Append to append* is what the
contender adds. *Due to append* starts when the forecast should have been written: a producer or a broker that stalls
is in it, so nothing is omitted because something else waited. ``half`` is half of the contender's own events/s on a
backlog, measured first. Answers must be complete. The last line is one JSON object.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
import uuid
from pathlib import Path

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from lab.broker import Broker
from tests.bench import backlog
from tests.bench.backlog import Job, forecast
from tests.bench.contenders import CONTENDERS, LABELS, ROOT, Contender
from tests.bench.drain import WrongError, read, run, started
from tests.bench.figures import quantile, table
from tests.bench.picture import tails
from tests.bench.watch import Watch

PARTITIONS = 4
#: Seconds at the full rate before the first forecast that counts.
WARM_UP = 4.0
#: Of the forecast whose answer says that the contender has started; the pacer's begin at 0.
FIRST = -1
#: How long the last answers may take, s.
PATIENCE = 60.0
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


async def measure(
    contender: Contender, broker: Broker, rate: float, seconds: float
) -> tuple[dict[str, float], list[float]]:
    """Return the figures of one rate, and all latencies append to append in ms, ascending.

    Raises WrongError if the contender ended or left forecasts unanswered.
    """
    prefix = f"l{uuid.uuid4().hex[:8]}"
    changelog = f"{prefix}-state-changelog" if contender.calibrator else f"{prefix}-changelog"
    names = [f"{prefix}-{label}" for label in LABELS]
    await backlog.create(broker.bootstrap, [*names, changelog], PARTITIONS, [changelog], stamped=names)
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        async with started(contender, broker.bootstrap, prefix, directory) as (process, log):
            await _begun(broker.bootstrap, prefix)
            with Watch({"contender": process.pid, "broker": broker.pid}) as watch:
                arguments = (broker.bootstrap, prefix, str(rate), str(WARM_UP + seconds), str(PARTITIONS))
                pacing = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.bench.pacer", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
                )
                printed, _ = await pacing.communicate()
                paced = orjson.loads(printed.splitlines()[-1])
                try:
                    await _answered(broker.bootstrap, prefix, 1 + paced["forecasts"])
                except TimeoutError:
                    raise WrongError(f"{contender.name}: answers are missing: {log.read_text()[-1500:]}") from None
        asked, answered = [await _times(broker.bootstrap, f"{prefix}-{label}") for label in ("forecasts", "calibrated")]
    first, last = int(WARM_UP * rate / 2), paced["forecasts"]
    within = sorted((answered[i] - asked[i]) * 1000 for i in range(first, last))
    since = sorted((answered[i] - paced["start"] - i / (rate / 2)) * 1000 for i in range(first, last))
    begun = paced["start"] + WARM_UP
    found = {f"{name}_ms": quantile(within, q) for name, q in QUANTILES.items()}
    found |= {f"due_{name}_ms": quantile(since, q) for name, q in QUANTILES.items()}
    found |= {
        "max_ms": within[-1],
        "achieved_per_s": paced["achieved"],
        "late_ms": paced["late_ms"],
        "cpu": watch.cpu("contender", begun, begun + seconds) / seconds,
        "elsewhere": watch.elsewhere(begun, begun + seconds),
    }
    return found, within


async def _begun(brokers: str, prefix: str) -> None:
    """Write one forecast, and return when it is answered: who starts has no backlog then."""
    key, value, _ = forecast(Job(), FIRST, random.Random(3))
    async with AIOKafkaProducer(bootstrap_servers=brokers) as producer:
        await producer.send_and_wait(f"{prefix}-forecasts", value, key)
    await _answered(brokers, prefix, 1)


async def _answered(brokers: str, prefix: str, forecasts: int) -> None:
    partitions = [TopicPartition(f"{prefix}-calibrated", n) for n in range(PARTITIONS)]
    async with AIOKafkaConsumer(bootstrap_servers=brokers) as consumer, asyncio.timeout(PATIENCE):
        while sum((await consumer.end_offsets(partitions)).values()) < forecasts:  # noqa: ASYNC110 - only the broker knows
            await asyncio.sleep(0.1)


async def _times(brokers: str, topic: str) -> dict[int, float]:
    """Return when each event's first record was appended, s since 1970, by the number of the event."""
    found: dict[int, float] = {}
    async for value, timestamp in read(brokers, [TopicPartition(topic, n) for n in range(PARTITIONS)]):
        found.setdefault(int(orjson.loads(value)["event_id"].removeprefix("event-")), timestamp / 1000)
    return found


def main() -> None:
    """Measure, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1000,10000,half", help="events a second; half: of the backlog's events/s")
    parser.add_argument("--seconds", type=float, default=15.0, help="at each rate, after the warm-up")
    parser.add_argument("--only", action="append", metavar="NAME", help="a part of a contender's name; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("trueup-bench/latency.png"), help="where the picture goes")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.ERROR)  # retries on topics made a moment ago are no news
    parts = options.only or ["plain", "trueup"]
    result: dict[str, dict[str, float]] = {}
    curves: dict[str, list[float]] = {}
    with Broker() as broker:
        for contender in [one for one in CONTENDERS if any(part in one.name for part in parts)]:
            for wanted in options.rates.split(","):
                if wanted == "half":
                    job = Job()
                    drained = asyncio.run(run(contender, broker, job, backlog.backlog(job)))
                    rate = round(drained["events_per_s"] / 2, -2)
                else:
                    rate = float(wanted)
                name = f"{contender.name} at {rate:,.0f}/s"
                began = time.monotonic()
                result[name], curves[name] = asyncio.run(measure(contender, broker, rate, options.seconds))
                print(f"{name}: p99 {result[name]['p99_ms']:.0f} ms ({time.monotonic() - began:.0f} s)", flush=True)
    columns = ("p50_ms", "p99_ms", "p99.9_ms", "max_ms", "due_p99_ms", "achieved_per_s", "late_ms", "cpu", "elsewhere")
    titles = ("p50 ms", "p99 ms", "p99.9 ms", "max ms", "due p99 ms", "achieved/s", "late ms", "CPUs", "CPUs elsewhere")
    rows = [
        [name, *(f"{one[key]:,.{0 if key == 'achieved_per_s' else 1}f}" for key in columns)]
        for name, one in result.items()
    ]
    print(f"\nforecast appended to answer appended, {options.seconds:.0f} s at each rate")
    print(table(["", *titles], rows))
    print("late: p99 of how much later than due the producer wrote; the broker's clock counts whole milliseconds")
    tails(curves, "forecast appended to answer appended", options.out)
    print(f"picture: {options.out}")
    print(
        orjson.dumps(
            {name: {key: round(value, 2) for key, value in one.items()} for name, one in result.items()}
        ).decode()
    )


if __name__ == "__main__":
    main()
