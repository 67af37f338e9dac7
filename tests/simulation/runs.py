"""Runs histories of many seeds in several processes, shrinks the one that fails, and looks for planted bugs."""

import gc
import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from functools import partial
from itertools import count, islice
from time import monotonic, process_time
from typing import Any, Final, NamedTuple, TypeVar

from tests.simulation import playing
from tests.simulation.folds import WrongError
from tests.simulation.judge import judge
from tests.simulation.plan import Plan, planned
from tests.simulation.planting import MUTANTS, planted
from tests.simulation.playing import simulated
from tests.simulation.world import World

T = TypeVar("T")
#: How many seeds lie between those with which searches start.
APART: Final = 1_000_000
#: So many histories share a process: what they leave is never cleared up, which took an eighth of the time.
TOGETHER: Final = 10
#: Lines of what happened that are shown of a history that was shrunk.
LINES = 150
#: Whoever is forked by it calls `gc.freeze`, as it cannot close what the tests before have left open.
_FORKED: Final = multiprocessing.get_context("fork")
#: Set when one of the processes has found a history that fails.
_FOUND: Final = _FORKED.Event()


class Played(NamedTuple):
    """What was played: how many histories, with how many records and which faults; s of processors; what failed."""

    histories: int
    records: int
    struck: Counter[str]
    seconds: float
    failed: str


class Hunted(NamedTuple):
    """How a planted bug was looked for: histories, s of a processor, and how it showed; empty: it did not."""

    name: str
    histories: int
    seconds: float
    wrong: str


def play(first: int, histories: int, seconds: float, jobs: int = 1, mutant: str = "") -> Played:
    """Play the histories of one seed after another for a while, each process its share, up to the first that fails."""
    end = monotonic() + seconds
    part = partial(_part, jobs, mutant, end)
    parts = list(_spread(jobs, part, [(first + n, -(-(histories - n) // jobs)) for n in range(jobs)]))
    return _sum(parts, 0.0)


def hunt(first: int, histories: int, jobs: int, names: Iterable[str], starts: int = 1) -> Iterator[Hunted]:
    """Look for each planted bug in up to so many histories that may show it; yield what is done.

    ``starts``: so often, each time in other histories; the search of median length is yielded.
    """
    every = [(first + n * APART, name) for name in names for n in range(starts)]
    done: dict[str, list[Hunted]] = {}
    for each in _spread(jobs, partial(_hunt, histories), every):
        found = done.setdefault(each.name, [])
        found.append(each)
        if len(found) == starts:
            yield sorted(found, key=lambda one: (not one.wrong, one.histories))[starts // 2]


def _spread(jobs: int, code: Callable[..., T], every: list[tuple[Any, ...]]) -> Iterator[T]:
    """Yield what some code returns for each, as it comes."""
    if jobs == 1:
        yield from (code(*each) for each in every)
        return
    with ProcessPoolExecutor(jobs, _FORKED, initializer=gc.freeze) as pool:
        for done in as_completed([pool.submit(code, *each) for each in every]):
            yield done.result()


def _part(stride: int, mutant: str, end: float, first: int, histories: int) -> Played:
    began, n, parts = process_time(), 0, list[Played]()
    with simulated(), planted(mutant) if mutant else nullcontext():
        while n < histories and monotonic() < end and not _FOUND.is_set():
            seeds = [first + each * stride for each in range(n, min(n + TOGETHER, histories))]
            parts.append(_apart(partial(_together, seeds, end)))
            n += len(seeds)
    return _sum(parts, process_time() - began)


def _hunt(most: int, first: int, name: str) -> Hunted:
    began, n, parts = process_time(), 0, list[Played]()
    with simulated(), planted(name):
        seeds = (seed for seed in count(first) if MUTANTS[name].where(planned(seed)))
        while n < most and not (parts and parts[-1].failed):
            chosen = list(islice(seeds, min(TOGETHER, most - n)))
            parts.append(_apart(partial(_together, chosen)))
            n += len(chosen)
    found = _sum(parts, process_time() - began)
    return Hunted(name, found.histories, found.seconds, found.failed)


def _sum(parts: Sequence[Played], seconds: float) -> Played:
    """Return what several have played; ``seconds`` are added to theirs."""
    return Played(
        sum(each.histories for each in parts),
        sum(each.records for each in parts),
        sum((each.struck for each in parts), Counter[str]()),
        sum((each.seconds for each in parts), seconds),
        next((each.failed for each in parts if each.failed), ""),
    )


def _apart(code: Callable[[], T]) -> T:
    """Return what some code returns in a process of its own: what it leaves in memory goes with that."""
    with ProcessPoolExecutor(1, _FORKED, initializer=gc.freeze) as pool:
        return pool.submit(code).result()


def _together(seeds: Sequence[int], end: float | None = None) -> Played:
    """Play histories within `simulated`, up to the first that fails; where there is an ``end``, that one is shrunk."""
    began, n, records, struck, failed = process_time(), 0, 0, Counter[str](), ""
    for seed in seeds:
        if failed or (end is not None and (monotonic() >= end or _FOUND.is_set())):
            break
        plan = planned(seed)
        n, records = n + 1, records + len(plan.records)
        failed = failing(plan, struck) or ""
        if failed and end is not None:
            _FOUND.set()
            failed = f"seed {plan.seed}: {failed}\n\n{told(plan, shrunk(plan), LINES)[0]}"
    return Played(n, records, struck, process_time() - began, failed)


def failing(plan: Plan, struck: Counter[str] | None = None) -> str | None:
    """Play a history, and return what is wrong with it; None: nothing. Counts the faults that struck."""

    def judged(world: World) -> None:
        if struck is not None:
            struck.update(world.faults.counts)
        judge(world)

    try:
        playing.play(plan, judged)
    except WrongError as exc:
        return str(exc)
    except Exception:  # noqa: BLE001 - whatever it is, its seed must be known
        return traceback.format_exc()
    return None


def shrunk(plan: Plan) -> list[int]:
    """Return as few of a history's faults with which it fails as can be found by leaving out one after another."""
    left = list(range(len(plan.faults)))
    for n in range(len(plan.faults)):
        fewer = [each for each in left if each != n]
        if failing(_only(plan, fewer)) is not None:
            left = fewer
    return left


def _only(plan: Plan, left: Sequence[int]) -> Plan:
    return plan._replace(faults=tuple(plan.faults[n] for n in left))


def told(plan: Plan, left: Sequence[int], most: int = sys.maxsize) -> tuple[str, bool]:
    """Return a history with some of its faults in words, and whether it is well.

    The words say what it is, what happened, what is wrong with it, and how to play it again.

    Parameters
    ----------
    left
        Numbers of the faults.
    most
        Lines of what happened; the last ones are shown.
    """
    lines: list[str] = []
    wrong = ""

    def judged(world: World) -> None:
        lines.extend(world.lines)
        judge(world)

    try:
        playing.play(_only(plan, left), judged)
    except WrongError as exc:
        wrong = str(exc)
    settings = ", ".join(f"{name} {value:g}" for name, value in plan.settings.items())
    again = f"make simulate SEED={plan.seed} FAULTS={','.join(map(str, left)) or 'none'}"
    said = "\n".join(
        [
            f"{len(plan.records)} records, {plan.width} partitions; {', '.join(plan.names)}; {settings}",
            *[f"fault {n} {plan.faults[n]}" for n in left],
            *["          …"] * (len(lines) > most),
            *lines[-most:],
            f"{wrong}\n\n{again}" if wrong else "nothing is wrong",
        ]
    )
    return said, not wrong
