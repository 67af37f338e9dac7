"""Planted bugs of intake and router; see `tests.simulation.mutants`."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiokafka.errors import KafkaError

from agents.sending import Sender
from agents.served import Served
from agents.taken_up import TakenUp
from state.routes import Row
from streams.faust import offsets
from streams.faust.routed_outputs import RoutedOutputs

#: Object, name of the attribute, and what makes the mutant of what stands there.
Change = tuple[Any, str, Callable[[Any], Any]]


def _done_when_sent(send: Any) -> Any:
    def mutant(self: Sender, batch: Any) -> None:
        send(self, batch)
        self._done({tp: record.offset + 1 for tp, record in batch})

    return mutant


def _route_first(deliver: Any) -> Any:
    async def mutant(self: Sender, sending: Any, before: Any) -> None:
        sending.first, sending.then = sending.then, sending.first
        await deliver(self, sending, before)

    return mutant


def _all_at_once(deliver: Any) -> Any:
    async def mutant(self: Sender, sending: Any, _: Any) -> None:
        await deliver(self, sending, None)

    return mutant


def _where_it_was(begin: Any) -> Any:
    async def mutant(self: TakenUp, assigned: Any, *rest: Any) -> None:
        before = dict(self.following)
        await begin(self, assigned, *rest)
        self.following.update({tp: before[tp] for tp in assigned if tp in before})

    return mutant


def not_awaited(send: Any) -> Any:
    """Return what sends and does not wait."""

    async def sent(self: Any, batches: Any) -> dict[int, dict[str, int]]:
        asyncio.get_running_loop().create_task(send(self, batches))
        await asyncio.sleep(0)
        return {}

    return sent


def _again(unsaid: Any) -> Any:
    return lambda self, batch: batch.again is not None or unsaid(self, batch)


def _never_committed(committed: Any) -> Any:
    async def mutant(*asked: Any) -> Any:
        try:
            return await committed(*asked)
        except KafkaError:
            return {}

    return mutant


#: By what is wrong, in words.
MUTANTS: Final[dict[str, list[Change]]] = {
    "intake commits what it has sent before it is acknowledged": [(Sender, "send", _done_when_sent)],
    "intake sends a route before its forecast": [(Sender, "_deliver", _route_first)],
    "a batch of intake does not wait for the one before it": [(Sender, "_deliver", _all_at_once)],
    "intake goes on where it was, not where its group is": [(TakenUp, "begin", _where_it_was)],
    "a coordinator that has moved is taken for one that knows nothing": [(offsets, "_committed", _never_committed)],
    "the router does not wait for what it sends": [(RoutedOutputs, "send", not_awaited)],
    "what is known to be acknowledged is sent again": [(Served, "unsaid", _again)],
    "an older label replaces a newer one": [(Row, "accepted", lambda _: lambda *_: True)],
    "an early label is forgotten": [(Row, "joined", lambda _: lambda *_: [])],
}
