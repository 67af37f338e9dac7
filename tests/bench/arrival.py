"""``python -m tests.bench.arrival [FORECASTS OUTCOMES]``: what a stream learns, by how many partitions sources have.

Plays JSON lines of forecasts and of outcomes in time order, or without them the first 20,000 flights (`lab.flights`),
through the stages as they are: `SourceBuffers` of intake, `Turns`, `PartitionBuffer` and `Router` of the router,
`PartitionBuffer` and the engine of the worker. Only the brokers are lists. Sources are keyed by event and have 1, 8 and
32 partitions each. With ``--live N`` so many records come at a time. With ``--backlog`` all is there from the start,
and who is next and how much is fetched is drawn, so that stages overtake each other: the worst case for the order.
Without either it is a first start, in which each stage waits until the one before it is done. The first line is what
the engine makes of the records in time order; the others name their difference.
"""

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import orjson
from aiokafka.structs import TopicPartition
from faust.types import TP

from lab import flights
from state.engine import BATCH_LIMIT, Partition
from state.events import Calibrated, Resolved
from state.policy import Policies, Policy
from state.routes import Routed, Router
from streams.faust.routed_outputs import by_time
from streams.faust.turns import Turns
from streams.kafka import partitioner
from streams.kafka.source_merge import SourceBuffers
from streams.records.decoding import Decoder
from streams.records.encoding import EncodedRecord
from streams.records.limits import Limits
from streams.records.merge import Batch, PartitionBuffer
from streams.records.routing import RouteDecoder, encode_forecast, encode_label, encode_outcome, encode_route

#: Partitions of the router, and most records of one fetch.
ROUTERS, FETCH = 8, 1000
Log = list[Any]


class Scores(NamedTuple):
    """Brier scores of what was served and of what came, events, and outcomes older than one before them."""

    served: float
    raw: float
    n: int
    late: int


class Reading:
    """A consumer of one partition's two topics: a buffer as the transport has it, and how far it has read."""

    def __init__(self, logs: tuple[Log, Log], partition: int = 0) -> None:
        self.logs, self.at = logs, [0, 0]
        self.buffer = PartitionBuffer(partition, [TP("a", partition), TP("b", partition)])

    def caught_up(self, tp: TP) -> bool:
        return self.at["ab".index(tp.topic)] == len(self.logs["ab".index(tp.topic)])

    def batch(self, rng: random.Random) -> list[tuple[int, Any]]:
        """Fetch something, and take what is ready."""
        self.fetch(rng)
        # Patience is for what does not move; here everything does.
        batch = self.buffer.take(BATCH_LIMIT, 900_000, self, 1e9)
        return [] if batch is None else self.done(batch)

    def fetch(self, rng: random.Random) -> None:
        """Fetch something."""
        for topic, log in enumerate(self.logs):
            if len(self.buffer.buffers[topic]) < 20_000:
                end = min(len(log), self.at[topic] + rng.randrange(1, FETCH))
                self.buffer.add(topic, log[self.at[topic] : end])
                self.at[topic] = end

    def done(self, batch: Batch) -> list[tuple[int, Any]]:
        """Let the next batch be taken."""
        self.buffer.busy = False
        self.buffer.acknowledged(batch)
        return batch.records


def record(log: Log, key: bytes, value: bytes, ts: int) -> None:
    """Append a record to a list that stands for a partition."""
    log.append(SimpleNamespace(offset=len(log), key=key, value=value, timestamp=ts, headers=()))


def lines(path: Path, rows: int | None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file."""
    with path.open("rb") as file:
        for i, line in enumerate(file):
            if i == rows:
                return
            yield orjson.loads(line)


def of_flights(rows: int) -> tuple[Log, Log]:
    """Return forecasts and outcomes of the first flights, in time order."""
    found: tuple[Log, Log] = ([], [])
    for message in flights.load(rows).messages():
        found[message.topic == "outcomes"].append({**orjson.loads(message.value), "ts": message.time_ms})
    return found


class Worker:
    """The engine of one partition, and the sums of its scores."""

    def __init__(self, policies: Policies) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._engine = Partition(policies, self._rows.get)
        self._decoder = Decoder(policies, Limits())
        self._sums = [0.0, 0.0]
        self._n = self._late = self._last = 0

    def fold(self, records: list[tuple[int, Any]]) -> None:
        """Fold a batch."""
        for topic, each in records:
            if topic:
                self._late += each.timestamp < self._last
                self._last = max(self._last, each.timestamp)
        effects = self._engine.fold(self._decoder.events(records))
        for key, row in effects.rows.items():
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        for output in effects.outputs:
            if isinstance(output, Resolved):
                y = output.y
                self._sums[0] += (float(output.p) - y) ** 2  # type: ignore[arg-type]
                self._sums[1] += (float(output.raw) - y) ** 2  # type: ignore[arg-type]
                self._n += 1
            else:
                assert isinstance(output, Calibrated), output

    def scores(self) -> Scores:
        """Return what was found."""
        return Scores(self._sums[0] / self._n, self._sums[1] / self._n, self._n, self._late)


def in_order(forecasts: Log, labels: Log, policies: Policies) -> Scores:
    """Fold the records in time order, keyed by nothing: what one partition with co-partitioned inputs does."""
    logs: tuple[Log, Log] = ([], [])
    for each in forecasts:
        record(logs[0], b"", orjson.dumps(each), each["ts"])
    for each in labels:
        record(logs[1], b"", orjson.dumps(each), each["ts"])
    worker, reading = Worker(policies), Reading(logs)
    rng = random.Random(0)
    while batch := reading.batch(rng):
        worker.fold(batch)
    return worker.scores()


class Stages:
    """Intake, routers and worker, over lists, and which of them had nothing to do since one had."""

    def __init__(self, sources: dict[TopicPartition, Log], policies: Policies, rng: random.Random) -> None:
        self._sources, self._rng = sources, rng
        self._read = dict.fromkeys(sources, 0)
        #: How many records of each partition have been written.
        self._ends = {tp: len(log) for tp, log in sources.items()}
        self._intake = SourceBuffers(1e9, 20_000, 64 << 20)
        self._intake.assign(sources)
        self._sent: Log = []
        self._outcomes: Log = []
        self._tables: list[dict[bytes, bytes]] = [{} for _ in range(ROUTERS)]
        self._routers = [(Reading(([], []), n), Router(policies, t.get), t) for n, t in enumerate(self._tables)]
        self._turns = Turns(BATCH_LIMIT, 900_000, 1e9)
        self._reading = Reading((self._sent, self._outcomes))
        self.worker = Worker(policies)

    def live(self, at_once: int) -> Scores:
        """Let so many records come at a time, and every stage have a turn before more do."""
        order = sorted((each.timestamp, tp) for tp, log in self._sources.items() for each in log)
        self._ends = dict.fromkeys(self._sources, 0)
        for at in range(0, len(order), at_once):
            for _, tp in order[at : at + at_once]:
                self._ends[tp] += 1
            for tp in self._sources:
                self._fetch(tp, at_once)
            self._pass_on()
            while self._route():
                pass
            self.worker.fold(self._reading.batch(self._rng))
        return self.backlog()

    def backlog(self) -> Scores:
        """Let stages take turns by chance until all have done everything."""
        stages, idle = (self._take_in, self._route, self._fold), set[int]()
        while len(idle) < len(stages):
            turn = self._rng.randrange(len(stages))
            idle = set() if stages[turn]() else idle | {turn}
        return self.worker.scores()

    def first_start(self) -> Scores:
        """Let each stage do everything before the next begins."""
        for stage in (self._take_in, self._route, self._fold):
            while stage():
                pass
        return self.worker.scores()

    def _fold(self) -> bool:
        batch = self._reading.batch(self._rng)
        self.worker.fold(batch)
        return bool(batch) or self._reading.at != [len(log) for log in self._reading.logs]

    def _take_in(self) -> bool:
        for tp in self._rng.sample(list(self._sources), self._rng.randrange(1, len(self._sources) + 1)):
            if tp not in self._intake.full():
                self._fetch(tp, self._rng.randrange(1, FETCH))
        return self._pass_on() or self._read != self._ends

    def _fetch(self, tp: TopicPartition, most: int) -> None:
        at, end = self._read[tp], min(self._ends[tp], self._read[tp] + most)
        self._intake.add(tp, self._sources[tp][at:end])
        self._read[tp] = end

    def _pass_on(self) -> bool:
        batch = self._intake.take(BATCH_LIMIT, lambda tp: self._read[tp] == self._ends[tp])
        for tp, each in batch:
            self._send(tp, each)
        return bool(batch)

    def _send(self, tp: TopicPartition, each: Any) -> None:
        said = orjson.loads(each.value)
        origin = f"{tp.topic}/{tp.partition}", each.offset
        event_id, ts = said["event_id"], each.timestamp
        routes, labels = self._routers[partitioner.partition(event_id.encode(), ROUTERS)][0].logs
        if tp.topic == "s":
            record(self._sent, b"", encode_forecast(said, origin), ts)
            record(routes, b"", encode_route(event_id, said["stream"], said["stream"], origin), ts)
        else:
            record(labels, b"", encode_label(event_id, "", "", said["y"], said["ts"], 0, origin), ts)

    def _route(self) -> bool:
        for reading, _, _ in self._rng.sample(self._routers, self._rng.randrange(1, ROUTERS + 1)):
            reading.fetch(self._rng)
        batches = self._turns.take([reading.buffer for reading, _, _ in self._routers], self)
        made: list[list[EncodedRecord]] = []
        for batch in batches:
            reading, router, table = self._routers[batch.partition]
            router.begin()
            outputs = router.apply(RouteDecoder().events(reading.done(batch)))
            made.append([(b"", encode_outcome(each), each.stamp, []) for each in outputs if isinstance(each, Routed)])
            router.end()
            for key, row in router.checkpoint().rows.items():
                if row is None:
                    table.pop(key, None)
                else:
                    table[key] = row
        for _, value, stamp, _ in by_time(made):
            record(self._outcomes, b"", value or b"", stamp or 0)
        return bool(batches) or any(reading.at != [len(log) for log in reading.logs] for reading, _, _ in self._routers)

    def caught_up(self, tp: TP) -> bool:
        return self._routers[tp.partition][0].caught_up(tp)


def routed(
    forecasts: Log, labels: Log, policies: Policies, width: int, live: int = 0, *, backlog: bool = False
) -> Scores:
    """Send the records through intake and router, out of sources of so many partitions each; see `main`."""
    sources: dict[TopicPartition, Log] = defaultdict(list)
    for role, found in (("s", forecasts), ("l", labels)):
        for each in found:
            place = TopicPartition(role, partitioner.partition(each["event_id"].encode(), width))
            record(sources[place], b"", orjson.dumps(each), each["ts"])
    stages = Stages(sources, policies, random.Random(width))
    if live:
        return stages.live(live)
    return stages.backlog() if backlog else stages.first_start()


def main() -> int:
    """Print one line for each width."""
    parser = argparse.ArgumentParser()
    parser.add_argument("forecasts", type=Path, nargs="?")
    parser.add_argument("outcomes", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, help="of the forecasts; of flights 20,000 if it is not said")
    parser.add_argument(
        "--live", type=int, default=0, metavar="N", help="N records come at a time (default: a first start)"
    )
    parser.add_argument("--backlog", action="store_true", help="stages overtake each other")
    parser.add_argument("--calibrator", default=Policy().calibrator)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 8, 32])
    options = parser.parse_args()
    policies = Policies(default=Policy(options.calibrator))
    if options.outcomes is None:
        forecasts, labels = of_flights(options.rows or 20_000)
    else:
        forecasts = list(lines(options.forecasts, options.rows))
        known = {each["event_id"] for each in forecasts}
        labels = [each for each in lines(options.outcomes, None) if each["event_id"] in known]
    exact = in_order(forecasts, labels, policies)
    print(f"in time order          Brier {exact.served:.5f}, raw {exact.raw:.5f}, {exact.n:,} events", flush=True)
    for width in options.widths:
        found = routed(forecasts, labels, policies, width, options.live, backlog=options.backlog)
        print(
            f"{width:>2} partitions a source  Brier {found.served:.5f} ({found.served - exact.served:+.5f}), "
            f"{found.n:,} events, {found.late:,} outcomes behind a later one",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
