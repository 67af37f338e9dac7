"""Planted bugs of commands and of builds in a group; see `tests.simulation.mutants`."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final

from agents.served import Served
from agents.taken_up import TakenUp
from agents.topology import Topology
from cli import group_states, rescale, streams_file
from replay import first_rows
from replay.audit import checkpoint
from replay.audit.output_matcher import Matcher
from replay.audit.partition_verifier import Rederivation
from replay.audit.reader import PartitionReader
from replay.first_rows import Beginning
from replay.moves import is_of_engine
from state import kinds
from state import rescale as state_rescale
from state.formats import ARITHMETIC
from streams.config import in_force
from streams.faust import claims
from streams.faust.claims import Claims
from streams.faust.in_force import Announcer
from streams.faust.membership import Member
from streams.kafka.topics import TopicsError
from streams.kafka.whole_topics import batches
from tests.simulation.mutants_of_sources import Change
from tests.simulation.plan import LOAD, PROMOTE, RESCALE, SKIP, UPGRADE, Plan


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


def _once(has_state: Any) -> Any:
    looked = False

    async def mutant(settings: Any) -> bool:
        nonlocal looked
        if looked:
            looked = False
            return False
        found: bool = await has_state(settings)
        looked = not found
        return found

    return mutant


def _of_changelog_alone(_: Any) -> Any:
    async def mutant(settings: Any) -> bool:
        async for _, records in batches(settings, [settings.changelog]):
            if any(is_of_engine(record.key) for record in records):
                return True
        return False

    return mutant


def _names_two(opened: Any) -> Any:
    async def mutant(settings: Any) -> Any:
        try:
            return await opened(settings)
        except TopicsError as exc:
            raise TopicsError(str(exc).replace(settings.journal, settings.changelog)) from exc

    return mutant


def _told_nothing(_: Any) -> Any:
    async def mutant(self: Beginning, rows: Any, fence: Any, *_: Any) -> int:
        self.fences.append(fence)
        own = [each for each in rows() if each[0] != kinds.FENCE.key()]
        return await self.changelog.append(len(self.fences) - 1, own)

    return mutant


def _timeless(entries: Any) -> Any:
    def mutant(part: Any, fence: Any) -> Any:
        for role, ttl_ms, (at, *of) in entries(part, fence):
            yield role, ttl_ms, (min(at, fence.stream_time), *of)

    return mutant


def _of_workers_alone(commit: Any) -> Any:
    async def mutant(settings: Any, offsets: Any, suffix: str = "") -> None:
        if not suffix:
            await commit(settings, offsets)

    return mutant


def _backwards(extents: Any) -> Any:
    return lambda self, places: extents(self, places[::-1])


def _forgetful(settled: Any) -> Any:
    return lambda self: settled(self)._replace(recent=())


def _all_owners(_: Any) -> Any:
    return lambda recorded, applied: repr([each for each in recorded if each.applied < applied])


def _announced_late(announce: Any) -> Any:
    async def mutant(self: Any, *rest: Any) -> None:
        asyncio.get_running_loop().create_task(announce(self, *rest))
        await asyncio.sleep(0)

    return mutant


def _as_it_was(_: Any) -> Any:
    return lambda _, __, ___, since: since


async def _nothing(_: Any) -> dict[Any, Any]:
    await asyncio.sleep(0)
    return {}


#: By what is wrong, in words. Those of a claim behind a look, of a stream time, of a journal that goes on, of the
#: clock, and the last two were bugs: seeds found them.
MUTANTS: Final[dict[str, list[Change]]] = {
    "commands write under no claim": [(claims._Producer, "append", _unstamped)],
    "a move claims when it writes, behind its look at what is there": [(rescale, "_claimed", _claims_late)],
    "a move takes along what intake has sent and not committed": [
        (group_states, "routes", lambda _: SimpleNamespace(ORIGIN=SimpleNamespace(letter=b"")))
    ],
    "a move does not take intake's offsets along": [(rescale, "_commit", _of_workers_alone)],
    "what was moved before there was a stream time expires at once": [(state_rescale, "_entries", _timeless)],
    "a load does not look under its claim whether there is a state": [(first_rows, "_has_state", _once)],
    "a load is followed by a journal that goes on": [
        (first_rows, "_has_state", _of_changelog_alone),
        (first_rows, "_opened", _names_two),
    ],
    "audits are not told what was loaded": [(Beginning, "give", _told_nothing)],
    "two may change the streams file at once": [(streams_file, "_locked", _returning(nullcontext()))],
    "an audit asks where the journal ends when it knows where the inputs end": [
        (PartitionReader, "extents", _backwards)
    ],
    "an audit that goes on does not know what may come again": [(Matcher, "settled", _forgetful)],
    "an audit that goes on takes what a zombie says late for another history": [
        (checkpoint, "_taken_before", _all_owners)
    ],
    "an audit does not ask what was left out": [(PartitionReader, "note_skips", _as_it_was)],
    "an audit does not know what the clock has made due": [
        (Rederivation, "_due", lambda _: lambda _: lambda *_: False)
    ],
    "answers go out before it is written down what is in force": [(Announcer, "announce", _announced_late)],
    "intake does not ask what was left out": [(TakenUp, "_left_out", lambda _: _nothing)],
    "a record that was left out is read": [(Topology, "skipped", _returning({}))],
    "a build folds what another one has answered": [(in_force, "restored", _any_build)],
    "no other worker gets what this build cannot fold": [(Member, "leave", _returning(None))],
    "a checkpoint says that later outputs stand before it": [(Served, "answers", _later_outputs)],
}

#: Which histories may show them.
WHERE: Final[dict[str, Callable[[Plan], bool]]] = {
    "commands write under no claim": lambda plan: plan.task in (RESCALE, LOAD),
    "a move claims when it writes, behind its look at what is there": lambda plan: plan.task == RESCALE,
    "a move takes along what intake has sent and not committed": lambda plan: plan.task == RESCALE and plan.sourced,
    "a move does not take intake's offsets along": lambda plan: plan.task == RESCALE and plan.sourced,
    "what was moved before there was a stream time expires at once": lambda plan: plan.task == RESCALE,
    "a load does not look under its claim whether there is a state": lambda plan: plan.task == LOAD,
    "a load is followed by a journal that goes on": lambda plan: plan.before,
    "audits are not told what was loaded": lambda plan: plan.task == LOAD and plan.audits is not None,
    "two may change the streams file at once": lambda plan: plan.task == PROMOTE,
    "an audit asks where the journal ends when it knows where the inputs end": lambda plan: plan.audits is not None,
    "an audit that goes on does not know what may come again": lambda plan: "--checkpoint" in (plan.audits or ()),
    "an audit that goes on takes what a zombie says late for another history": lambda plan: (
        "--checkpoint" in (plan.audits or ())
    ),
    "an audit does not know what the clock has made due": lambda plan: (
        plan.audits is not None and plan.settings["quiet_seconds"] > 0
    ),
    "an audit does not ask what was left out": lambda plan: plan.task == SKIP and plan.audits is not None,
    "answers go out before it is written down what is in force": lambda plan: plan.audits is not None,
    "intake does not ask what was left out": lambda plan: plan.task == SKIP and plan.sourced,
    "a record that was left out is read": lambda plan: plan.task == SKIP,
    "a build folds what another one has answered": lambda plan: plan.task == UPGRADE,
    "no other worker gets what this build cannot fold": lambda plan: plan.task == UPGRADE,
}
