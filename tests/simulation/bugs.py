"""What a planted bug is, and what several of them do."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.simulation.plan import AMID, WORKER, Plan

#: Object, name of the attribute, and what makes the mutant of what stands there.
Change = tuple[Any, str, Callable[[Any], Any]]
Where = Callable[[Plan], bool]


class Bug(NamedTuple):
    """What is changed, and which histories may show it."""

    changes: list[Change]
    where: Where = lambda _: True


def struck(*kinds: str) -> Where:
    """Return whether a plan has a fault of some kinds, amid whatever that strikes."""
    return lambda plan: any(fault.kind.partition(AMID)[0] in kinds for fault in plan.faults)


QUIET_AND_KILLED: Final[Where] = lambda plan: plan.settings["quiet_seconds"] > 0 and struck("kill")(plan)  # noqa: E731 - beside the others
MOVING: Final[Where] = lambda plan: list(plan.names.values()).count(WORKER) > 1  # noqa: E731 - as above
SOURCED: Final[Where] = lambda plan: plan.sourced  # noqa: E731 - as above


def returning(value: Any) -> Callable[[Any], Any]:
    """Return what replaces a function by one that returns a value."""
    return lambda _: lambda *_, **__: value


def unstamped(append: Any) -> Any:
    """Return what appends under no claim."""

    async def mutant(self: Any, batches: Any) -> Any:
        for batch, *_ in batches:
            batch.stamp = None
        return await append(self, batches)

    return mutant


def not_awaited(send: Any) -> Any:
    """Return what sends and does not wait."""

    async def sent(self: Any, batches: Any) -> dict[int, dict[str, int]]:
        asyncio.get_running_loop().create_task(send(self, batches))
        await asyncio.sleep(0)
        return {}

    return sent
