"""Judges a load: what the command wrote against the pure fold of the past."""

from typing import Any

import orjson

from state import kinds
from state.engine import Partition
from state.fence import Fence
from streams.kafka.partitioner import partition
from streams.records.decoding import Decoder
from streams.records.refused import named
from streams.records.routing import target_of
from tests.e2e.world import BESIDE
from tests.simulation import moves
from tests.simulation.folds import differ
from tests.simulation.world import World


def judged(world: World) -> list[dict[bytes, bytes]]:
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
    begun = []
    for n, part in enumerate(events):
        rows: dict[bytes, bytes] = {}
        engine = Partition(base.policies, rows.get)
        engine.apply(named(part))
        made = {key: row for key, row in engine.checkpoint().rows.items() if row is not None}
        fence = Fence.decode(made[kinds.FENCE.key()])
        found = moves.begun(world, base.changelog, n)
        fence.next[:] = Fence.decode(found[kinds.FENCE.key()]).next if world.plan.before else [0, 0]
        made[kinds.FENCE.key()] = fence.encode()
        made = {key: row for key, row in made.items() if key[:1] not in BESIDE}
        differ(f"rows that were loaded into partition {n}", made, found)
        begun.append(made)
    return begun


def _past(world: World, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(each.value) for each in world.plan.past if each.topic == topic]
