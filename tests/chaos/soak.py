"""The soak: ``python -m tests.chaos.soak [--minutes M]``: a steady load, random faults, memory, files and waits.

The same judge as in the chaos suite has the last word.
"""

import argparse
import itertools
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson

from tests.chaos import campaign, report, strikes
from tests.chaos.campaign import Seen
from tests.chaos.faults import KINDS, Fault, schedule
from tests.chaos.samples import Sample, Sampler

#: The shortest life whose growth is told, s.
SHORTEST = 120.0


def endless(seed: int, workers: int, brokers: int = 1, partitions: int = 1) -> Iterator[Fault]:
    """Draw rounds of faults for ever. No wild timestamps: waits are measured by the records' own."""
    drawn = [kind for kind in KINDS[brokers] if kind is not strikes.wild_timestamps]
    for round_ in itertools.count():
        yield from schedule(seed * 1000 + round_, workers, campaign.default_session(brokers), drawn, partitions)


def growth(samples: list[Sample]) -> tuple[float, float]:
    """Return by how much memory grew over the last half of the longest life of a worker, MB an hour, and its minutes.

    Caches fill in the first half. The first figure is NaN where no life is of two minutes.
    """
    lives: dict[int, list[tuple[float, float]]] = {}
    for sample in samples:
        for pid, megabytes in sample.resident.values():
            lives.setdefault(pid, []).append((sample.at, megabytes))
    longest = max(lives.values(), key=lambda life: life[-1][0] - life[0][0], default=[(0.0, 0.0)])
    born, died = longest[0][0], longest[-1][0]
    if died - born < SHORTEST:
        return float("nan"), (died - born) / 60
    late = np.array([each for each in longest if each[0] >= (born + died) / 2])
    return float(np.polyfit(late[:, 0] / 3600, late[:, 1], 1)[0]), (died - born) / 60


def main() -> int:
    """Soak and judge; 0 if all is as it is derived again."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=2000.0, help="records a second")
    parser.add_argument("--every", type=float, default=45.0, help="mean seconds between faults; 0: none at all")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="three replicate everything")
    parser.add_argument("--standbys", type=int, default=1, help="copies of each partition on other workers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--directory", type=Path, help="where logs, disks and broker are kept; default: a temporary one"
    )
    options = parser.parse_args()
    rng = random.Random(options.seed)
    began = time.monotonic()
    seen: list[Seen] = []
    marks: list[tuple[float, float]] = []
    with campaign.asked(options, "soak", live=True) as on:
        campaign.recover(on)
        end = time.monotonic() + options.minutes * 60
        with Sampler(on.world, on.fleet) as sampler:
            for fault in endless(options.seed, options.workers, options.brokers, options.partitions):
                pause = rng.expovariate(1 / options.every) if options.every else float("inf")
                left = end - time.monotonic()
                time.sleep(max(min(pause, left), 0))
                if pause >= left:
                    break
                at = sampler.now()
                seen += campaign.run(on, [fault])
                marks.append((at, sampler.now()))
        verdict, good = campaign.ended(on, 0)
        campaign.measure(on, seen)
    waits = [wait for sample in sampler.samples for wait in sample.waits]
    calm = [
        wait
        for sample in sampler.samples
        if not any(begin - 5 < sample.at < stop + 5 for begin, stop in marks)
        for wait in sample.waits
    ]
    print(report.table(seen))
    grew, minutes = growth(sampler.samples)
    figures = {
        "p50_ms": _percentile(waits, 50),
        "p99_ms": _percentile(waits, 99),
        "calm_p50_ms": _percentile(calm, 50),
        "calm_p99_ms": _percentile(calm, 99),
        "largest_mb": max((mb for s in sampler.samples for _, mb in s.resident.values()), default=0.0),
        "growth_mb_per_hour": round(grew, 1),
        "of_a_life_of_minutes": round(minutes, 1),
        "most_files": max((n for s in sampler.samples for n in s.files.values()), default=0),
    }
    concluded, _, last = report.conclusion(verdict, seen, time.monotonic() - began).rpartition("\n")
    print(concluded)
    print(orjson.dumps(orjson.loads(last) | figures).decode())
    return 0 if good else 1


def _percentile(waits: list[int], percent: float) -> float | None:
    return float(np.percentile(waits, percent)) if waits else None


if __name__ == "__main__":
    sys.exit(main())
