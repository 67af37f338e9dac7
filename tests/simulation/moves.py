"""Judges what commands wrote: rows of a move by the pure function of the old ones, those of a load by the fold."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from replay import moves
from state import kinds
from state.engine import Partition
from state.fence import Fence
from state.rescale import rescaled, rescaled_routes
from streams.faust.claims import UNFINISHED
from streams.kafka.partitioner import partition
from streams.records.decoding import Decoder
from streams.records.refused import named
from streams.records.routing import target_of
from tests.e2e.world import BESIDE
from tests.simulation.folds import WrongError, differ
from tests.simulation.plan import OPERATORS, ROUTER, WORKER
from tests.simulation.world import World

Rows = dict[bytes, bytes]


def moved(world: World, stages: Mapping[str, Sequence[Rows]]) -> dict[str, list[Rows]]:
    """Return the rows that the stages of the group which follows began with, by partition.

    Raises `WrongError` if they are not what the rows of the old partitions become.
    """
    _, new = world.eras
    made: dict[str, list[Rows]] = {}
    for stage, divided in ((WORKER, rescaled), (ROUTER, rescaled_routes)):
        if stage not in stages:
            continue
        parts = [dict(sorted(part.items())) for part in stages[stage]]
        routed, by = stages.get(ROUTER, ()), moves.EVENT
        if stage == WORKER and routed:
            by = moves.STREAM
        plan = moves.plan(by, len(parts), [(0, 0)] * new.width, lambda _: 1, grown=False, routed=routed)
        wanted = [{key: row for key, row in rows.items() if key[:1] not in BESIDE} for rows in divided(parts, plan)]
        for n, rows in enumerate(wanted):
            differ(
                f"rows that {stage}'s partition {n} began with",
                rows,
                begun_with(world, new.folding[stage].changelog, n),
            )
        made[stage] = wanted
    return made


def begun_with(world: World, changelog: str, n: int) -> Rows:
    """Return the rows of a partition as they were when the command wrote its fence."""
    rows: Rows = {}
    for each in world.kafka.logs[changelog, n].records(whole=True):
        if each.key is None or each.key[:1] in BESIDE or each.by.split(".")[0] not in OPERATORS:
            continue
        rows.pop(each.key, None)
        if each.value is not None:
            rows[each.key] = each.value
        if each.key == kinds.FENCE.key() and each.value not in (None, UNFINISHED):
            return rows
    raise WrongError(f"partition {n} of {changelog} has no fence of the command")


def loaded(world: World) -> list[Rows]:
    """Return the rows that the group began with, by partition.

    Raises `WrongError` if they are not what the engine makes of the past.
    """
    base, width = world.base, world.width
    decoder = Decoder(base.policies, base.limits)
    reads = decoder.forecast, decoder.outcome
    events: list[list[Any]] = [[] for _ in range(width)]
    streams = {each["event_id"]: each["stream"] for each in _past(world, "forecasts") if "stream" in each}
    order = sorted(enumerate(world.plan.past), key=lambda each: (each[1].ts, each[1].topic == "outcomes", each[0]))
    for offset, sent in order:
        key, value = sent.key, sent.value
        record = orjson.loads(value)
        if world.plan.sourced and (stream := streams.get(record["event_id"])):
            key = target_of(base.policies, stream, record["event_id"]).encode()
            value = orjson.dumps(record | {"scope": stream})
        events[partition(key, width)].append(reads[sent.topic == "outcomes"](offset, key, value, sent.ts))
    began = []
    for n, part in enumerate(events):
        rows: Rows = {}
        engine = Partition(base.policies, rows.get)
        engine.apply(named(part))
        made = {key: row for key, row in engine.checkpoint().rows.items() if row is not None}
        fence = Fence.decode(made[kinds.FENCE.key()])
        found = begun_with(world, base.changelog, n)
        fence.next[:] = Fence.decode(found[kinds.FENCE.key()]).next if world.plan.before else [0, 0]
        made[kinds.FENCE.key()] = fence.encode()
        made = {key: row for key, row in made.items() if key[:1] not in BESIDE}
        differ(f"rows that were loaded into partition {n}", made, found)
        began.append(made)
    return began


def _past(world: World, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(each.value) for each in world.plan.past if each.topic == topic]
