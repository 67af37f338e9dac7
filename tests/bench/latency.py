"""From a forecast in the log to its answer in the log, by the broker's clock, at rates that a process of its own keeps.

``python -m tests.bench.latency [--rates 100,1000,10000,half] [--seconds S] [--only NAME]``

A rate is events a second, half of them forecasts, half outcomes of a second before. *Append to append* is what the
contender adds. *Due to append* starts when the forecast should have been written: a producer or a broker that stalls
is in it, so nothing is omitted because something else waited. ``half`` is half of what the contender sustains while the
producer runs, too: of the events/s that it answers when the producer writes as many as it takes from a backlog. Both
are measured first. Answers must be complete. The last line is one JSON object.

*Through intake*: the forecasts and outcomes are sources of any key, which intake and router hand on to the worker.
Kafka Streams holds what it sends back for 100 ms, its own default, or for the 5 ms that are the default of
`TRUEUP_LATENCY_MS`. Everyone first gets as many events as make a JVM compile most of what it runs.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path

import orjson
from aiokafka import TopicPartition

from lab.broker import Broker
from streams.config.settings import Settings
from streams.kafka import topics
from tests.bench import backlog
from tests.bench.backlog import Job, forecast, outcome
from tests.bench.contenders import CONTENDERS, LABELS, ROOT, Contender, named
from tests.bench.drain import Follower, Processes, Together, WrongError, read, run, started_all
from tests.bench.figures import quantile, table
from tests.bench.repartition import stages

PARTITIONS = 4
#: Seconds at the full rate before the first forecast that counts.
WARM_UP = 4.0
#: Seconds after that in which what is sustained is measured.
FULL = 6.0
#: The forecasts, with outcomes, that come before; the pacer's begin at 0.
FIRST = range(10_000_000, 10_020_000)
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
LINGER = replace(named("Kafka Streams"), name="Kafka Streams, 5 ms", command=(*named("Kafka Streams").command, "5"))
INTAKE = replace(named("trueup (default)"), name="trueup (default) through intake")
#: Figures of the table, with their titles and places behind the point.
COLUMNS = {
    "p50_ms": ("p50 ms", 1),
    "p99_ms": ("p99 ms", 1),
    "p99.9_ms": ("p99.9 ms", 1),
    "max_ms": ("max ms", 1),
    "due_p99_ms": ("due p99 ms", 1),
    "achieved_per_s": ("achieved/s", 0),
    "answered_per_s": ("answered/s", 0),
    "late_ms": ("late ms", 1),
    "cpu": ("CPUs", 3),
    "broker_cpu": ("broker CPUs", 3),
    "rss_mb": ("RSS MB", 0),
    "elsewhere": ("CPUs elsewhere", 1),
}
SOURCES = """
[sources.forecasts]
topic = "{prefix}-forecasts"
role = "forecast"
event_id = "event_id"
stream = "stream"
p = "p"

[sources.outcomes]
topic = "{prefix}-outcomes"
role = "outcome"
event_id = "event_id"
y = "y"
"""


async def measure(contender: Contender, broker: Broker, rate: float, seconds: float) -> dict[str, float]:
    """Return the figures of one rate.

    Raises WrongError if the contender ended or left forecasts unanswered.
    """
    prefix = f"l{uuid.uuid4().hex[:8]}"
    changelog = f"{prefix}-state-changelog" if contender.calibrator else f"{prefix}-changelog"
    names = [f"{prefix}-{label}" for label in LABELS]
    await backlog.create(broker.bootstrap, [*names, changelog], PARTITIONS, [changelog], stamped=names)
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        environment = await _told(broker.bootstrap, prefix, Path(directory)) if contender is INTAKE else {}
        each = stages(contender, behind_intake=contender is INTAKE)
        async with started_all(each, broker.bootstrap, prefix, directory, environment) as processes:
            follower = Follower(contender, broker.bootstrap, prefix, Job(partitions=PARTITIONS))
            await _begun(broker.bootstrap, prefix, follower, processes)
            with Together(processes, broker.pid) as watch:
                arguments = (broker.bootstrap, prefix, str(rate), str(WARM_UP + seconds), str(PARTITIONS))
                pacing = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.bench.pacer", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
                )
                printed, _ = await pacing.communicate()
                paced = orjson.loads(printed.splitlines()[-1])
                await follower.answered(processes, len(FIRST) + paced["forecasts"])
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
        "answered_per_s": 2 * sum(begun <= at < paced["end"] for at in answered.values()) / (paced["end"] - begun),
        "late_ms": paced["late_ms"],
        "cpu": watch.cpu("contender", begun, begun + seconds) / seconds,
        "broker_cpu": watch.cpu("broker", begun, begun + seconds) / seconds,
        "rss_mb": watch.rss("contender") / 1e6,
        "elsewhere": watch.elsewhere(begun, begun + seconds),
    }
    return found


async def _told(brokers: str, prefix: str, directory: Path) -> dict[str, str]:
    """Make the topics behind the sources; return the variables of all stages."""
    (directory / "streams.toml").write_text(SOURCES.format(prefix=prefix))
    told = {
        "TRUEUP_STREAMS": str(directory / "streams.toml"),
        "TRUEUP_FORECASTS": f"{prefix}-taken-forecasts",
        "TRUEUP_OUTCOMES": f"{prefix}-taken-outcomes",
    }
    for stage in Settings.from_env({**INTAKE.environment(brokers, prefix, str(directory)), **told}).stages:
        await topics.create(stage, partitions=PARTITIONS)
    return told


async def _begun(brokers: str, prefix: str, follower: Follower, processes: Processes) -> None:
    """Write forecasts, and when all are answered their outcomes."""
    rng, now = random.Random(3), int(time.time() * 1000)
    made = [forecast(Job(), i, rng) for i in FIRST]
    forecasts = [(now, i % PARTITIONS, key, value) for i, (key, value, _) in zip(FIRST, made, strict=True)]
    outcomes = [(now, n, key, outcome(i, i % 3 // 2)) for i, (_, n, key, _) in zip(FIRST, forecasts, strict=True)]
    await backlog.produce(brokers, prefix, {"forecasts": forecasts})
    await follower.answered(processes, len(FIRST))
    await backlog.produce(brokers, prefix, {"outcomes": outcomes})


async def _times(brokers: str, topic: str) -> dict[int, float]:
    """Return when each event's first record was appended, s since 1970, by the number of the event."""
    found: dict[int, float] = {}
    async for value, timestamp in read(brokers, [TopicPartition(topic, n) for n in range(PARTITIONS)]):
        found.setdefault(int(orjson.loads(value)["event_id"].removeprefix("event-")), timestamp / 1000)
    return found


def main() -> None:
    """Measure, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="100,1000,10000,half", help="events a second; half: of what is sustained")
    parser.add_argument("--seconds", type=float, default=15.0, help="at each rate, after the warm-up")
    parser.add_argument("--only", action="append", metavar="NAME", help="a part of a contender's name; may be repeated")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.ERROR)  # retries on topics made a moment ago are no news
    contenders = [
        one for one in (*CONTENDERS, LINGER, INTAKE) if any(part in one.name for part in options.only or [""])
    ]
    for one in contenders:
        if one.missing:
            print(f"skipped {one.name}: {one.missing}")
    result: dict[str, dict[str, float]] = {}
    failed = False
    with Broker() as broker:
        for contender in [one for one in contenders if not one.missing]:
            for wanted in options.rates.split(","):
                name, began = f"{contender.name} at {wanted}", time.monotonic()
                try:
                    if wanted != "half":
                        rate = float(wanted)
                    elif contender in CONTENDERS:
                        job = Job()
                        drained = asyncio.run(run(contender, broker, job, backlog.backlog(job)))
                        full = asyncio.run(measure(contender, broker, drained["events_per_s"], FULL))
                        rate = round(full["answered_per_s"] / 2, -2)
                    else:
                        continue
                    name = f"{contender.name} at {rate:,.0f}/s"
                    result[name] = asyncio.run(measure(contender, broker, rate, options.seconds))
                except WrongError as exc:
                    failed = True
                    print(f"no figure: {name}: {exc}", flush=True)
                    continue
                print(f"{name}: p99 {result[name]['p99_ms']:.0f} ms ({time.monotonic() - began:.0f} s)", flush=True)
    rows = [
        [name, *(f"{one[key]:,.{places}f}" for key, (_, places) in COLUMNS.items())] for name, one in result.items()
    ]
    print(f"\nforecast appended to answer appended, {options.seconds:.0f} s at each rate")
    print(table(["", *(title for title, _ in COLUMNS.values())], rows))
    print("late: p99 of how much later than due the producer wrote; the broker's clock counts whole milliseconds")
    print(
        orjson.dumps(
            {name: {key: round(value, 2) for key, value in one.items()} for name, one in result.items()}
        ).decode()
    )
    sys.exit(failed)


if __name__ == "__main__":
    main()
