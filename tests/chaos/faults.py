"""Faults as data: what befalls the workers, their disks, the network and the brokers, in an order drawn from a seed.

What each does is told in ``strikes.py``.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Attributes
    ----------
    name
        How the report and the operations page call it.
    spares
        Whether workers are to live on: two brokers stay in sync, and every worker reaches them.
    deaths
        How often a worker may be missed, one after another: each takes a session.
    """

    name: ClassVar[str]
    spares: ClassVar[bool] = False
    deaths: ClassVar[int] = 1

    @property
    def outage(self) -> float:
        """For how long nothing can be answered whatever workers do, s; infinite where that depends on other things."""
        return 0.0

    def __str__(self) -> str:
        """Return the name and what was drawn."""
        return " ".join([self.name, *(f"{field.name}={getattr(self, field.name)}" for field in fields(self))])


@dataclass(frozen=True)
class Outage(Fault):
    """One that keeps workers from the brokers for so long, s."""

    seconds: float

    @property
    def outage(self) -> float:
        """As long as it lasts."""
        return self.seconds


@dataclass(frozen=True)
class KillAtStep(Fault):
    """The worker is killed when its next batch has passed a step of the order of effects."""

    name = "kill -9 at a step"
    worker: int
    step: int


@dataclass(frozen=True)
class Kill(Fault):
    """The worker is killed, whatever it does."""

    name = "kill -9 at random"
    worker: int


@dataclass(frozen=True)
class Stop(Fault):
    """The worker gets SIGTERM."""

    name = "SIGTERM"
    worker: int


@dataclass(frozen=True)
class Stall(Fault):
    """The worker is stopped beyond its session and woken: a zombie."""

    name = "SIGSTOP beyond the session"
    worker: int
    seconds: float


@dataclass(frozen=True)
class EmptyDisk(Fault):
    """The worker is killed and its data directory lost."""

    name = "empty disk"
    worker: int


@dataclass(frozen=True)
class Damage(Fault):
    """The worker is killed and files of its databases are truncated, or a bit of them is flipped."""

    name = "damaged RocksDB files"
    worker: int
    files: str
    how: str


@dataclass(frozen=True)
class FullDisk(Fault):
    """A worker's disk is full for a while: the first one's, which is small where the system lets us mount it."""

    name = "full disk"
    seconds: float


@dataclass(frozen=True)
class KillRestoring(Fault):
    """The disk is lost, and the worker is killed again when it has restored so many fetches of the changelog."""

    name = "kill -9 while restoring"
    deaths = 2
    worker: int
    after: int


@dataclass(frozen=True)
class KillBroker(Outage):
    """The broker is killed and comes back on the same data and port."""

    name = "broker killed"


@dataclass(frozen=True)
class FreezeBroker(Outage):
    """The broker is stopped and woken: connections stay, nothing answers."""

    name = "broker frozen"


@dataclass(frozen=True)
class Cut(Outage):
    """Connections between workers and broker are reset, and new ones too."""

    name = "network cut"
    workers: tuple[int, ...]


@dataclass(frozen=True)
class Silence(Outage):
    """Nothing passes between workers and broker, and no side is told."""

    name = "network silent"
    workers: tuple[int, ...]


@dataclass(frozen=True)
class LongSilence(Silence):
    """The same beyond the session: what was under way to the broker arrives when the partitions have moved."""

    name = "network silent beyond the session"


@dataclass(frozen=True)
class Slow(Outage):
    """Every byte between workers and broker is late, acknowledgements too."""

    name = "slow acknowledgements"
    workers: tuple[int, ...]
    delay: float


@dataclass(frozen=True)
class RefuseChangelog(Fault):
    """The broker refuses what is sent to the changelog."""

    name = "changelog sends refused"
    seconds: float

    @property
    def outage(self) -> float:
        """Until a worker has noticed, and then some."""
        return math.inf


@dataclass(frozen=True)
class Storm(Fault):
    """Another worker joins and leaves, again and again."""

    name = "rebalance storm"
    joins: int


@dataclass(frozen=True)
class ClockJump(Fault):
    """The worker's wall clock jumps."""

    name = "clock jump"
    worker: int
    seconds: float


@dataclass(frozen=True)
class WildTimestamps(Fault):
    """The producers' clocks jump: records come from the future, then from the past."""

    name = "wild timestamps"
    records: int
    seconds: float


@dataclass(frozen=True)
class Poison(Fault):
    """Thousands of records nobody can read."""

    name = "poison in bulk"
    records: int


@dataclass(frozen=True)
class OldDisk(Fault):
    """The worker is killed and comes back on rows of 30 days ago, which lack what the changelog has forgotten since."""

    name = "old disk"
    worker: int


@dataclass(frozen=True)
class ForeignDisk(Fault):
    """The worker is killed and comes back on rows of another changelog."""

    name = "foreign disk"
    worker: int


@dataclass(frozen=True)
class AheadDisk(Fault):
    """The worker is killed and comes back on rows that the changelog has lost."""

    name = "disk ahead of its changelog"
    worker: int


@dataclass(frozen=True)
class PoisonedTime(Fault):
    """In another application: one record dated 9999, while forecasts wait for their outcomes."""

    name = "poisoned time"


@dataclass(frozen=True)
class Overtaken(Fault):
    """In another application: retention deletes inputs that a stopped worker has not read; then it goes on."""

    name = "retention overtakes a worker"


@dataclass(frozen=True)
class MovedOffsets(Outage):
    """All workers are killed, and another tool commits the ends or the beginnings of the inputs for their group."""

    name = "committed offsets moved"
    to: str


@dataclass(frozen=True)
class CutChangelog(Fault):
    """In another application: the changelog of a stopped worker loses its beginning, and the disk is lost."""

    name = "changelog cut"


@dataclass(frozen=True)
class NewChangelog(Fault):
    """In another application: the changelog of a stopped worker is made anew, and retention trims the inputs."""

    name = "changelog made anew"


@dataclass(frozen=True)
class RewrittenInput(Outage):
    """In another application: the broker loses the end of an input, whose offsets other records get.

    Its worker is stopped, or runs on and stands still meanwhile.
    """

    name = "input cut and written anew"
    runs: bool


@dataclass(frozen=True)
class DoubledIds(Fault):
    """Two more workers start at a time under one instance id; who serves in the end is killed."""

    name = "doubled instance id"
    deaths = 2


@dataclass(frozen=True)
class KillLeader(Fault):
    """The broker that leads a partition of the changelog is killed, and comes back."""

    name = "leader killed"
    spares = True
    partition: int
    seconds: float


@dataclass(frozen=True)
class FreezeLeader(Fault):
    """The same is stopped and woken: connections stay, nothing answers."""

    name = "leader frozen"
    spares = True
    partition: int
    seconds: float


@dataclass(frozen=True)
class KillFollower(Fault):
    """A broker that follows in a partition of the changelog is killed, and comes back."""

    name = "follower killed"
    spares = True
    partition: int
    seconds: float


@dataclass(frozen=True)
class FreezeFollower(Fault):
    """The same is stopped and woken."""

    name = "follower frozen"
    spares = True
    partition: int
    seconds: float


@dataclass(frozen=True)
class KillCoordinator(Fault):
    """The broker that coordinates the group is killed, and comes back."""

    name = "coordinator killed"
    spares = True
    seconds: float


@dataclass(frozen=True)
class FreezeCoordinator(Fault):
    """The same is stopped and woken."""

    name = "coordinator frozen"
    spares = True
    seconds: float


@dataclass(frozen=True)
class KillController(Fault):
    """The broker whose controller is active is killed, and comes back."""

    name = "controller killed"
    spares = True
    seconds: float


@dataclass(frozen=True)
class FreezeController(Fault):
    """The same is stopped and woken."""

    name = "controller frozen"
    spares = True
    seconds: float


@dataclass(frozen=True)
class KillBoth(Fault):
    """A worker and the broker that leads a partition of the changelog are killed at once."""

    name = "worker and leader killed"
    worker: int
    partition: int
    seconds: float


@dataclass(frozen=True)
class RollingRestart(Fault):
    """The brokers are restarted in good order, one after another."""

    name = "rolling restart of brokers"
    spares = True


@dataclass(frozen=True)
class Reassign(Fault):
    """All partitions of all topics lose their leader to other replicas, and get a third one again."""

    name = "partitions reassigned"
    spares = True


@dataclass(frozen=True)
class BelowMinIsr(Outage):
    """A broker is killed, and the changelog is to have more replicas in sync than are left."""

    name = "below min.insync.replicas"


@dataclass(frozen=True)
class KillTwo(Outage):
    """Two of three brokers are killed, and come back."""

    name = "two brokers killed"


@dataclass(frozen=True)
class KillAll(Outage):
    """All brokers are killed, and come back."""

    name = "all brokers killed"


@dataclass(frozen=True)
class SilentLeader(Outage):
    """Nothing passes between a worker and the broker that leads a partition of the changelog; others reach it."""

    name = "network to the leader silent"
    worker: int
    partition: int


#: What befalls workers, their disks, their network and their load, in the order of the operations page.
WORKERS: tuple[type[Fault], ...] = (
    KillAtStep, Kill, Stop, Stall, EmptyDisk, Damage, FullDisk, KillRestoring, OldDisk, ForeignDisk, AheadDisk, Cut,
    Silence, LongSilence, Slow, RefuseChangelog, Storm, DoubledIds, ClockJump, WildTimestamps, PoisonedTime, Poison,
    Overtaken, MovedOffsets, CutChangelog, NewChangelog,
)  # fmt: skip
#: What befalls the only broker.
ONE: tuple[type[Fault], ...] = (KillBroker, FreezeBroker, RewrittenInput)
#: What befalls three brokers.
THREE: tuple[type[Fault], ...] = (
    KillLeader, FreezeLeader, KillFollower, FreezeFollower, KillCoordinator, FreezeCoordinator, KillController,
    FreezeController, KillBoth, SilentLeader, RollingRestart, Reassign, BelowMinIsr, KillTwo, KillAll,
)  # fmt: skip


def kinds(brokers: int) -> tuple[type[Fault], ...]:
    """Return every kind of a campaign with one broker, or with three."""
    return WORKERS + (ONE if brokers == 1 else THREE)


DAMAGE = (
    ("*.sst", "halved"),
    ("*.sst", "flipped"),
    ("MANIFEST-*", "shortened"),
    ("MANIFEST-*", "flipped"),
    ("*.log", "halved"),
    ("*.log", "flipped"),
)


def draw(kind: type[Fault], rng: random.Random, workers: int, session: float, partitions: int = 1) -> list[Fault]:
    """Draw the faults of a kind that one round has; more than one where their kinds have kinds.

    Parameters
    ----------
    workers, partitions
        How many there are to choose from.
    session
        Silence after which a worker's partitions move, s.
    """
    names = {field.name for field in fields(kind)}
    few = round(rng.uniform(1, session / 2), 1)

    def one(**drawn: Any) -> Fault:
        if "worker" in names:
            drawn["worker"] = rng.randrange(workers)
        if "partition" in names:
            drawn["partition"] = rng.randrange(partitions)
        if "workers" in names:
            some = rng.sample(range(workers), rng.randint(1, workers))
            drawn["workers"] = tuple(sorted(some))
        return kind(**drawn)

    if kind is KillAtStep:
        return [one(step=step) for step in range(1, 7)]
    if kind is Damage:
        return [one(files=files, how=how) for files, how in DAMAGE]
    if kind in (KillBroker, KillAll):  # away for a moment, and for longer than workers wait
        return [one(seconds=few), one(seconds=session + few)]
    if kind is MovedOffsets:
        return [one(seconds=few, to=to) for to in ("end", "beginning")]
    if kind is RewrittenInput:
        return [one(seconds=few, runs=runs) for runs in (False, True)]
    drawn: dict[type[Fault], dict[str, Any]] = {
        FullDisk: {"seconds": few},
        KillRestoring: {"after": 1},
        Cut: {"seconds": few},
        Silence: {"seconds": few},
        Slow: {"delay": round(rng.uniform(0.05, 0.4), 2), "seconds": session},
        RefuseChangelog: {"seconds": few},
        Storm: {"joins": 4},
        ClockJump: {"seconds": rng.choice((-1, 1)) * rng.uniform(100, 1e6)},
        WildTimestamps: {"records": 2000, "seconds": 240},
        Poison: {"records": 5000},
    }
    return [one(**drawn.get(kind, {"seconds": session + few / 2} if "seconds" in names else {}))]


def schedule(seed: int, workers: int, session: float, kinds: Sequence[type[Fault]], partitions: int = 1) -> list[Fault]:
    """Return a round of faults in an order drawn from the seed: every kind once before any comes twice."""
    rng = random.Random(seed)
    faults = [fault for kind in kinds for fault in draw(kind, rng, workers, session, partitions)]
    rng.shuffle(faults)
    times: Counter[type[Fault]] = Counter()
    turns = []
    for fault in faults:
        turns.append(times[type(fault)])
        times[type(fault)] += 1
    return [faults[n] for n in sorted(range(len(faults)), key=turns.__getitem__)]
