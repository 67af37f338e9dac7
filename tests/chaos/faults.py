"""Faults as data: what befalls the workers, their disks, the network and the brokers, in an order drawn from a seed.

A kind of fault is a function that does it, in ``strikes.py``, ``outages.py`` and ``sources.py``. What it takes beside
the stage is drawn.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final, NamedTuple


class Drawing(NamedTuple):
    """What faults are drawn from: a generator, the session of workers, and a time that is much shorter, s."""

    rng: random.Random
    session: float
    few: float


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of fault; called with what it takes, it makes one."""

    #: As the report and the operations page call it.
    told: str
    #: Does it; returns when it is over, and what it ended has ended. Raises `BrokenPromiseError` if a worker does not
    #: do what this fault asks of it.
    strike: Callable[..., None]
    #: Whether workers are to live on: two brokers stay in sync, and every worker reaches them.
    spares: bool
    #: How often a worker may be missed, one after another: each takes a session.
    deaths: int
    #: For how long nothing can be answered whatever workers do, s; None: for its ``seconds``.
    outage: float | None
    #: The faults of a round: of each what is not drawn by its name.
    each: Callable[[Drawing], Iterable[Mapping[str, Any]]]

    @property
    def name(self) -> str:
        """As the command line calls it."""
        return self.strike.__name__

    def __call__(self, **drawn: Any) -> "Fault":
        return Fault(self, drawn)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong."""

    kind: Kind
    drawn: Mapping[str, Any]

    @property
    def outage(self) -> float:
        """For how long nothing can be answered whatever workers do, s."""
        return float(self.drawn["seconds"] if self.kind.outage is None else self.kind.outage)

    def __str__(self) -> str:
        """Return the name and what was drawn."""
        return " ".join([self.kind.told, *(f"{name}={value}" for name, value in self.drawn.items())])


#: Every kind of a campaign by its number of brokers, in the order of their definition.
KINDS: Final[dict[int, list[Kind]]] = {1: [], 3: []}


def kind(
    told: str,
    *,
    brokers: Sequence[int] = (1, 3),
    spares: bool = False,
    deaths: int = 1,
    outage: float | None = 0.0,
    each: Callable[[Drawing], Iterable[Mapping[str, Any]]] = lambda _: [{}],
) -> Callable[[Callable[..., None]], Kind]:
    """Make a kind of a function, and note it for campaigns of so many brokers."""

    def made(strike: Callable[..., None]) -> Kind:
        new = Kind(told, strike, spares, deaths, outage, each)
        for number in brokers:
            KINDS[number].append(new)
        return new

    return made


def takes(of: Kind) -> Iterable[str]:
    """Return what a kind takes beside the stage, by name."""
    return [name for name in signature(of.strike).parameters if name != "stage"]


def few(drawing: Drawing) -> list[dict[str, float]]:
    """Let it last for much less than a session."""
    return [{"seconds": drawing.few}]


def few_and_long(drawing: Drawing) -> list[dict[str, float]]:
    """Let it last for a moment, and for longer than workers wait."""
    return [{"seconds": drawing.few}, {"seconds": drawing.session + drawing.few}]


def draw(of: Kind, rng: random.Random, workers: int, session: float, partitions: int = 1) -> list[Fault]:
    """Draw the faults of a kind that one round has; more than one where their kinds have kinds.

    ``workers, partitions``: how many there are to choose from.
    ``session``: silence after which a worker's partitions move, s.
    """
    drawing = Drawing(rng, session, round(rng.uniform(1, session / 2), 1))
    by_name: dict[str, Callable[[], Any]] = {
        "worker": lambda: rng.randrange(workers),
        "workers": lambda: tuple(sorted(rng.sample(range(workers), rng.randint(1, workers)))),
        "partition": lambda: rng.randrange(partitions),
        "seconds": lambda: session + drawing.few / 2,
    }
    names = [name for name in takes(of) if name in by_name]
    return [of(**{name: by_name[name]() for name in names if name not in given}, **given) for given in of.each(drawing)]


def schedule(seed: int, workers: int, session: float, kinds: Sequence[Kind], partitions: int = 1) -> list[Fault]:
    """Return a round of faults in an order drawn from the seed: every kind once before any comes twice."""
    rng = random.Random(seed)
    faults = [fault for kind in kinds for fault in draw(kind, rng, workers, session, partitions)]
    rng.shuffle(faults)
    times: Counter[Kind] = Counter()
    turns = []
    for fault in faults:
        turns.append(times[fault.kind])
        times[fault.kind] += 1
    return [faults[n] for n in sorted(range(len(faults)), key=turns.__getitem__)]
