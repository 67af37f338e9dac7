"""Planted bugs of intake, router, commands and builds in a group; see `tests.simulation.planting`."""

import asyncio
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from aiokafka.errors import KafkaError

from agents.sending import Sender
from agents.served import ServedPartition
from agents.taken_up import TakenUp
from agents.topology import Topology
from cli import group_states, rescale, streams_file
from replay import first_rows
from replay.audit import auditor, checkpoint
from replay.audit.output_matcher import Matcher
from replay.audit.partition_verifier import Rederivation
from replay.audit.reader import PartitionReader
from replay.first_rows import Beginning
from replay.moves import is_of_engine
from state import kinds
from state import rescale as state_rescale
from state.formats import ARITHMETIC
from state.routes import RouteRow
from streams.config import in_force
from streams.faust import offsets
from streams.faust.claims import Claims
from streams.faust.membership import Member
from streams.faust.routed_outputs import RoutedOutputs
from streams.kafka.topics import TopicsError
from streams.kafka.whole_topics import batches
from tests.simulation.bugs import SOURCED, Bug, not_awaited, returning, unstamped
from tests.simulation.plan import LASTING, LOAD, PROMOTE, RESCALE, SKIP, UPGRADE


def _unclaimed(init: Any) -> Any:
    def mutant(self: Claims, *given: Any) -> None:
        init(self, *given)
        producer: Any = self._changelog._producer()
        producer.append = partial(unstamped(type(producer).append), producer)

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
    def mutant(self: ServedPartition, number: int) -> None:
        answers(self, number)
        if self.waiting is not None:
            self.waiting = self.waiting._replace(said=self.said)

    return mutant


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


def _believed(identities: Any) -> Any:
    first: dict[str, Any] = {}

    def mutant(settings: Any) -> Any:
        return first.setdefault(settings.app_id, identities(settings))

    return mutant


def _forgetful(settled: Any) -> Any:
    return lambda self: settled(self)._replace(recent=())


def _all_owners(_: Any) -> Any:
    return lambda recorded, applied: repr([each for each in recorded if each.applied < applied])


def _as_it_was(_: Any) -> Any:
    return lambda _, __, ___, since: since


async def _nothing(_: Any) -> dict[Any, Any]:
    await asyncio.sleep(0)
    return {}


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


def _again(unsaid: Any) -> Any:
    return lambda self, batch: batch.again is not None or unsaid(self, batch)


def _never_committed(committed: Any) -> Any:
    async def mutant(*asked: Any) -> Any:
        try:
            return await committed(*asked)
        except KafkaError:
            return {}

    return mutant


#: By what is wrong, in words. Those of a claim behind a look, of a stream time, of a journal that goes on, of the
#: clock, and the last two were bugs: seeds found them.
MUTANTS: Final = {
    "intake commits what it has sent before it is acknowledged": Bug([(Sender, "send", _done_when_sent)], SOURCED),
    "intake sends a route before its forecast": Bug([(Sender, "_deliver", _route_first)], SOURCED),
    "a batch of intake does not wait for the one before it": Bug([(Sender, "_deliver", _all_at_once)], SOURCED),
    "intake goes on where it was, not where its group is": Bug([(TakenUp, "begin", _where_it_was)], SOURCED),
    "a coordinator that has moved is taken for one that knows nothing": Bug(
        [(offsets, "_committed", _never_committed)], SOURCED
    ),
    "the router does not wait for what it sends": Bug([(RoutedOutputs, "send", not_awaited)], SOURCED),
    "what is known to be acknowledged is sent again": Bug([(ServedPartition, "unsaid", _again)], SOURCED),
    "an older label replaces a newer one": Bug([(RouteRow, "accepted", lambda _: lambda *_: True)], SOURCED),
    "an early label is forgotten": Bug([(RouteRow, "joined", lambda _: lambda *_: [])], SOURCED),
    "commands write under no claim": Bug([(Claims, "__init__", _unclaimed)], lambda plan: plan.task in (RESCALE, LOAD)),
    "a move claims when it writes, behind its look at what is there": Bug(
        [(rescale, "_claimed", _claims_late)], lambda plan: plan.task == RESCALE
    ),
    "a move takes along what intake has sent and not committed": Bug(
        [(group_states, "routes", lambda _: SimpleNamespace(ORIGIN=SimpleNamespace(letter=b"")))],
        lambda plan: plan.task == RESCALE and plan.sourced,
    ),
    "a move does not take intake's offsets along": Bug(
        [(rescale, "_commit", _of_workers_alone)], lambda plan: plan.task == RESCALE and plan.sourced
    ),
    "what was moved before there was a stream time expires at once": Bug(
        [(state_rescale, "_entries", _timeless)],
        # The judge moves rows by the same function: what it sees is that labels do not reach their streams.
        lambda plan: plan.task == RESCALE and plan.sourced and plan.policies >= LASTING,
    ),
    "a load does not look under its claim whether there is a state": Bug(
        [(first_rows, "_has_state", _once)], lambda plan: plan.task == LOAD
    ),
    "a load is followed by a journal that goes on": Bug(
        [(first_rows, "_has_state", _of_changelog_alone), (first_rows, "_opened", _names_two)], lambda plan: plan.before
    ),
    "audits are not told what was loaded": Bug(
        [(Beginning, "give", _told_nothing)], lambda plan: plan.task == LOAD and plan.audits is not None
    ),
    "two may change the streams file at once": Bug(
        [(streams_file, "_locked", returning(nullcontext()))], lambda plan: plan.task == PROMOTE
    ),
    "an audit asks where the journal ends when it knows where the inputs end": Bug(
        [(PartitionReader, "extents", _backwards)], lambda plan: plan.audits is not None
    ),
    "an audit does not look whether topics were made anew meanwhile": Bug(
        [(auditor, "identities", _believed)], lambda plan: plan.before and plan.audits is not None
    ),
    "an audit that goes on does not know what may come again": Bug(
        [(Matcher, "settled", _forgetful)], lambda plan: "--checkpoint" in (plan.audits or ())
    ),
    "an audit that goes on takes what a zombie says late for another history": Bug(
        [(checkpoint, "_taken_before", _all_owners)], lambda plan: "--checkpoint" in (plan.audits or ())
    ),
    "an audit does not ask what was left out": Bug(
        [(PartitionReader, "note_skips", _as_it_was)], lambda plan: plan.task == SKIP and plan.audits is not None
    ),
    "an audit does not know what the clock has made due": Bug(
        [(Rederivation, "_due", returning(None))],
        lambda plan: plan.audits is not None and plan.settings["quiet_seconds"] > 0,
    ),
    "intake does not ask what was left out": Bug(
        [(TakenUp, "_left_out", lambda _: _nothing)], lambda plan: plan.task == SKIP and plan.sourced
    ),
    "a record that was left out is read": Bug([(Topology, "skipped", returning({}))], lambda plan: plan.task == SKIP),
    "a build folds what another one has answered": Bug(
        [(in_force, "restored", _any_build)], lambda plan: plan.task == UPGRADE
    ),
    "no other worker gets what this build cannot fold": Bug(
        [(Member, "leave", returning(None))], lambda plan: plan.task == UPGRADE
    ),
    "a checkpoint says that later outputs stand before it": Bug([(ServedPartition, "answers", _later_outputs)]),
}
