"""What several machines would do: a model of measured costs, and a check of it by workers that are machines of a kind.

``python -m tests.bench.scale [--events E] [--workers N ...] [--share S] [--partitions P] [--forecasts F]``

Four drains by one worker give what an event, a turn, and a partition in a turn cost the worker and the broker; the
broker's files give the bytes of an event. From this follow the events/s of N workers that share P partitions, as
processor time is what ends first. For the check each worker has a network of its own, as `ip netns` makes it, and a
share of a core, by a cgroup. Where either is not permitted the command says so, and goes on without it.
Then follows what E events a second would take. The last line is one JSON object.
"""

import argparse
import asyncio
import logging
import math
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import numpy as np
import orjson
from scipy.optimize import nnls

from lab.broker import Broker
from lab.jvm import free_port
from streams.config.settings import Settings
from streams.faust.turns import FULL
from tests.bench import backlog, contenders
from tests.bench.backlog import Job
from tests.bench.figures import medians, table
from tests.bench.live import Workers, workers
from tests.bench.machines import ADDRESS, networks, quotas, reachable

RUNS = 3
#: The drains that costs are fitted to: partitions, and `TRUEUP_BATCH_RECORDS`.
DRAINS = ((1, 100), (8, 200), (2, 500), (4, Settings().batch_records))
#: That of the check: many turns make a rate.
CHECKED = 500


def taken(held: int, limit: int) -> int:
    """Return the most records of a partition in a turn; of more partitions than `FULL` each has fewer."""
    return max(1, limit // max(1, held // FULL))


@dataclass(frozen=True)
class Cost:
    """Processor time, us: of an event, of a turn, and of each partition in it."""

    event: float
    turn: float
    partition: float

    @classmethod
    def fitted(cls, points: Sequence[tuple[int, int, float]]) -> "Cost":
        """Return the costs that come closest to drains: partitions, records of each in a turn, us an event."""
        found, _ = nnls(
            np.array([[1.0, 1.0 / (m * b), 1.0 / b] for m, b, _ in points]), np.array([c for *_, c in points])
        )
        return cls(*found.tolist())

    def of(self, partitions: int, batch: int) -> float:
        """Return what an event costs in turns of so many records of each partition, us."""
        return self.event + self.turn / (partitions * batch) + self.partition / batch


@dataclass(frozen=True)
class Model:
    """What is known of one worker with a backlog."""

    worker: Cost
    broker: Cost

    def rate(self, count: int, partitions: int, share: float, limit: int) -> float:
        """Return events/s of workers with a share of a core each; who holds most partitions has the others wait."""
        held = math.ceil(partitions / count)
        return share * 1e6 / self.worker.of(held, taken(held, limit)) * partitions / held


async def costs(broker: Broker, forecasts: int) -> tuple[Model, dict[str, float]]:
    """Return the model of this machine, and the bytes that an event has in each topic."""
    found, sizes = [], dict[str, float]()
    for partitions, limit in DRAINS:
        job = Job(forecasts, partitions)
        told = {"TRUEUP_BATCH_RECORDS": str(limit)}
        async with workers(contenders.named("trueup (default)"), broker, job, environment=told) as up:
            drained = await _drained(up, job)
            sizes = _sizes(broker, up)  # those of the last are kept: of full turns
        found.append(
            (partitions, taken(partitions, limit), drained["cpu_us_per_event"], drained["broker_us_per_event"])
        )
        print(f"{partitions} partitions, {limit:,} of each a turn: {drained['cpu_us_per_event']:,.1f} us", flush=True)
    model = Model(Cost.fitted([(m, b, c) for m, b, c, _ in found]), Cost.fitted([(m, b, c) for m, b, _, c in found]))
    done = 2 * (RUNS * forecasts + 4000)
    return model, {label: size / done for label, size in sizes.items()}


async def _drained(up: Workers, job: Job) -> dict[str, float]:
    return medians(
        [
            await up.drained(backlog.backlog(Job(job.forecasts, job.partitions, first=n * 1_000_000)))
            for n in range(1, RUNS + 1)
        ]
    )


def _sizes(broker: Broker, up: Workers) -> dict[str, float]:
    """Return the bytes of the logs of a run, by the ends of their topics' names."""
    found: dict[str, float] = {}
    for log in (broker.directory / "data").glob(f"{up.prefix}-*/*.log"):
        label = log.parent.name.removeprefix(f"{up.prefix}-").rpartition("-")[0]
        found[label] = found.get(label, 0.0) + log.stat().st_size
    return found


async def check(broker: Broker, model: Model, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measure some numbers of workers, each beside what is predicted of it."""
    found: dict[str, dict[str, float]] = {}
    for count in options.workers:
        job = Job(options.forecasts * count, options.partitions)
        told = {"TRUEUP_BATCH_RECORDS": str(CHECKED)}
        with ExitStack() as stack:
            try:
                inside = stack.enter_context(networks(count))
                told["TRUEUP_BROKERS"] = options.near
            except (OSError, subprocess.CalledProcessError) as exc:
                print(f"no network namespaces here, so the workers share this one: {exc}")
                inside = [()] * count
            async with workers(
                contenders.named("trueup (default)"), broker, job, count, environment=told, inside=inside
            ) as up:
                try:
                    stack.enter_context(quotas(up.pids, options.share))
                except OSError as exc:
                    print(f"no process can get a share of a core here, so nothing is checked: {exc}")
                    return found
                drained = await _drained(up, job)
                stack.close()
        predicted = model.rate(count, options.partitions, options.share, CHECKED)
        found[str(count)] = {"predicted": predicted, **drained}
        print(f"{count} workers: {drained['events_per_s']:,.0f} events/s, predicted {predicted:,.0f}", flush=True)
    return found


def needs(model: Model, sizes: dict[str, float], options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return what a number of events a second takes, by names."""
    wanted, load, copies = options.events, options.load, options.replicas
    # With more rows than the cache holds, every outcome reads its own; half of the events are outcomes.
    extra = options.read_us / 2
    event_us = model.worker.of(FULL, Settings().batch_records) + extra
    count = math.ceil(wanted * event_us / 1e6 / load)
    broker_us = model.broker.of(FULL, Settings().batch_records)
    written = wanted * sum(sizes.values()) / 1e6
    inputs = wanted * sum(size for label, size in sizes.items() if label in {"forecasts", "outcomes"}) / 1e6
    rows = wanted / 2 * options.ttl_hours * 3600 / count
    return [
        ("workers, one core each", f"{count} at {load:.0%} of their cores, {event_us:.1f} us an event"),
        ("partitions", f"{count * FULL}, {FULL} a worker; {wanted / count / FULL:,.0f} events/s each"),
        ("brokers' cores", f"{wanted * broker_us / 1e6 / load:.1f} at {load:.0%}, without replication's"),
        ("brokers write", f"{written:,.0f} MB/s, with {copies} replicas {copies * written:,.0f}"),
        ("brokers send", f"{inputs:,.0f} MB/s to workers, {(copies - 1) * written:,.0f} to replicas"),
        (
            "a worker's disk",
            f"{rows * options.row_bytes / 1e9:,.0f} GB: {rows / 1e6:,.0f} million rows of {options.ttl_hours:g} h",
        ),
        ("a lost disk", f"restored in {rows * options.row_us / 1e6 / 60:,.0f} min; a standby has it"),
        (
            "a killed worker",
            f"{options.checkpoint_events * FULL * event_us / 1e6:.1f} s to fold what no checkpoint has",
        ),
    ]


def main() -> None:
    """Measure, check, and print what is needed, and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=float, default=1e6, help="a second, that are to be had")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4], help="numbers that are checked")
    parser.add_argument("--share", type=float, default=0.2, help="of a core, that each has in the check")
    parser.add_argument("--partitions", type=int, default=8, help="of the check")
    parser.add_argument("--forecasts", type=int, default=40_000, help="of a backlog, for each worker")
    parser.add_argument("--load", type=float, default=0.7, help="of a core, that is to be used")
    parser.add_argument("--replicas", type=int, default=3, help="of all topics")
    parser.add_argument("--ttl-hours", type=float, default=24.0, help="how long a row stays")
    parser.add_argument(
        "--row-bytes", type=float, default=100.0, help="of a row on a worker's disk (tests.bench.recovery)"
    )
    parser.add_argument("--row-us", type=float, default=6.1, help="to restore a row (tests.bench.recovery)")
    parser.add_argument("--read-us", type=float, default=9.0, help="to read a row that is in no cache (docs: Sizing)")
    parser.add_argument("--checkpoint-events", type=int, default=20_000, help="of a partition, between two checkpoints")
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.ERROR)  # retries on topics made a moment ago are no news
    options.near = f"{ADDRESS}.1:{free_port()}"
    with reachable(options.near) as broker:
        model, sizes = asyncio.run(costs(broker, options.forecasts))
        checked = asyncio.run(check(broker, model, options))
    rows = [
        [who, *(f"{us:,.1f}" for us in asdict(cost).values())]
        for who, cost in (("worker", model.worker), ("broker", model.broker))
    ]
    print("\n" + table(["processor time, us", "an event", "a turn", "a partition in it"], rows))
    print(
        "\n"
        + table(
            ["bytes an event", *sizes, "all"],
            [["", *(f"{each:.0f}" for each in (*sizes.values(), sum(sizes.values())))]],
        )
    )
    cells = [
        [
            count,
            f"{one['predicted']:,.0f}",
            f"{one['events_per_s']:,.0f}",
            f"{one['events_per_s'] / one['predicted']:.2f}",
        ]
        for count, one in checked.items()
    ]
    print(f"\n{options.partitions} partitions, {options.share:g} of a core for each worker")
    print(table(["workers", "predicted events/s", "measured", "ratio"], cells))
    print(f"\n{options.events:,.0f} events a second take")
    needed = needs(model, sizes, options)
    print("\n".join(f"{name:24}{said}" for name, said in needed))
    print(orjson.dumps({"model": asdict(model), "bytes": sizes, "checked": checked, "needs": dict(needed)}).decode())


if __name__ == "__main__":
    main()
