"""Faults as data: what befalls the workers, their disks, the network and the broker, in an order drawn from a seed.

What each does is told in ``strikes.py``.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong. ``name`` is how the report and the operations page call it."""

    name: ClassVar[str]

    def __str__(self) -> str:
        """Return the name and what was drawn."""
        return " ".join([self.name, *(f"{field.name}={getattr(self, field.name)}" for field in fields(self))])


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
    worker: int
    after: int


@dataclass(frozen=True)
class KillBroker(Fault):
    """The broker is killed and comes back on the same data and port."""

    name = "broker killed"
    seconds: float


@dataclass(frozen=True)
class FreezeBroker(Fault):
    """The broker is stopped and woken: connections stay, nothing answers."""

    name = "broker frozen"
    seconds: float


@dataclass(frozen=True)
class Cut(Fault):
    """Connections between workers and broker are reset, and new ones too."""

    name = "network cut"
    workers: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Silence(Fault):
    """Nothing passes between workers and broker, and no side is told."""

    name = "network silent"
    workers: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class LongSilence(Silence):
    """The same beyond the session: what was under way to the broker arrives when the partitions have moved."""

    name = "network silent beyond the session"


@dataclass(frozen=True)
class Slow(Fault):
    """Every byte between workers and broker is late, acknowledgements too."""

    name = "slow acknowledgements"
    workers: tuple[int, ...]
    delay: float
    seconds: float


@dataclass(frozen=True)
class RefuseChangelog(Fault):
    """The broker refuses what is sent to the changelog."""

    name = "changelog sends refused"
    seconds: float


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


#: Every kind, in the order of the operations page.
KINDS: tuple[type[Fault], ...] = (
    KillAtStep, Kill, Stop, Stall, EmptyDisk, Damage, FullDisk, KillRestoring, KillBroker, FreezeBroker, Cut, Silence,
    LongSilence, Slow, RefuseChangelog, Storm, ClockJump, WildTimestamps, Poison,
)  # fmt: skip
DAMAGE = (
    ("*.sst", "halved"),
    ("*.sst", "flipped"),
    ("MANIFEST-*", "shortened"),
    ("MANIFEST-*", "flipped"),
    ("*.log", "halved"),
    ("*.log", "flipped"),
)


def draw(kind: type[Fault], rng: random.Random, workers: int, session: float) -> list[Fault]:
    """Draw the faults of a kind that one round has; more than one where their kinds have kinds.

    Parameters
    ----------
    workers
        How many there are to choose from.
    session
        Silence after which a worker's partitions move, s.
    """

    def one(**drawn: Any) -> Fault:
        if "worker" in {field.name for field in fields(kind)}:
            drawn["worker"] = rng.randrange(workers)
        if "workers" in {field.name for field in fields(kind)}:
            some = rng.sample(range(workers), rng.randint(1, workers))
            drawn["workers"] = tuple(sorted(some))
        return kind(**drawn)

    if kind is KillAtStep:
        return [one(step=step) for step in range(1, 6)]
    if kind is Damage:
        return [one(files=files, how=how) for files, how in DAMAGE]
    few = round(rng.uniform(1, session / 2), 1)
    if kind is KillBroker:  # away for a moment, and for longer than workers wait
        return [one(seconds=few), one(seconds=session + few)]
    drawn: dict[type[Fault], dict[str, Any]] = {
        Stall: {"seconds": session + few},
        FullDisk: {"seconds": few},
        KillRestoring: {"after": 1},
        FreezeBroker: {"seconds": session + few},
        Cut: {"seconds": few},
        Silence: {"seconds": few},
        LongSilence: {"seconds": session + few},
        Slow: {"delay": round(rng.uniform(0.05, 0.4), 2), "seconds": session},
        RefuseChangelog: {"seconds": few},
        Storm: {"joins": 4},
        ClockJump: {"seconds": rng.choice((-1, 1)) * rng.uniform(100, 1e6)},
        WildTimestamps: {"records": 2000, "seconds": 300},
        Poison: {"records": 5000},
    }
    return [one(**drawn.get(kind, {}))]


def schedule(seed: int, workers: int, session: float, kinds: Sequence[type[Fault]] = KINDS) -> list[Fault]:
    """Return a round of faults, every kind at least once, in an order drawn from the seed."""
    rng = random.Random(seed)
    faults = [fault for kind in kinds for fault in draw(kind, rng, workers, session)]
    rng.shuffle(faults)
    return faults
