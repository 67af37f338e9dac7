"""Planted bugs of commands and of builds in a group; see `tests.simulation.mutants`."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from agents.served import Served
from agents.topology import Topology
from cli import rescale
from state.formats import ARITHMETIC
from streams.config import in_force
from streams.faust import claims
from streams.faust.claims import Claims
from streams.faust.membership import Member
from tests.simulation.mutants_of_sources import Change


def _unstamped(append: Any) -> Any:
    async def mutant(self: Any, batches: Any) -> Any:
        for batch, *_ in batches:
            batch.stamp = None
        return await append(self, batches)

    return mutant


def _claims_late(_: Any) -> Any:
    async def mutant(stage: Any, producer: Any) -> Any:
        await asyncio.sleep(0)
        made = Claims(stage.new, producer.client, "trueup state rescale")
        append, held = made.append, set[int]()

        async def late(partition: int, rows: Any) -> int:
            if partition not in held:
                held.add(partition)
                await made.claim([partition])
            return await append(partition, rows)

        made.append = late  # type: ignore[method-assign]
        return made

    return mutant


def _any_build(restored: Any) -> Any:
    def mutant(configuration: bytes, settings: Any) -> Any:
        for version in (ARITHMETIC, ARITHMETIC + 1):
            here = b'"arithmetic":%d' % vars(in_force)["ARITHMETIC"]
            configuration = configuration.replace(b'"arithmetic":%d' % version, here)
        return restored(configuration, settings)

    return mutant


def _later_outputs(answers: Any) -> Any:
    def mutant(self: Served, number: int) -> None:
        answers(self, number)
        if self.waiting is not None:
            self.waiting = self.waiting._replace(said=self.said)

    return mutant


def _returning(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *_, **__: value


#: By what is wrong, in words. The second and the last were bugs, and a seed found them.
MUTANTS: Final[dict[str, list[Change]]] = {
    "commands write under no claim": [(claims._Producer, "append", _unstamped)],
    "a move claims when it writes, behind its look at what is there": [(rescale, "_claimed", _claims_late)],
    "a record that was left out is read": [(Topology, "skipped", _returning({}))],
    "a build folds what another one has answered": [(in_force, "restored", _any_build)],
    "no other worker gets what this build cannot fold": [(Member, "leave", _returning(None))],
    "a checkpoint says that later outputs stand before it": [(Served, "answers", _later_outputs)],
}
