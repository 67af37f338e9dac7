"""Judges a history: what the brokers hold against an undisturbed fold of the same records.

Every byte is compared: rows, answers, labels, dead letters, and where there are all stages what intake and router have
sent (`sources`). All in all each forecast has its answer, and each label that came has reached it.
"""

import traceback
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from aiokafka import errors

from state.journal import Entry
from streams.faust.changelog import FencedError
from streams.records.encoding import encoded
from streams.records.skips import PoisonError
from tests.simulation import looks, moves, sources
from tests.simulation.disk import FULL
from tests.simulation.folds import NOTHING, Folded, WrongError, fold
from tests.simulation.log import Record
from tests.simulation.plan import LASTING, LOAD, OF_STAGE, PROMOTE, ROUTER, SESSION, UNAWARE, UPGRADE, WORKER
from tests.simulation.world import World

#: What may end a process while there are faults: others have taken over, or no broker answers in
#: time. A full disk may, too.
EXPECTED: tuple[type[BaseException], ...] = (FencedError, PoisonError, TimeoutError, errors.KafkaError)
#: What a planted bug raises that does not fit the product any more.
MISFITS: Final = (TypeError, ValueError, AttributeError, NameError)
#: So long a partition may answer nothing while a forecast waits and no fault lasts, s. With sources a session more: at
#: a first start router and worker wait for the stage before.
SILENT = SESSION + 10.0
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


def _of_the_bug(death: BaseException) -> bool:
    """Whether a planted bug raised that itself: then finding it says nothing."""
    frames = list(traceback.walk_tb(death.__traceback__))
    return bool(frames) and Path(frames[-1][0].f_code.co_filename).name.startswith("mutants")


def judge(world: World) -> None:
    """Raise `WrongError` if a history is not as it must be, with what is wrong in words."""
    calm = world.calm + (PATIENT if world.plan.sourced else CALM)
    expected, refused = EXPECTED + looks.LOSSES * world.plan.loses, looks.refused(world)
    if world.faults.counts["retention"] and any(each.kind.startswith(UNAWARE) for each in world.plan.faults):
        expected += looks.LOSSES[:1]  # of one that had not read what is deleted, and does not know that others have
    for at, death in world.deaths:
        if isinstance(death, MISFITS) and _of_the_bug(death):
            raise death
        if not (isinstance(death, expected) or FULL in str(death)) or (at > calm and not refused):
            raise WrongError(f"at {at:.2f} s a process ended by itself: {death!r}")
    if not (world.answered or refused):
        raise WrongError(f"after {world.loop.now - world.calm:.0f} s without faults not all is answered")
    if world.overdue:
        raise WrongError(world.overdue)
    if world.heaviest > world.base.enough_bytes * 2:
        raise WrongError(f"{world.heaviest} bytes of rows waited for a checkpoint")
    torn = _groups(world)
    if not (world.answered or torn):
        raise WrongError(f"nothing was applied that is lost, and a process ends by itself: {refused[0]!r}")
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
    if world.faults.counts["retention"]:  # and nobody can compare what is deleted
        return
    if account["unable"]:
        raise WrongError(f"the last audit could not judge all: {account['unable'][0]}")
    logs, checked = world.kafka.logs, account["checked"]
    if world.plan.before:
        return
    era = world.eras[-1]  # the group before a move is not read any more
    read = sum(logs[topic, n].end for topic, n in era.reads(WORKER))
    made = sum(
        record.by.split(".")[0] in OF_STAGE[WORKER]
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


def _groups(world: World) -> bool:
    """Judge the stages of the group, and of the one that followed it; return whether what was applied is lost."""
    torn = False
    begun = {WORKER: moves.loaded(world)} if world.plan.task == LOAD else {}
    if world.plan.before:  # what it had answered went with its topics: audits judge the rest
        return torn
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
            torn = torn or each.torn
        if era is not world.eras[-1]:
            begun = moves.moved(world, parts | {WORKER: [each.rows for each in folded]})
    return torn


def _worker(world: World, n: int, folded: Folded) -> None:
    """Judge what workers have put out for a partition."""
    made: dict[str, list[_Made]] = {}
    answers: list[Entry] = []
    for entry, settings, outputs in folded.made:
        for label, records in encoded(outputs, settings, n).items():
            made.setdefault(label, []).extend(
                _Made(key, value, tuple(headers), timestamp) for key, value, timestamp, headers in records
            )
            answers += [entry] * len(records) * (label == "calibrated")
    claims, first = [(each.at, each.by) for each in folded.claims], list[list[Record]]()
    for label, topic in zip(("calibrated", "resolved", "dead-letters"), world.base.outputs, strict=True):
        found = [each for each in world.kafka.logs[topic, n].records() if each.by.split(".")[0] in OF_STAGE[WORKER]]
        first.append(_said(f"{topic}/{n}", made.get(label, []), found, claims, whole=world.answered))
    if not world.plan.task:
        _silence(world, n, folded, zip(answers, first[0], strict=False))


def _silence(world: World, n: int, folded: Folded, answers: Iterable[tuple[Entry, Record]]) -> None:
    """Judge how long a partition has answered nothing while a forecast waited and no fault lasted.

    It is counted from when the forecast came, and from the answer before it.
    """
    times, since = world.kafka.times, world.begun
    for entry, answer in answers:
        waited = [times[each.at - 1] for each in folded.inputs[0][entry.begins[0] : entry.ends[0]]]
        at = times[answer.at - 1]
        silent = looks.longest(max(since, min(waited, default=at)), at, world.faults.spans)
        if silent > SILENT + SESSION * world.plan.sourced:
            raise WrongError(f"partition {n} answers nothing for {silent:.1f} s until {at:.1f} s, without a fault")
        since = max(since, at)


def _said(
    place: str, made: Sequence[_Made], found: Sequence[Record], claims: Sequence[tuple[int, str]], *, whole: bool
) -> list[Record]:
    """Judge an output topic: every output once and in order; copies only where one of them is a zombie's.

    Returns the outputs without copies. ``whole``: whether all must be there.

    Outputs are appended without an epoch. So a worker that does not know yet that another has claimed its partition may
    append what it had folded before: the same bytes, see `docs/explanation/guarantees.md`.
    """
    first: dict[_Made, list[bool]] = {}
    said: list[Record] = []
    for record in found:
        zombie = next((by for since, by in reversed(claims) if since < record.at), "") != record.by
        if len(said) < len(made) and _same(made[len(said)], record):
            first.setdefault(made[len(said)], []).append(zombie)
            said.append(record)
            continue
        again = next((each for each in first if _same(each, record)), None)
        if again is None:
            raise WrongError(f"{place}@{record.offset} differs from what its records bring about, or is out of order")
        if not (zombie or any(first[again])):
            raise WrongError(f"{place}@{record.offset} is said twice by workers that both held the partition")
    if whole and len(said) < len(made):
        raise WrongError(f"{place} lacks {len(made) - len(said)} of {len(made)} outputs")
    return said


def _same(made: _Made, record: Record) -> bool:
    known = made.timestamp is None or made.timestamp == record.timestamp
    return known and (made.key, made.value, made.headers) == (record.key, record.value, tuple(record.headers))
