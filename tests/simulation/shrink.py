"""Says whether a history fails, and finds the fewest faults with which it still does."""

import sys
from collections import Counter
from collections.abc import Sequence

from tests.simulation.folds import WrongError
from tests.simulation.judge import judge
from tests.simulation.plan import Plan
from tests.simulation.playing import play
from tests.simulation.world import World

#: Lines of what happened that are shown of a history that was shrunk.
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
        play(_only(plan, left), judged)
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
