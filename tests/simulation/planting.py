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
from tests.simulation.plan import Plan

#: By what is wrong, in words.
MUTANTS: Final[dict[str, list[Change]]] = {
    **mutants.MUTANTS,
    **mutants_of_sources.MUTANTS,
    **mutants_of_commands.MUTANTS,
}

#: Not found within two hundred histories as they are drawn now: `--histories 5000` looks for these, too.
RARE: Final = frozenset(
    {
        "a checkpoint is written before the answers of its batches are out",
        "a tick that comes again has the time of now",
        "a tick that comes again goes further",
        "a new claim is written under before the state is restored",
        "who lets go of a partition remembers where it ended",
        "what moved is answered",
        "a disk of another changelog is taken",
        "rows that were found damaged are restored from where the recovery before ended",
        "an answer counts as said that only looks like one that is",
        "a leader of the group that no broker answers shares out nothing for minutes",
        "what was moved before there was a stream time expires at once",
        "a load does not look under its claim whether there is a state",
        "answers go out before it is written down what is in force",
        "a checkpoint says that later outputs stand before it",
    }
)


#: Which histories may show a bug; any, if it is not here.
WHERE: Final[dict[str, Callable[[Plan], bool]]] = {
    **dict.fromkeys(mutants_of_sources.MUTANTS, lambda plan: plan.sourced),
    **mutants_of_commands.WHERE,
    "the last record that was applied is to be read again although it is deleted": lambda plan: any(
        fault.kind == "retention" for fault in plan.faults
    ),
    "a reader does not ask whether the log was cut behind it": lambda plan: plan.loses,
    "nobody looks whether the last record that was applied is still there": lambda plan: plan.loses,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let the product have one of `MUTANTS`."""
    with ExitStack() as stack:
        for owner, attribute, change in MUTANTS[name]:
            stack.enter_context(patch.object(owner, attribute, change(getattr_static(owner, attribute))))
        yield
