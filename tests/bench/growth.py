"""Events a second of trueup against what grows: rows of state, streams, features, partitions, workers.

``python -m tests.bench.growth [rows|streams|features|partitions|workers ...] [--full] [--out FILE]``

Each point is the median of a few backlogs that running workers drain, after a little work that does not count. Rows:
the state first gets that many pending events, and the outcomes that are measured belong to random ones of them, so
every one is a lookup anywhere in the state. Streams take turns, and each gets forecasts in every backlog. A table
each and one picture of all; the last line is one JSON object.
"""

import argparse
import asyncio
import logging
import math
import os
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from agents.status.axes import Linear, Log, Scale
from agents.status.markup import Markup
from agents.status.plot import MARGINS, Plot, padded
from lab.broker import Broker
from lab.picture import write
from tests.bench import backlog, contenders
from tests.bench.backlog import Job, Record
from tests.bench.figures import medians, table
from tests.bench.live import workers

#: Forecasts of one measured backlog, and how many backlogs are measured at a point. A partition gets a few batches at
#: least: answers of one batch carry one time.
FORECASTS, A_PARTITION = 40_000, 6_000
RUNS = 3
#: Rows are brought in by this many forecasts at a time.
CHUNK = 250_000

#: Of a diagram.
_WIDTH, _HEIGHT = 270.0, 210.0

Points = dict[float, dict[str, float]]
HISTOGRAM = contenders.named("trueup (histogram)")


async def rows(broker: Broker, sizes: list[int]) -> Points:
    """Measure against pending events."""
    found: Points = {}
    rng = np.random.default_rng(5)
    job = Job(FORECASTS, first=1_000_000)
    waiting = np.empty(0, np.int64)
    async with workers(HISTOGRAM, broker, job) as up:
        for size in sizes:
            while len(waiting) < size:
                job = replace(job, forecasts=min(CHUNK, size - len(waiting)))
                await up.drained({"forecasts": backlog.backlog(job)["forecasts"], "outcomes": []})
                waiting, job = np.append(waiting, _numbers(job)), _after(job)
            measured = []
            for _ in range(RUNS):
                job = replace(job, forecasts=FORECASTS)
                rng.shuffle(waiting)
                known, waiting = np.split(waiting, [job.forecasts])
                made = backlog.backlog(job)
                made["outcomes"] = _outcomes(made["forecasts"], known, job.partitions)
                measured.append(await up.drained(made))
                waiting, job = np.append(waiting, _numbers(job)), _after(job)
            found[size] = medians(measured)
            _say("rows", size, found[size])
    return found


def _numbers(job: Job) -> npt.NDArray[np.int64]:
    return np.arange(job.first, job.first + job.forecasts)


def _after(job: Job) -> Job:
    return replace(job, first=job.first + job.forecasts)


def _outcomes(forecasts: list[Record], known: npt.NDArray[np.int64], partitions: int) -> list[Record]:
    """Return outcomes of events, at the times of the forecasts beside them."""
    return [
        (ts + 1, i % partitions, f"event-{i:08d}".encode(), backlog.outcome(i, int(i % 3 == 0), ts + 1))
        for i, (ts, *_) in zip(known.tolist(), forecasts, strict=True)
    ]


async def _point(
    broker: Broker, job: Job, count: int = 1, environment: dict[str, str] | None = None
) -> dict[str, float]:
    contender = replace(HISTOGRAM, calibrator="calibrated_regression") if environment else HISTOGRAM
    async with workers(contender, broker, job, count, environment) as up:
        return medians(
            [await up.drained(backlog.backlog(replace(job, first=n * 1_000_000))) for n in range(1, RUNS + 1)]
        )


async def streams(broker: Broker, sizes: list[int]) -> Points:
    """Measure against streams that take turns: the worst order for whatever is kept of a stream."""
    found: Points = {}
    for size in sizes:
        found[size] = await _point(broker, Job(max(FORECASTS, size), streams=size))
        _say("streams", size, found[size])
    return found


async def features(broker: Broker, sizes: list[int]) -> Points:
    """Measure calibrated regression against the features of a forecast."""
    found: Points = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
            plan = Path(directory) / "streams.toml"
            plan.write_text(f'[streams."*"]\ncalibrator = "calibrated_regression"\nfeatures = {size}\n')
            job = Job(FORECASTS // 2, features=size)
            found[size] = await _point(broker, job, environment={"TRUEUP_STREAMS": str(plan)})
        _say("features", size, found[size])
    return found


async def partitions(broker: Broker, sizes: list[int]) -> Points:
    """Measure against partitions of every topic, one worker."""
    found: Points = {}
    for size in sizes:
        found[size] = await _point(broker, Job(max(FORECASTS, A_PARTITION * size), partitions=size))
        _say("partitions", size, found[size])
    return found


async def processes(broker: Broker, sizes: list[int]) -> Points:
    """Measure against workers that share the partitions, and the machine with the broker."""
    found: Points = {}
    for size in sizes:
        found[size] = await _point(broker, Job(FORECASTS), count=size)
        _say("workers", size, found[size])
    return found


def _say(what: str, size: int, found: dict[str, float]) -> None:
    print(f"{size:,} {what}: {found['events_per_s']:,.0f} events/s", flush=True)


Measure = Callable[[Broker, list[int]], Coroutine[object, object, Points]]
#: What can be measured: by what, at which points, and at which with --full.
DIMENSIONS: dict[str, tuple[Measure, list[int], list[int]]] = {
    "rows": (rows, [FORECASTS, 100_000, 500_000], [FORECASTS, 100_000, 1_000_000, 10_000_000]),
    "streams": (streams, [1, 100, 10_000, 100_000], [1, 10, 100, 1000, 10_000, 100_000]),
    "features": (features, [0, 8, 64], [0, 4, 16, 32, 64]),
    "partitions": (partitions, [1, 4, 16], [1, 4, 16, 64]),
    "workers": (processes, [1, 2], [1, 2, 4]),
}
COLUMNS = {
    "events_per_s": "events/s",
    "cpu_us_per_event": "CPU µs/event",
    "broker_us_per_event": "broker µs/event",
    "rss_mb": "RSS MB",
    "elsewhere": "CPUs elsewhere",
}


def panel(points: Mapping[float, float], x_name: str, y_name: str) -> Markup:
    """Return a diagram of values above what they depend on, from zero; a small one, to stand beside others."""
    left, top, right, bottom = MARGINS
    low, high = min(points), max(points)
    ends = left, _WIDTH - right
    x: Scale = (
        Log(10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9), *ends)
        if low > 0 and high > 20 * low
        else Linear(0.0, high, *ends)
    )
    plot = Plot(_WIDTH, _HEIGHT, x, Linear(*padded(points.values()), _HEIGHT - bottom, top), f"{y_name} by {x_name}")
    plot.axes(x_name, y_name, x_ticks=min(6, round(high)) if isinstance(x, Linear) else 6)
    plot.line(list(points.items()), "calibrated")
    for at, value in points.items():
        plot.dot(at, value, "calibrated", f"{at:,.0f} {x_name}: {value:,.0f}")
    return plot.svg()


def main() -> None:
    """Measure, print tables and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="what", help=f"{', '.join(DIMENSIONS)}; all if none is named")
    parser.add_argument("--full", action="store_true", help="more and larger sizes; ten million rows take minutes")
    parser.add_argument("--out", type=Path, default=Path("trueup-bench/growth.svg"), help="where the picture goes")
    options = parser.parse_args()
    if unknown := set(options.what) - set(DIMENSIONS):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(DIMENSIONS)}")
    logging.getLogger("aiokafka").setLevel(logging.ERROR)  # retries on topics made a moment ago are no news
    result, panels = {}, []
    for what in options.what or DIMENSIONS:
        measure, some, many = DIMENSIONS[what]
        with Broker() as broker:  # a new one each: what another dimension left behind is in nobody's figures
            found = asyncio.run(measure(broker, many if options.full else some))
        cells = [
            [f"{n:,}", *(f"{one[key]:,.{0 if key == 'events_per_s' else 1}f}" for key in COLUMNS)]
            for n, one in found.items()
        ]
        print("\n" + table([what, *COLUMNS.values()], cells) + "\n", flush=True)
        panels.append(panel({size: one["events_per_s"] for size, one in found.items()}, what, "events/s"))
        result[what] = {f"{n:g}": {key: round(value, 1) for key, value in one.items()} for n, one in found.items()}
    said = f"One point is the median of {RUNS} backlogs, histogram, {os.cpu_count()} cores shared with the broker"
    write(options.out, "Events a second against what grows", [said], panels)
    print(f"picture: {options.out}")
    print(orjson.dumps(result).decode())


if __name__ == "__main__":
    main()
