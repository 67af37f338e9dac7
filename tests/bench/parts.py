"""Where the microseconds of an event go before it leaves the process: decoding, folding, encoding.

``python -m tests.bench.parts [--calibrator NAME ...] [--sizes 100,250,...]``

The records of a backlog, their outcomes 5,000 records later, are taken through the engine in parts of each size, over a
dictionary instead of RocksDB. Each figure is the least of five runs, in us an event. A part whose objects fit the
processor's own cache costs least: `agents.processor.PART`. The last line is one JSON object.
"""

import argparse
from collections import deque
from time import perf_counter

import orjson

from agents import compiled
from agents.processor import PART
from agents.worker import collect_rarely
from state.engine import Partition
from state.fence import FORECASTS, OUTCOMES
from state.policy import DEFAULT_CALIBRATOR, Policies, Policy
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.limits import Limits
from streams.records.merge import Merged
from tests.bench.backlog import Job, backlog
from tests.bench.figures import table
from tests.streams.fakes import record

STEPS = ("decode", "fold", "encode")
RUNS = 5
LATER = 5_000


def records(forecasts: int) -> list[Merged]:
    """Return forecasts and, a little later, their outcomes, as a buffer of one partition merges them."""
    made = backlog(Job(forecasts, partitions=1))
    outcomes = {key: value for _, _, key, value in made["outcomes"]}
    merged: list[Merged] = []
    waiting: deque[bytes] = deque()
    known = 0
    for i, (ts, _, key, value) in enumerate(made["forecasts"]):
        merged.append((FORECASTS, record("forecasts", 0, i, ts, key, value)))
        waiting.append(key)
        if len(waiting) > LATER:
            known_key = waiting.popleft()
            merged.append((OUTCOMES, record("outcomes", 0, known, ts, known_key, outcomes[known_key])))
            known += 1
    return merged


def measure(calibrator: str, made: list[Merged], size: int) -> dict[str, float]:
    """Return the us an event of each step, in parts of a size."""
    policies, settings = Policies(default=Policy(calibrator)), Settings()
    best = dict.fromkeys(STEPS, float("inf"))
    for _ in range(RUNS):
        rows: dict[bytes, bytes | None] = {}
        partition, decoder = Partition(policies, rows.get), Decoder(policies, Limits())
        spent = dict.fromkeys(STEPS, 0.0)
        for at in range(0, len(made), size):
            times = [perf_counter()]
            events = decoder.events(made[at : at + size])
            times.append(perf_counter())
            effects = partition.fold(events)
            times.append(perf_counter())
            encoded(effects.outputs, settings, 0)
            times.append(perf_counter())
            for step, began, ended in zip(STEPS, times, times[1:], strict=False):
                spent[step] += ended - began
            rows.update(effects.rows)
        best = {step: min(best[step], spent[step] / len(made) * 1e6) for step in STEPS}
    return best


def main() -> None:
    """Measure, and print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrator", action="append", help="may be repeated")
    parser.add_argument("--sizes", default="100,250,500,1000,2000,4000")
    options = parser.parse_args()
    collect_rarely()
    made = records(40_000)
    found: dict[str, dict[str, float]] = {}
    for calibrator in options.calibrator or ["histogram", DEFAULT_CALIBRATOR]:
        for size in map(int, options.sizes.split(",")):
            found[f"{calibrator}, {size:,}"] = measure(calibrator, made, size)
    rows = [[name, *(f"{one[step]:.2f}" for step in STEPS), f"{sum(one.values()):.2f}"] for name, one in found.items()]
    print(f"us an event, {'compiled' if compiled.runs() else 'interpreted'}; a worker takes parts of {PART}")
    print(table(["in parts of", *STEPS, "all"], rows))
    print(orjson.dumps({name: {k: round(v, 2) for k, v in one.items()} for name, one in found.items()}).decode())


if __name__ == "__main__":
    main()
