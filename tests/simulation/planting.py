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

#: Not known to be found within four hundred histories, and why: `--histories 5000` looks for these, too.
RARE: Final = {
    "a new claim is written under before the state is restored": "what moved is left out before it would be written",
    "what moved is answered": "brokers refuse what is written of it, unless a new claim is written under too early",
    "a leader of the group that no broker answers shares out nothing for minutes": (
        "it must have led from its start on, have reached its coordinator and no broker that knows the topics"
    ),
    "a checkpoint says that later outputs stand before it": (
        "answers must overtake a checkpoint that waits for its own, and a crash come before the next one"
    ),
    "what is fetched while somebody seeks is taken": (
        "records are taken in one step: a seek comes between only while a restored row is handed on"
    ),
    "a rebalance amid a stop closes the connections under a commit": (
        "a worker must join its group just when it stops, while its last commit waits, as in seed 30000512"
    ),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let the product have one of `MUTANTS`."""
    with ExitStack() as stack:
        for owner, attribute, change in MUTANTS[name].changes:
            stack.enter_context(patch.object(owner, attribute, change(getattr_static(owner, attribute))))
        yield
