"""Where the microseconds of a record go before it leaves the process: decoding, folding, encoding; mapping, packing.

``python -m tests.bench.parts [--calibrator NAME ...] [--sizes 100,250,...] [--marked]``

The records of a backlog, their outcomes 5,000 records later, are taken through the engine in parts of each size, over a
dictionary instead of RocksDB. Then intake maps and packs scores and labels of other keys, as ``repartition.py`` has
them, and a router takes what intake made of them. Each figure is the least of five runs, in us of processor time a
record. A part whose objects fit the processor's own cache costs least: `agents.applying.PART`, `agents.sending.PART`.
The last line is one JSON object.

``--marked`` takes the records through bands, intervals and entities instead, beside the default without, in parts of a
worker's size and in turn. Accounts have two forecasts each, far apart, so that nearly every outcome teaches.
"""

import argparse
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import thread_time
from types import SimpleNamespace
from typing import Any, cast

import orjson
from aiokafka.structs import TopicPartition

import agents.sending
from agents import applying, compiled
from agents.sending import Sending
from agents.worker import collect_rarely
from state.bands import Bands
from state.engine import Partition
from state.fence import FORECASTS, OUTCOMES
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from state.router import Router
from streams.config.settings import Settings
from streams.faust.outputs import PackedBatch
from streams.faust.producing import RecordBatch
from streams.faust.routed_outputs import RoutedOutputs
from streams.kafka import codecs
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.limits import Limits
from streams.records.making import Maker
from streams.records.merge import Merged
from streams.records.routing import RouteDecoder
from tests.bench import repartition
from tests.bench.backlog import Job, backlog
from tests.bench.figures import table
from tests.streams.fakes import record

STEPS = ("decode", "fold", "encode")
INTAKE = ("map", "pack")
ROUTER = ("decode", "route", "encode", "rows")
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


BANDS = Bands(("pass", "review", "block"), (0.0, 0.02, 0.3))
POLICIES = {
    "the default": Policy(),
    "bands": replace(Policy(), bands=BANDS),
    "intervals": replace(Policy(), interval=0.9),
    "entity": replace(Policy(), entity="account"),
    "all three": replace(Policy(), bands=BANDS, interval=0.9, entity="account"),
}


def about(forecast: bytes, accounts: int) -> bytes:
    """Return a forecast that names one of so many accounts."""
    said = orjson.loads(forecast)
    return orjson.dumps(said | {"account": f"account-{int(said['event_id'][6:]) % accounts:06d}"})


def accounts(made: list[Merged]) -> list[Merged]:
    """Return the same records, whose forecasts name their account."""
    quarter = len(made) // 4
    named: list[Merged] = []
    for topic, one in made:
        value = about(one.value or b"", quarter) if topic == FORECASTS else one.value
        named.append((topic, record("any", 0, one.offset, one.timestamp, one.key, value)))
    return named


def keep_memory() -> None:
    """Let the C library keep what is freed, as it does in a worker, which has freed a large block before.

    Else the kernel gives it the memory of each part's answers anew: 1.2 us an event of 8.
    """
    _ = bytes(30 << 20)


#: Called at the beginning of a part, and at the end of each of its steps.
Mark = Callable[[], None]


def least(steps: Sequence[str], records: int, play: Callable[[Mark], None], runs: int = RUNS) -> dict[str, float]:
    """Return the us a record of each step, the least of some runs; ``play`` takes all records through the steps."""
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(runs):
        marks: list[float] = []
        play(partial(_note, marks))
        wide = len(steps) + 1
        for n, step in enumerate(steps):
            spent = sum(marks[n + 1 :: wide]) - sum(marks[n::wide])
            best[step] = min(best[step], spent / records * 1e6)
    return best


def _note(marks: list[float]) -> None:
    marks.append(thread_time())


def measure(policy: Policy, made: list[Merged], size: int, runs: int = RUNS) -> dict[str, float]:
    """Return the us an event of each step, in parts of a size."""
    policies, settings = Policies(default=policy), Settings()

    def play(mark: Mark) -> None:
        rows: dict[bytes, bytes | None] = {}
        partition, decoder = Partition(policies, rows.get), Decoder(policies, Limits())
        for at in range(0, len(made), size):
            mark()
            events = decoder.events(made[at : at + size])
            mark()
            effects = partition.fold(events)
            mark()
            encoded(effects.outputs, settings, 0)
            mark()
            rows.update(effects.rows)

    return least(STEPS, len(made), play, runs)


def marked() -> None:
    """Print a line a policy: the least us an event of all steps, and what it is of the default's, in each turn."""
    plain = records(15_000)
    named = accounts(plain)
    turns: list[dict[str, float]] = []
    for _ in range(2 * RUNS):
        found = {name: measure(of, named if of.entity else plain, applying.PART, 1) for name, of in POLICIES.items()}
        turns.append({name: sum(steps.values()) for name, steps in found.items()})
    for name in POLICIES:
        ratios = sorted(turn[name] / turn["the default"] for turn in turns)
        best = min(turn[name] for turn in turns)
        print(f"{name:12} {best:6.2f}  (turns {ratios[0]:.3f}, {median(ratios):.3f}, {ratios[-1]:.3f})")


def source_records(form: str, forecasts: int) -> tuple[Maker, list[tuple[TopicPartition, Any]]]:
    """Return an intake's maker, and records of its sources by time."""
    encoder = repartition.Encoder(form)
    batch = [
        (TopicPartition(f"b-{label}", partition), record(f"b-{label}", partition, i, ts, key, value))
        for label, made in repartition.records(Job(forecasts), encoder).items()
        for i, (ts, partition, key, value) in enumerate(made)
    ]
    batch.sort(key=lambda each: each[1].timestamp)
    with TemporaryDirectory() as directory:
        streams = Path(directory) / "streams.toml"
        streams.write_text(repartition.sources("b", encoder))
        intake = Maker(Settings.from_env({"TRUEUP_STREAMS": str(streams)}))
    intake.know(dict.fromkeys(intake.topics, 4), dict.fromkeys(intake.readers, "id"))
    return intake, batch


def measure_intake(form: str, size: int, forecasts: int) -> dict[str, float]:
    """Return the us a source record of mapping and of packing, in parts of a size."""
    intake, batch = source_records(form, forecasts)
    codec, now = codecs.NUMBERS[Settings().compression], _now()
    producer: Any = SimpleNamespace(batch=lambda: RecordBatch(1 << 20, codec))

    def play(mark: Mark) -> None:
        sending = Sending(lambda: PackedBatch(intake.topics, lambda: producer, _uncounted))
        for at in range(0, len(batch), size):
            mark()
            making = intake.make(batch[at : at + size], now)
            mark()
            sending.add(making)
            mark()

    return least(INTAKE, len(batch), play)


def measure_router(size: int, forecasts: int) -> dict[str, float]:
    """Return the us a route or label of each step of a router, in parts of a size; rows are made every 20,000."""
    intake, batch = source_records("json", forecasts)
    making, settings = intake.make(batch, _now()), Settings()
    sent = [
        (number, record(label, 0, i, stamp or 0, key, value))
        for number, (label, made) in enumerate((("routes", making.then), ("labels", making.first)))
        for i, (key, value, stamp, _) in enumerate(each for n in range(4) for each in made[label, n])
    ]
    sent.sort(key=lambda each: each[1].timestamp)
    outputs = RoutedOutputs(settings, lambda: cast("Any", None), lambda: 4, _uncounted)

    def play(mark: Mark) -> None:
        rows: dict[bytes, bytes | None] = {}
        router, decoder = Router(settings.policies, rows.get), RouteDecoder()
        for at in range(0, len(sent), size):
            mark()
            events = decoder.events(sent[at : at + size])
            mark()
            made = router.apply(events)
            mark()
            outputs.batch(0, settings).add(made)
            mark()
            if at // 20_000 != (at + size) // 20_000:
                rows.update(router.checkpoint().rows)
            mark()

    return least(ROUTER, len(sent), play)


def _now() -> int:
    return int(time.time() * 1000)


def _uncounted(_: str, __: int) -> None:
    """Count nothing."""


def shown(found: dict[str, dict[str, float]], steps: tuple[str, ...]) -> str:
    """Return figures as a table."""
    rows = [[name, *(f"{one[step]:.2f}" for step in steps), f"{sum(one.values()):.2f}"] for name, one in found.items()]
    return table(["in parts of", *steps, "all"], rows)


def main() -> None:
    """Measure, and print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrator", action="append", help="may be repeated")
    parser.add_argument("--sizes", default="100,250,500,1000,2000,4000")
    parser.add_argument("--marked", action="store_true", help="bands, intervals and entities")
    options = parser.parse_args()
    collect_rarely()
    keep_memory()
    print(f"us a record, {'compiled' if compiled.runs() else 'interpreted'}")
    if options.marked:
        marked()
        return
    made = records(40_000)
    found: dict[str, dict[str, float]] = {}
    for calibrator in options.calibrator or ["histogram", DEFAULT_CALIBRATOR]:
        for size in map(int, options.sizes.split(",")):
            found[f"{calibrator}, {size:,}"] = measure(Policy(calibrator), made, size)
    print(f"a worker takes parts of {applying.PART}\n{shown(found, STEPS)}")
    mapped = {
        f"intake, {form}, {size}": measure_intake(form, size, 20_000)
        for form in repartition.FORMATS
        for size in map(int, options.sizes.split(","))
    }
    print(f"intake takes parts of {agents.sending.PART}\n{shown(mapped, INTAKE)}")
    routed = {f"router, {size}": measure_router(size, 20_000) for size in map(int, options.sizes.split(","))}
    print(shown(routed, ROUTER))
    found |= mapped | routed
    print(orjson.dumps({name: {k: round(v, 2) for k, v in one.items()} for name, one in found.items()}).decode())


if __name__ == "__main__":
    main()
