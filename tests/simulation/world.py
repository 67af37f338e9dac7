"""A history: records that come, processes that serve them, and faults that strike.

Everything is drawn from one seed: what comes, which settings, which faults, in which order processes run and how long
messages take. The same seed makes the same history, line by line. A fault of the list can be left out without moving
the others: so a history that fails is shrunk.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from agents import __version__, deaths, intake
from agents import topology as wiring
from agents import worker as working
from agents.router import ROUTER as ROUTING
from agents.topology import Topology
from state.formats import ARITHMETIC
from state.policies import Policies
from streams.config.settings import Settings
from streams.faust.producing import RecordBatch
from streams.kafka import backlog, owners
from streams.kafka.partitioner import partition
from streams.metrics.routing import IntakeGauges
from streams.records.skips import PoisonError
from tests.events import Sent
from tests.simulation import eras, kafka, looks, operators
from tests.simulation.builds import BUILDS
from tests.simulation.commands import KilledError
from tests.simulation.disk import Disks
from tests.simulation.faults import Faults
from tests.simulation.group import Place
from tests.simulation.loop import BEGIN, Loop, Process, within
from tests.simulation.network import Network
from tests.simulation.plan import (
    AUDITOR,
    HELPER,
    INTAKE,
    LOAD,
    OPERATOR,
    OPERATORS,
    POLICIES,
    PROMOTE,
    ROUTER,
    UPGRADE,
    WIDTHS,
    Fault,
    Plan,
)

#: After so long without faults everything must be answered, s: sessions end, claims move, state is restored.
SILENCE: Final = 90.0
#: How often all may be at rest and not be so a little later.
RESTS: Final = 10


@dataclass(eq=False)
class Actor:
    """Who runs a stage, by its name, through all its processes."""

    name: str
    stage: str
    directory: Path
    policies: int
    process: Process | None = None
    #: What a worker or router runs.
    topology: Topology | None = None
    stop: asyncio.Event | None = None
    starts: int = 0
    #: Faults that are due and strike one after another, those that strike amid a request, and how many of these it met.
    due: list[Fault] = field(default_factory=list)
    amid: list[Fault] = field(default_factory=list)
    met: int = 0
    #: Version of the arithmetic of the build that is started next.
    build: int = ARITHMETIC
    #: Whether it is not to be started.
    held: bool = False
    #: The streams file that it was started with, where operators change that.
    streams: str = ""


class World:
    """One history; `run` it once."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan, self.directory = plan, directory
        self.loop = Loop(f"schedule {plan.seed}")
        self.operator = self.loop.process("operator", 1)
        #: What happened, in words and in order.
        self.lines: list[str] = []
        #: What each audit has said, as JSON.
        self.audits: list[dict[str, Any]] = []
        #: How often processes ended by themselves, by the name of the error.
        self.deaths: list[tuple[float, BaseException | str]] = []
        #: Most bytes of dirty rows that a partition had.
        self.heaviest = 0
        self.overdue, self.answered = "", False
        #: When the last of the processes was to start for the first time, s.
        self.begun = 0.0
        #: The rows on the disks in the end, by stage and partition.
        self.tables: dict[tuple[str, int], dict[bytes, bytes]] = {}
        #: The group, and where it moves to another number of partitions, the one that follows.
        self.eras = eras.of(plan, directory)
        #: The one whose processes are started, and the one whose inputs producers write.
        self.era = self.sending = self.eras[0]
        #: Whether operators have done what they had to do.
        self.finished = not plan.task
        #: Whether the stages had to run once more before a move, and whether a past was loaded.
        self.again, self.loaded, self.streams = False, False, directory / "streams.toml"
        #: What streams files that processes were started with say, by their text.
        self.known: dict[str, Policies] = {}
        #: Which records were left out.
        self.left = set[str]()
        #: What operators have still to promote, or which builds to roll out.
        self.goals: list[Any] = [*plan.goals]
        if plan.task == UPGRADE:
            self.goals = [BUILDS[1], BUILDS[0]][: 1 + (plan.seed % 3 == 0)]
        self.commanding: list[Process] = []
        self.widths = WIDTHS | {self.base.owners: 1} if plan.sourced or plan.moved else {}
        for era in self.eras:
            self.widths |= dict.fromkeys(era.topics, era.width)
        self.kafka = kafka.Kafka(self.loop, self.widths, self.log, f"leaders {plan.seed}")
        self.network = Network(self.loop, self.kafka, f"network {plan.seed}", self.log)
        self.faults = Faults(self)
        self.network.met = self.faults.met
        self.disks = Disks()
        self.actors = {name: Actor(name, stage, directory / name, plan.policies) for name, stage in plan.names.items()}
        for name, actor in self.actors.items():
            actor.held = name == HELPER or (plan.task == LOAD and not plan.before and actor.stage != OPERATOR)
        last = max(each.ts for each in plan.records) / 1000 - BEGIN
        self.calm = max([last + 1.0, *(each.at + 4.0 + each.long for each in plan.faults)])
        self.done = False

    def log(self, line: str) -> None:
        """Note what happens."""
        self.lines.append(f"{self.loop.now:9.4f} {line}".replace(str(self.directory), ""))

    @property
    def base(self) -> Settings:
        """The settings of the group."""
        return self.era.base

    @property
    def folding(self) -> dict[str, Settings]:
        """The settings of the stages that have state."""
        return self.era.folding

    @property
    def width(self) -> int:
        """The number of partitions."""
        return self.era.width

    # -- processes -------------------------------------------------------------------------------------------------

    def start(self, actor: Actor) -> None:
        """Start a process of a stage, unless one is there."""
        if actor.process is not None or self.done or actor.held or (actor.name in OPERATORS and self.finished):
            return
        actor.starts += 1
        process = actor.process = self.loop.process(actor.name, actor.starts)
        process.build = actor.build
        self.log(f"{actor.name} starts")
        with within(process):
            self.loop.create_task(self._main(actor, process))
        self.faults.arm(actor)

    async def _main(self, actor: Actor, process: Process) -> None:
        settings = replace(self.base, data_dir=actor.directory, policies=self._policies(actor))
        settings = settings.router if actor.stage == ROUTER else settings
        actor.stop = asyncio.Event()
        try:
            if actor.name == AUDITOR:
                await operators.audited(self)
            elif actor.stage == OPERATOR:
                await operators.DOING[self.plan.task](self)
                if not self.finished:
                    self.finished, self.calm = True, max(self.calm, self.loop.now)
            elif self.plan.sourced and (problems := await owners.claim(settings)):
                raise owners.OwnersError("; ".join(problems))
            if actor.stage == OPERATOR:
                pass
            elif actor.stage == INTAKE:
                gauges = IntakeGauges(
                    __version__, dict.fromkeys(each.name for each in settings.sources), lambda: iter(())
                )
                await intake.Intake(settings, gauges).run(actor.stop)
            else:
                await self._folds(actor, process, settings, actor.stop)
        except KilledError:
            raise
        except Exception as exc:  # noqa: BLE001 - the judge looks which
            if not process.alive:  # it is cleared up after the end
                return
            self.deaths.append((self.loop.now, exc))
            self.log(f"{actor.name} raised {exc!r}")
            if actor.stage == INTAKE and isinstance(exc, PoisonError):
                self.log(f"{actor.name}: {deaths.told(settings.data_dir, exc.place)}")
        self.end(actor, process, said=False)

    def _policies(self, actor: Actor) -> Policies:
        """Return the policies that a process begins with: by the streams file where operators change that."""
        if self.plan.task != PROMOTE:
            return POLICIES[actor.policies]
        actor.streams = self.streams.read_text()
        return self.known.setdefault(actor.streams, Settings.from_env(self.era.environment).policies)

    async def _folds(self, actor: Actor, process: Process, settings: Settings, stop: asyncio.Event) -> None:
        """Run a worker or a router, as `agents.worker.run` does."""

        def abort(*_: object) -> None:
            self.end(actor, process)
            raise KilledError

        build = ROUTING.build if actor.stage == ROUTER else wiring.build
        topology = actor.topology = build(settings, abort=abort)
        await backlog.awaited(settings, stop)
        if not stop.is_set():
            await working._work(topology, settings, stop)

    def end(self, actor: Actor, process: Process, down: float = 0.7, *, said: bool = True) -> None:
        """End a process, and start another one after some seconds."""
        if not process.alive:
            return
        topology = actor.topology
        if said and topology is not None and topology.failure is not None:
            self.deaths.append((self.loop.now, topology.failure))
            self.log(f"{actor.name} ended by itself: {topology.failure!r}")
        self.loop.kill(process)
        if actor.process is process:
            actor.process = actor.topology = None
            with within(None):
                self.loop.call_later(down, self.start, actor)

    def _weigh(self) -> None:
        """Note the most bytes of rows that wait for a checkpoint."""
        self.heaviest = max([self.heaviest, *(each.engine.weight for _, each in looks.served(self.actors.values()))])

    # -- the history -----------------------------------------------------------------------------------------------

    def send(self, sent: Sent) -> None:
        """Append a record to an input."""
        batch = RecordBatch(1 << 20, 0)
        batch.extend([(sent.key, sent.value, sent.ts, list(sent.headers))])
        topic = getattr(self.sending.base, sent.topic, sent.topic)
        place = topic, partition(sent.key, self.widths[topic])
        self.kafka.append(place, batch.sealed(-1, -1, -1), "producer")

    def group(self, stage: str) -> str:
        """Return the consumer group of a stage."""
        return self.base.intake_group if stage == INTAKE else self.folding[stage].app_id

    def reads(self, stage: str) -> list[Place]:
        """Return the partitions that a stage reads."""
        of = self.folding.get(stage)
        topics = WIDTHS if of is None else of.inputs
        return [(topic, n) for topic in topics for n in range(self.widths[topic])]

    @property
    def settled(self) -> bool:
        """Whether each stage has committed offsets at the ends of all that it reads, and all are at rest."""
        return self.finished and self.done_reading

    @property
    def done_reading(self) -> bool:
        """The same, whatever operators have left to do."""
        return self.folded and (not self.plan.sourced or self._committed(self.base.intake_group, INTAKE))

    @property
    def folded(self) -> bool:
        """The same of the stages that have state."""
        if self.faults.erasing:
            return False
        for stage, of in self.folding.items():
            if len(set(self._served(stage))) < self.width or not self._committed(of.app_id, stage):
                return False
        return True

    def _committed(self, group: str, stage: str) -> bool:
        offsets = self.kafka.groups[group].offsets
        return all(offsets.get(place, (0, ""))[0] == self.kafka.logs[place].end for place in self.reads(stage))

    def _served(self, stage: str) -> Iterator[int]:
        """Yield the partitions that a stage serves; none if one of its processes is not at rest."""
        topologies = [each.topology for each in self.actors.values() if each.stage == stage and not each.held]
        if not all(topology is not None and looks.rests(topology) for topology in topologies):
            return
        for topology in topologies:
            if topology is not None and topology.app.serving:
                yield from topology.processor._partitions

    @property
    def _starts(self) -> int:
        """How often processes were started."""
        return sum(actor.starts for actor in self.actors.values())

    async def _settle(self) -> None:
        """Wait until all is answered, not for ever."""
        end = self.loop.now + (SILENCE if self.finished else 2 * SILENCE)
        while not self.settled and self.loop.now < end and len(looks.refused(self)) < looks.REFUSED:
            await asyncio.sleep(0.5)
            self._weigh()
        self.answered = self.settled

    async def _history(self) -> None:
        rng = random.Random(f"arrivals {self.plan.seed}")
        for sent in self.plan.records:
            at = max(0.0, sent.ts / 1000 - BEGIN) + rng.random() * rng.choice((0.0, 0.01, 0.3))
            self.loop.call_at(at, self.send, sent)
        for actor in self.actors.values():
            if actor.stage != OPERATOR:
                at = rng.choice((0.0, rng.random() * 0.5, rng.random() * self.plan.feed))
                self.begun = max(self.begun, at)
                self.loop.call_at(at, self.start, actor)
        operators.call(self)
        for fault in self.plan.faults:
            self.loop.call_at(fault.at, self.faults.due, fault)
        while self.loop.now < self.calm:
            await asyncio.sleep(0.25)
            self._weigh()
        self.faults.end()
        if not await self._rested():
            return
        self.overdue = looks.overdue(self.actors.values(), self.base.quiet_seconds, self.loop.now)
        self.tables = looks.tables(self.actors.values(), self.folding)
        self.log("all is answered")
        self.done = True
        end = self.loop.now + SILENCE
        for actor in self.actors.values():
            if actor.stop is not None and actor.process is not None:
                with within(actor.process):
                    actor.stop.set()
        stages = [each for each in self.actors.values() if each.stage != OPERATOR]
        while any(each.process for each in stages) and self.loop.now < end:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.5)
        if AUDITOR in self.actors:
            await operators.audited_last(self, self.actors[AUDITOR])

    def staged(self) -> list[Actor]:
        """Return who runs stages."""
        return [each for name, each in self.actors.items() if each.stage != OPERATOR and name != HELPER]

    def move_on(self) -> None:
        """Start all with the settings of the group that follows."""
        self.era = self.eras[-1]
        self.log("operator: the group has moved")
        self.release()

    def release(self) -> None:
        """Start all who were stopped."""
        for actor in self.staged():
            actor.held = False
            self.start(actor)

    async def _rested(self) -> bool:
        """Return when all is answered and stays so: a process whose request a fault held up may send or end late."""
        for _ in range(RESTS):
            starts = self._starts
            await self._settle()
            if not self.answered:
                return False
            await asyncio.sleep(6.0)  # what falls due by the clock on quiet topics, and the last checkpoints
            if starts == self._starts and self.settled:
                return True
        self.answered = False
        return False

    def run(self) -> None:
        """Play the history to its end."""
        random.seed(self.plan.seed)
        try:
            self.loop.run_until_complete(self._history())
            if self.loop.errors:
                raise self.loop.errors[0]
        finally:
            self.loop.bury()
