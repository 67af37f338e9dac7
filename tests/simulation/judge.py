"""Judges a history: what the brokers hold against an undisturbed fold of the same records.

Every byte is compared: rows, answers, labels, dead letters, and where there are all stages what intake and router have
sent (`sources`). All in all each forecast has its answer, and each label that came has reached it.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from aiokafka import errors

from streams.faust.changelog import FencedError
from streams.records.encoding import encoded
from streams.records.skips import PoisonError
from tests.simulation import loads, moves, sources
from tests.simulation.disk import FULL
from tests.simulation.folds import NOTHING, Folded, WrongError, fold
from tests.simulation.log import Record
from tests.simulation.plan import LASTING, LOAD, OF_STAGE, PROMOTE, ROUTER, SESSION, UPGRADE, WORKER
from tests.simulation.world import World

#: What may end a process while there are faults: others have taken over, or no broker answers in
#: time. A full disk may, too.
EXPECTED = (FencedError, PoisonError, TimeoutError, errors.KafkaError)
#: After so long without faults nothing may end a process any more, s.
CALM = 4 * SESSION + 8.0
#: The same where clients wait for an answer as long as aiokafka does unless it is told otherwise, s.
PATIENT = 40.0 + 8.0


class _Made(NamedTuple):
    """What an output must be: key, value, headers, and its timestamp unless the broker's clock gives it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Any, ...]
    timestamp: int | None


def judge(world: World) -> None:
    """Raise `WrongError` if a history is not as it must be, with what is wrong in words."""
    calm = world.calm + (PATIENT if world.plan.sourced else CALM)
    for at, death in world.deaths:
        if not (isinstance(death, EXPECTED) or FULL in str(death)) or at > calm:
            raise WrongError(f"at {at:.2f} s a process ended by itself: {death!r}")
    if not world.answered:
        raise WrongError(f"after {world.loop.now - world.calm:.0f} s without faults not all is answered")
    if world.overdue:
        raise WrongError(world.overdue)
    if world.heaviest > world.base.enough_bytes * 2:
        raise WrongError(f"{world.heaviest} bytes of rows waited for a checkpoint")
    _groups(world)
    if world.plan.sourced and world.plan.policies >= LASTING:
        sources.ends(world)
    if world.audits:
        _audits(world)
    if world.plan.task == PROMOTE:
        _promotions(world)


def _promotions(world: World) -> None:
    """Judge that each change of the streams file is written down once."""
    lines = world.streams.with_name(world.streams.name + ".audit.jsonl").read_bytes().splitlines()
    now = sha256(world.plan.streams.encode()).hexdigest()
    for line in map(orjson.loads, lines):
        if line["before"] != now or line["after"] == now:
            raise WrongError(f"what is written down of the promotion to {line['to']['config']} is not what it changed")
        now = line["after"]
    if now != sha256(world.streams.read_bytes()).hexdigest():
        raise WrongError("the streams file was changed, and nobody has written that down")


def _audits(world: World) -> None:
    """Judge audits: none finds a difference, and the last one, when all was at rest, has compared every record."""
    for account in world.audits:
        if account["differences"]:
            raise WrongError(f"an audit says that something differs: {account['differences'][0]}")
    account = world.audits[-1]
    if world.plan.task == UPGRADE:  # none of both builds judges what the other one has answered
        return
    if account["unable"]:
        raise WrongError(f"the last audit could not judge all: {account['unable'][0]}")
    logs, checked = world.kafka.logs, account["checked"]
    if world.plan.before:
        return
    # With checkpoints the group before a move is not read any more.
    eras = [era for era in world.eras if era.base is world.base or era.base.app_id in account["earlier_groups"]]
    read = sum(logs[topic, n].end for era in eras for topic, n in era.reads(WORKER))
    made = sum(
        record.by.split(".")[0] in OF_STAGE[WORKER]
        for era in eras
        for topic in era.base.outputs
        for n in range(era.width)
        for record in logs[topic, n].records()
    )
    for what, of, names in (
        ("inputs", read, ("forecasts", "outcomes")),
        ("outputs", made, ("calibrated", "resolved", "dead_letters", "raw_answers", "copies")),
    ):
        if (said := sum(checked[name] for name in names)) != of:
            raise WrongError(f"the last audit has compared {said} of {of} {what}")


def _groups(world: World) -> None:
    """Judge the stages of the group, and of the one that followed it."""
    begun = {WORKER: loads.judged(world)} if world.plan.task == LOAD else {}
    if world.plan.before:  # what it had answered went with its topics: audits judge the rest
        return
    since: sources.Offsets = {}
    for era in world.eras:
        world.era = era
        parts = {}
        if world.plan.sourced:
            since, routed = sources.judge(world, since, begun.get(ROUTER, []))
            parts[ROUTER] = [each.rows for each in routed]
        first = begun.get(WORKER, [NOTHING] * era.width)
        folded = [fold(world, WORKER, n, rows) for n, rows in enumerate(first)]
        for n, each in enumerate(folded):
            _worker(world, n, each)
        if era is not world.eras[-1]:
            begun = moves.judged(world, parts | {WORKER: [each.rows for each in folded]})


def _worker(world: World, n: int, folded: Folded) -> None:
    """Judge what workers have put out for a partition."""
    made: dict[str, list[_Made]] = {}
    for _, settings, outputs in folded.made:
        for label, records in encoded(outputs, settings, n).items():
            made.setdefault(label, []).extend(
                _Made(key, value, tuple(headers), timestamp) for key, value, timestamp, headers in records
            )
    for label, topic in zip(("calibrated", "resolved", "dead-letters"), world.base.outputs, strict=True):
        found = [each for each in world.kafka.logs[topic, n].records() if each.by.split(".")[0] in OF_STAGE[WORKER]]
        _said(f"{topic}/{n}", made.get(label, []), found, [(each.at, each.by) for each in folded.claims])


def _said(place: str, made: Sequence[_Made], found: Sequence[Record], claims: Sequence[tuple[int, str]]) -> None:
    """Judge an output topic: every output once and in order; copies only where one of them is a zombie's.

    Outputs are appended without an epoch. So a worker that does not know yet that another has claimed its partition may
    append what it had folded before: the same bytes, see `docs/explanation/guarantees.md`.
    """
    first: dict[_Made, list[bool]] = {}
    at = 0
    for record in found:
        zombie = next((by for since, by in reversed(claims) if since < record.at), "") != record.by
        if at < len(made) and _same(made[at], record):
            first.setdefault(made[at], []).append(zombie)
            at += 1
            continue
        again = next((each for each in first if _same(each, record)), None)
        if again is None:
            raise WrongError(f"{place}@{record.offset} differs from what its records bring about, or is out of order")
        if not (zombie or any(first[again])):
            raise WrongError(f"{place}@{record.offset} is said twice by workers that both held the partition")
    if at < len(made):
        raise WrongError(f"{place} lacks {len(made) - at} of {len(made)} outputs")


def _same(made: _Made, record: Record) -> bool:
    known = made.timestamp is None or made.timestamp == record.timestamp
    return known and (made.key, made.value, made.headers) == (record.key, record.value, tuple(record.headers))
