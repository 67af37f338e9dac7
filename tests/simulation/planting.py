"""Planted bugs: each is a small change of the product that the simulation must find.

A mutant is a way in which the promises are broken, not a line that was changed: most are what a repair, a rewrite or a
clean-up would get wrong.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from inspect import getattr_static
from typing import Final
from unittest.mock import patch

from tests.simulation import mutants, mutants_of_commands
from tests.simulation.bugs import Bug

#: By what is wrong, in words.
MUTANTS: Final[dict[str, Bug]] = mutants.MUTANTS | mutants_of_commands.MUTANTS

#: Not known to be found within two hundred histories as they are drawn now: `--histories 5000` looks for these, too.
RARE: Final = frozenset(
    {
        "a tick that comes again has the time of now",
        "a new claim is written under before the state is restored",
        "what moved is answered",
        "rows that were found damaged are restored from where the recovery before ended",
        "an answer counts as said that only looks like one that is",
        "a leader of the group that no broker answers shares out nothing for minutes",
        "what was moved before there was a stream time expires at once",
        "a load does not look under its claim whether there is a state",
        "answers go out before it is written down what is in force",
        "a checkpoint says that later outputs stand before it",
    }
)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let the product have one of `MUTANTS`."""
    with ExitStack() as stack:
        for owner, attribute, change in MUTANTS[name].changes:
            stack.enter_context(patch.object(owner, attribute, change(getattr_static(owner, attribute))))
        yield
