"""Says whether a history fails, and finds the fewest faults with which it still does."""

from collections import Counter

from tests.simulation.folds import WrongError
from tests.simulation.judge import judge
from tests.simulation.plan import Plan
from tests.simulation.playing import play
from tests.simulation.world import World

#: Most lines of what happened that are shown.
LINES = 150


def failing(plan: Plan, struck: Counter[str] | None = None) -> str | None:
    """Play a history, and return what is wrong with it; None: nothing. Counts the faults that struck."""

    def judged(world: World) -> None:
        if struck is not None:
            struck.update(world.faults.counts)
        judge(world)

    try:
        play(plan, judged)
    except WrongError as exc:
        return str(exc)
    return None


def shrunk(plan: Plan) -> Plan:
    """Return a history that fails with as few of the faults as can be found by leaving out one after another."""
    left = list(plan.faults)
    n = 0
    while n < len(left):
        fewer = plan._replace(faults=tuple(left[:n] + left[n + 1 :]))
        if failing(fewer) is None:
            n += 1
        else:
            left.pop(n)
    return plan._replace(faults=tuple(left))


def told(plan: Plan, *, shorten: bool = False) -> str:
    """Return a history in words: what it is, its faults, what happened, and what is wrong with it."""
    if shorten:
        plan = shrunk(plan)
    lines: list[str] = []
    wrong = "nothing is wrong"

    def judged(world: World) -> None:
        lines.extend(world.lines)
        judge(world)

    try:
        play(plan, judged)
    except WrongError as exc:
        wrong = str(exc)
    settings = ", ".join(f"{name} {value:g}" for name, value in plan.settings.items())
    shown = lines if len(lines) <= LINES or not shorten else ["          …", *lines[-LINES:]]
    return "\n".join(
        [
            f"{len(plan.records)} records, {plan.width} partitions; {', '.join(plan.names)}; {settings}",
            *[f"fault {fault}" for fault in plan.faults],
            *shown,
            wrong,
        ]
    )
