"""A history: records that come, workers that serve them, and faults that strike.

Everything is drawn from one seed: what comes, which settings, which faults, in which order processes run and how long
messages take. The same seed makes the same history, line by line. A fault of the list can be left out without moving
the others: so a history that fails is shrunk.
"""

import asyncio
import gc
import logging
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from zlib import crc32

import aiokafka.client
from mode.utils.logging import CompositeLogger

from agents import topology as wiring
from agents import worker as working
from agents.topology import Topology
from state.policies import Policies
from state.policy import Challenger, Policy
from streams.config.settings import Settings
from streams.faust import application, client, fetching
from streams.faust.producing import RecordBatch
from tests.e2e.world import BESIDE
from tests.events import Sent, mixed
from tests.simulation import kafka
from tests.simulation.disk import Disks
from tests.simulation.loop import BEGIN, PROCESS, Loop, Process, virtual_clocks, within

#: How long records come, s, and how long faults strike.
FEED: Final = 8.0
#: After so long without faults everything must be answered, s: sessions end, claims move, state is restored.
SILENCE: Final = 90.0
SESSION: Final = 3.0
#: Where directories cost least.
SHARED: Final = Path("/dev/shm")  # noqa: S108 - a directory of its own is made there
NAMES: Final = ("anna", "berta", "carla")


_collect = gc.collect


class KilledError(BaseException):
    """The process has ended: nothing of it may go on."""


@dataclass(frozen=True)
class Fault:
    """Something that happens to a worker, or to all.

    Attributes
    ----------
    kind
        What: see `World.strike`.
    worker
        Whom.
    at
        When it is due, virtual s.
    after
        How many callbacks of the worker later it strikes: between any two of them. Where the worker is down it strikes
        while it starts and recovers.
    long
        How long it lasts, s, or how much of it.
    """

    kind: str
    worker: str
    at: float
    after: int
    long: float

    def __str__(self) -> str:
        whom = f" {self.worker}" if self.worker else ""
        return f"at {self.at:.2f} s, {self.after} callbacks later: {self.kind}{whom} for {self.long:.2f}"


#: How the kinds end that strike amid an append.
AMID: Final = " amid an append"
#: Which faults there are, and how often each is drawn.
KINDS: Final = {
    "kill": 20,
    "kill amid an append": 25,
    "pause": 8,
    "pause amid an append": 16,
    "trouble": 10,
    "cut": 6,
    "stop": 6,
    "old disk": 5,
    "lost disk": 4,
    "torn disk": 4,
    "swapped disks": 3,
    "foreign disk": 2,
    "damaged disk": 3,
    "jump": 5,
    "configure": 6,
    "compact": 4,
}


class Plan(NamedTuple):
    """What a seed stands for, besides chance: the records, the workers, the faults."""

    seed: int
    records: list[Sent]
    width: int
    workers: int
    settings: dict[str, Any]
    policies: int
    faults: tuple[Fault, ...]


#: Policies that a worker may be started with.
POLICIES: Final = (
    Policies([("*", Policy("histogram", ttl_ms=3_000, matures_ms=1_000, silence=0.0))], early_ttl_ms=1_500),
    Policies(
        [
            ("stream-0", Policy("platt", ttl_ms=4_000, learn="arrival", shadow=(Challenger("histogram", {}),))),
            ("*", Policy("histogram", ttl_ms=2_500, matures_ms=1_200, silence=0.0, revisable_ms=4_000)),
        ],
        early_ttl_ms=1_500,
    ),
)


def planned(seed: int) -> Plan:
    """Return what a seed stands for."""
    rng = random.Random(f"plan {seed}")
    width, workers = rng.choice((1, 1, 2, 2, 3)), rng.choice((1, 2, 2, 3))
    n = rng.choice((20, 40, 60))
    start = int((BEGIN + rng.choice((0.5, 0.5, -20.0))) * 1000)
    step = int(FEED * 1000 / (n + 75))
    records = mixed(n, seed=seed, start=start, step=step).sent
    again = [each for each in records if each.topic == "forecasts" and rng.random() < rng.choice((0.0, 0.3))]
    records += [each._replace(ts=each.ts + step * rng.randrange(12)) for each in again]
    records.sort(key=lambda sent: sent.ts)
    settings = {
        "batch_records": rng.choice((5, 20, 20_000)),
        "checkpoint_seconds": rng.choice((0.2, 1.0, 2.0, 5.0)),
        "quiet_seconds": rng.choice((0.0, 1.0, 1.0)),
        "latency_ms": rng.choice((0.0, 5.0, 200.0)),
        "batch_bytes": rng.choice((900_000, 20_000)),
    }
    faults = []
    for _ in range(rng.choice((1, 2, 3, 4, 6, 8))):
        (kind,) = rng.choices(tuple(KINDS), tuple(KINDS.values()))
        at, after, long = rng.random() * FEED, int(rng.random() ** 2 * 1500), rng.random() * 2
        if kind.startswith("pause") or kind == "cut":
            long = rng.choice((0.5, 2 * SESSION, 3 * SESSION)) * (0.6 + rng.random())
        worker = "" if kind in ("trouble", "compact") else rng.choice(NAMES[:workers])
        faults.append(Fault(kind, worker, at, after, long))
        if kind not in ("trouble", "compact", "jump") and rng.random() < 0.3:  # and once more while it recovers
            faults.append(Fault("kill", worker, at + rng.random() * 0.2, int(rng.random() * 900), long))
    faults.sort(key=lambda fault: fault.at)
    return Plan(seed, records, width, workers, settings, rng.randrange(len(POLICIES)), tuple(faults))


@dataclass(eq=False)
class Worker:
    """A worker by its name, through all its processes."""

    name: str
    directory: Path
    policies: int
    process: Process | None = None
    topology: Topology | None = None
    stop: asyncio.Event | None = None
    starts: int = 0
    #: Faults that are due and strike one after another; and those that strike amid an append.
    due: list[Fault] = field(default_factory=list)
    amid: list[Fault] = field(default_factory=list)
    appends: int = 0


class World:
    """One history; `run` it once.

    Attributes
    ----------
    lines
        What happened, in words and in order.
    deaths
        How often workers ended by themselves, by the name of the error.
    counts
        How many faults struck, by kind.
    heaviest
        Most bytes of dirty rows that a partition had, and how many there may be.
    """

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan, self.directory = plan, directory
        self.loop = Loop(f"schedule {plan.seed}")
        self.lines: list[str] = []
        self.deaths: list[tuple[float, BaseException | str]] = []
        self.counts: Counter[str] = Counter()
        self.heaviest, self.overdue, self.answered = 0, "", False
        self.tables: dict[int, dict[bytes, bytes]] = {}
        self.base = Settings(
            brokers=("kafka:9092",),
            compression="none",
            session_seconds=SESSION,
            request_seconds=6.0,
            patience_seconds=30.0,
            commit_seconds=0.5,
            policies=POLICIES[plan.policies],
            data_dir=directory,
            letter_bytes=1000,
            record_bytes=1000,
            **plan.settings,
        )
        base = self.base
        inputs = base.forecasts, base.outcomes
        topics = (*inputs, base.calibrated, base.resolved, base.dead_letters, base.changelog, base.journal)
        self.kafka = kafka.Kafka(self.loop, dict.fromkeys((*topics, base.configurations), plan.width), self.log)
        self.network = kafka.Network(self.loop, self.kafka, f"network {plan.seed}", self.log)
        self.network.met = self._met
        self.disks = Disks()
        self.workers = {name: Worker(name, directory / name, plan.policies) for name in NAMES[: plan.workers]}
        last = max(each.ts for each in plan.records) / 1000 - BEGIN
        self.calm = max([last + 1.0, *(each.at + 4.0 + each.long for each in plan.faults)])
        self.done = False

    def log(self, line: str) -> None:
        """Note what happens."""
        self.lines.append(f"{self.loop.now:9.4f} {line}")

    # -- workers ---------------------------------------------------------------------------------------------------

    def start(self, worker: Worker) -> None:
        """Start a process of a worker, unless one is there."""
        if worker.process is not None or self.done:
            return
        worker.starts += 1
        process = worker.process = self.loop.process(worker.name, worker.starts)
        self.log(f"{worker.name} starts")
        with within(process):
            self.loop.create_task(self._main(worker, process))
        self._arm(worker)

    async def _main(self, worker: Worker, process: Process) -> None:
        settings = replace(self.base, data_dir=worker.directory, policies=POLICIES[worker.policies])
        worker.stop = asyncio.Event()

        def abort(*_: object) -> None:
            self.end(worker, process)
            raise KilledError

        topology = worker.topology = wiring.build(settings, abort=abort)
        try:
            await working._work(topology, settings, worker.stop)
        except KilledError:
            raise
        except Exception as exc:  # noqa: BLE001 - the judge looks which
            self.deaths.append((self.loop.now, exc))
            self.log(f"{worker.name} raised {exc!r}")
        self.end(worker, process, said=False)

    def end(self, worker: Worker, process: Process, down: float = 0.7, *, said: bool = True) -> None:
        """End a process, and start another one after some seconds."""
        if not process.alive:
            return
        topology = worker.topology
        if said and topology is not None and topology.failure is not None:
            self.deaths.append((self.loop.now, topology.failure))
            self.log(f"{worker.name} ended by itself: {topology.failure!r}")
        self.loop.kill(process)
        if worker.process is process:
            worker.process = worker.topology = None
            with within(None):
                self.loop.call_later(down, self.start, worker)

    # -- faults ----------------------------------------------------------------------------------------------------

    def _due(self, fault: Fault) -> None:
        if fault.worker:
            worker = self.workers[fault.worker]
            (worker.amid if fault.kind.endswith(AMID) else worker.due).append(fault)
            self._arm(worker)
        else:
            self.strike(fault)

    def _arm(self, worker: Worker) -> None:
        """Let the next fault that is due strike the process that runs."""
        if worker.process is None or worker.process.left is not None or not worker.due:
            return
        fault = worker.due[0]

        def struck() -> None:
            worker.due.remove(fault)
            with within(None):
                self.strike(fault)
            self._arm(worker)

        worker.process.left, worker.process.struck = fault.after, struck

    def _met(self, name: str, applied: bool) -> None:  # noqa: FBT001 - see `Network.met`
        """Let what is due amid an append strike: before it is sent, or when it is applied and nobody has been told."""
        worker = self.workers.get(name)
        if worker is None or not worker.amid:
            return
        fault = worker.amid[0]
        worker.appends += 1
        if worker.appends > fault.after % 12 and applied == bool(fault.after % 2):
            worker.amid.pop(0)
            worker.appends = 0
            with within(None):
                self.strike(fault)

    def strike(self, fault: Fault) -> None:
        """Let a fault happen."""
        self.counts[fault.kind] += 1
        self.log(f"FAULT {fault.kind} {fault.worker}")
        kind, loop = fault.kind.removesuffix(AMID), self.loop
        if kind == "trouble":
            self.network.troubled = 0.02 + 0.1 * fault.long
            loop.call_later(1 + fault.long, self._untroubled)
            return
        if kind == "compact":
            for n in range(self.plan.width):
                self.kafka.logs[self.base.changelog, n].compact()
            return
        worker = self.workers[fault.worker]
        process = worker.process
        if process is None:
            return
        if kind == "pause":
            process.stands = True
            loop.call_later(fault.long, self._wake, process)
        elif kind == "cut":
            self.network.cut.add(worker.name)
            loop.call_later(fault.long, self.network.cut.discard, worker.name)
        elif kind == "jump":
            process.ahead += (fault.long - 1) * 30
        elif kind == "stop":
            assert worker.stop is not None
            with within(process):
                worker.stop.set()
        elif kind == "damaged disk":
            for each in self.disks.of(worker.directory):
                each.damaged = True
        else:
            self.end(worker, process, fault.long, said=False)
            self._afterwards(kind, worker, random.Random(f"{self.plan.seed} {fault}"))

    def _afterwards(self, kind: str, worker: Worker, rng: random.Random) -> None:
        """Do to a worker that was killed what goes with a kind of fault."""
        found = self.disks.of(worker.directory)
        if kind == "configure":
            worker.policies = 1 - worker.policies
        elif kind == "lost disk":
            shutil.rmtree(worker.directory)
        elif kind == "swapped disks":
            other = rng.choice(list(self.workers.values()))
            if other.process is not None:
                self.end(other, other.process, said=False)
            if other is not worker and worker.directory.exists() and other.directory.exists():
                aside = self.directory / "aside"
                for source, target in (
                    (worker.directory, aside),
                    (other.directory, worker.directory),
                    (aside, other.directory),
                ):
                    source.rename(target)
        for each in found:
            if kind == "old disk":
                each.again(each.writes[: rng.randrange(len(each.writes) + 1)])
            elif kind == "torn disk" and each.writes:
                hole = max(0, len(each.writes) - 1 - rng.randrange(4))
                each.again(each.writes[:hole] + each.writes[hole + 1 :])
            elif kind == "foreign disk":
                each.again(
                    [
                        [
                            (key, value and value.replace(b'"cluster"', b'"another"'))
                            for key, value in write
                            if key[:2] == b"__" or rng.random() < 0.7
                        ]
                        for write in each.writes
                    ]
                )

    def _untroubled(self) -> None:
        self.network.troubled = 0.0

    def _wake(self, process: Process) -> None:
        if process.alive:
            self.log(f"{process.name} wakes")
        process.stands = False

    # -- the history -----------------------------------------------------------------------------------------------

    def send(self, sent: Sent) -> None:
        """Append a record to an input."""
        batch = RecordBatch(1 << 20, 0)
        batch.extend([(sent.key, sent.value, sent.ts, [])])
        place = sent.topic, crc32(sent.key) % self.plan.width
        self.kafka.appends += 1
        self.kafka.logs[place].append(batch.sealed(-1, -1, -1), "producer", self.kafka.appends)

    @property
    def settled(self) -> bool:
        """Whether the brokers have committed offsets at the ends of all inputs, and all workers are at rest."""
        served = set[int]()
        for worker in self.workers.values():
            topology = worker.topology
            if topology is None or not topology.app.faust.started or topology.app.faust.in_recovery:
                return False
            if not all(each.idle for each in topology.app.consumer.partition_buffers.values()):
                return False
            if topology.app.serving:
                served.update(topology.processor._partitions)
        if len(served) < self.plan.width:
            return False
        offsets = self.kafka.groups[self.base.app_id].offsets
        places = [(topic, n) for topic in (self.base.forecasts, self.base.outcomes) for n in range(self.plan.width)]
        return all(offsets.get(place, 0) == self.kafka.logs[place].end for place in places)

    @property
    def _starts(self) -> int:
        """How often workers were started."""
        return sum(worker.starts for worker in self.workers.values())

    async def _settle(self) -> None:
        """Wait until all is answered, not for ever."""
        end = self.loop.now + SILENCE
        while not self.settled and self.loop.now < end:
            await asyncio.sleep(0.5)
            self._weigh()
        self.answered = self.settled

    async def _history(self) -> None:
        rng = random.Random(f"arrivals {self.plan.seed}")
        for sent in self.plan.records:
            at = max(0.0, sent.ts / 1000 - BEGIN) + rng.random() * rng.choice((0.0, 0.01, 0.3))
            self.loop.call_at(at, self.send, sent)
        for worker in self.workers.values():
            self.loop.call_at(rng.choice((0.0, rng.random() * 0.5, rng.random() * FEED)), self.start, worker)
        for fault in self.plan.faults:
            self.loop.call_at(fault.at, self._due, fault)
        while self.loop.now < self.calm:
            await asyncio.sleep(0.25)
            self._weigh()
        self.log("calm")
        for worker in self.workers.values():
            worker.due.clear()
            worker.amid.clear()
            if worker.process is not None:
                worker.process.left = None
                worker.process.ahead = 0.0
        starts = -1
        while starts != self._starts:  # a worker whose request a fault held up may end only now, and start again
            starts = self._starts
            await self._settle()
            if not self.answered:
                return
            await asyncio.sleep(6.0)  # what falls due by the clock on quiet topics, and the last checkpoints
        self._look_for_overdue()
        self._read_tables()
        self.log("all is answered")
        self.done = True
        end = self.loop.now + SILENCE
        for worker in self.workers.values():
            if worker.stop is not None and worker.process is not None:
                with within(worker.process):
                    worker.stop.set()
        while any(each.process for each in self.workers.values()) and self.loop.now < end:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.5)

    def _look_for_overdue(self) -> None:
        """Note what has been due for two seconds by the clock of a topic that is quiet."""
        if not self.base.quiet_seconds:
            return
        now = (BEGIN + self.loop.now - self.base.quiet_seconds - 2.0) * 1000
        for worker in self.workers.values():
            for n, served in (worker.topology.processor._partitions if worker.topology else {}).items():
                if served.engine.ripens < now and served.live:
                    self.overdue = f"partition {n} is quiet, and what fell due does not happen"

    def _read_tables(self) -> None:
        """Note what stands on the disks of those who serve partitions."""
        for worker in self.workers.values():
            if worker.topology is not None and worker.process and not worker.process.stands:
                table = worker.topology.table
                for n in worker.topology.processor._partitions:
                    if table.store._db_for_partition(n)._database.damaged:  # and nobody has read it yet
                        continue
                    rows = dict(table.range(n, b""))
                    self.tables[n] = {
                        key: row for key, row in rows.items() if key[:1] not in BESIDE and key[:2] != b"__"
                    }

    def _weigh(self) -> None:
        for worker in self.workers.values():
            if worker.topology is not None:
                for served in worker.topology.processor._partitions.values():
                    self.heaviest = max(self.heaviest, served.engine.weight)

    def run(self) -> None:
        """Play the history to its end."""
        random.seed(self.plan.seed)
        try:
            self.loop.run_until_complete(self._history())
            if self.loop.errors:
                raise self.loop.errors[0]
        finally:
            self.loop.bury()


class _Lines(logging.Handler):
    """Notes what the product logs."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line."""
        process = PROCESS.get()
        if process is not None and process.alive:
            self.world.log(f"{process.name}: {record.getMessage()}")


#: What becomes of the product while it is simulated: no sockets, no threads, and fewer fetches that bring nothing.
@contextmanager
def simulated() -> Iterator[None]:
    """Take the product's clocks and threads away, for any number of histories."""
    names = ("faust", "mode", "aiokafka", "asyncio")
    loggers = [logging.getLogger(name) for name in names]
    levels = [each.level for each in loggers]
    with ExitStack() as stack:
        stack.enter_context(virtual_clocks())
        stack.enter_context(patch.object(fetching.LoopConsumer, "on_crash", lambda *_: None))
        stack.enter_context(patch.object(application, "CONCURRENCY", 4))
        stack.enter_context(patch.object(CompositeLogger, "log", lambda *_, **__: None))
        stack.enter_context(patch.object(fetching, "FETCH_WAIT_MS", 500))
        for each in loggers:
            each.setLevel(logging.CRITICAL + 1)
        stack.enter_context(patch.object(gc, "collect", lambda *_: 0))  # Faust calls it at each rebalance
        _collect()
        gc.freeze()  # what is there now is not walked through after each history
        try:
            yield
        finally:
            gc.unfreeze()
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)


def play(plan: Plan, judge: Callable[[World], None] = lambda _: None) -> World:
    """Play a history within `simulated`, and judge it."""
    directory = Path(tempfile.mkdtemp(prefix="trueup-simulation-", dir=SHARED if SHARED.is_dir() else None))
    log = logging.getLogger("trueup")
    before = log.level, log.propagate
    collecting = gc.isenabled()
    gc.disable()
    handler = None
    try:
        world = World(plan, directory)
        handler = _Lines(world)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
        with (
            patch.object(aiokafka.client, "create_conn", world.network.connect),
            patch.object(client, "create_conn", world.network.connect),
            world.disks.mounted(),
        ):
            world.run()
        judge(world)
        return world
    finally:
        if handler is not None:
            log.removeHandler(handler)
        log.level, log.propagate = before
        if collecting:
            gc.enable()
        _collect()
        shutil.rmtree(directory, ignore_errors=True)
