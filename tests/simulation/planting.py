"""Planted bugs: each is a small change of the product that the simulation must find.

A mutant is a way in which the promises are broken, not a line that was changed: most are what a repair, a rewrite or a
clean-up would get wrong.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import getattr_static
from typing import Final
from unittest.mock import patch

from tests.simulation import mutants, mutants_of_commands, mutants_of_sources
from tests.simulation.mutants_of_sources import Change
from tests.simulation.plan import AMID, LOST_TAIL, WORKER, Plan

#: By what is wrong, in words.
MUTANTS: Final[dict[str, list[Change]]] = {
    **mutants.MUTANTS,
    **mutants_of_sources.MUTANTS,
    **mutants_of_commands.MUTANTS,
}

#: Not known to be found within two hundred histories as they are drawn now: `--histories 5000` looks for these, too.
RARE: Final = frozenset(
    {
        "a tick that comes again has the time of now",
        "a new claim is written under before the state is restored",
        "who lets go of a partition remembers where it ended",
        "what moved is answered",
        "rows that were found damaged are restored from where the recovery before ended",
        "an answer counts as said that only looks like one that is",
        "a leader of the group that no broker answers shares out nothing for minutes",
        "what was moved before there was a stream time expires at once",
        "a load does not look under its claim whether there is a state",
        "answers go out before it is written down what is in force",
        "a checkpoint says that later outputs stand before it",
        # What was fetched is taken in one step: a seek comes between only while a restored row is handed on.
        "what is fetched while somebody seeks is taken",
    }
)


def struck(*kinds: str) -> Callable[[Plan], bool]:
    """Return whether a plan has a fault of some kinds, amid whatever that strikes."""
    return lambda plan: any(fault.kind.partition(AMID)[0] in kinds for fault in plan.faults)


def _moving(plan: Plan) -> bool:
    return list(plan.names.values()).count(WORKER) > 1


def _quiet(plan: Plan) -> bool:
    return plan.settings["quiet_seconds"] > 0 and struck("kill")(plan)


#: Which histories may show a bug; any, if it is not here.
WHERE: Final[dict[str, Callable[[Plan], bool]]] = {
    **dict.fromkeys(mutants_of_sources.MUTANTS, lambda plan: plan.sourced),
    **mutants_of_commands.WHERE,
    "a tick that comes again has the time of now": _quiet,
    "a tick that comes again goes further": _quiet,
    "the clock does not tick": lambda plan: plan.settings["quiet_seconds"] > 0,
    "a new claim is written under before the state is restored": _moving,
    "who lets go of a partition remembers where it ended": _moving,
    "what moved is answered": _moving,
    "a disk of another changelog is taken": struck("foreign disk"),
    "a hole among the writes of a disk goes unnoticed": struck("torn disk"),
    "rows that were found damaged are restored from where the recovery before ended": struck("damaged disk"),
    "damage on the disk is an error like others": struck("damaged disk"),
    "a leader of the group that no broker answers shares out nothing for minutes": struck("cut"),
    "the last record that was applied is to be read again although it is deleted": struck("retention"),
    "a reader does not ask whether the log was cut behind it": struck(LOST_TAIL),
    "nobody looks whether the last record that was applied is still there": struck(LOST_TAIL),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let the product have one of `MUTANTS`."""
    with ExitStack() as stack:
        for owner, attribute, change in MUTANTS[name]:
            stack.enter_context(patch.object(owner, attribute, change(getattr_static(owner, attribute))))
        yield
