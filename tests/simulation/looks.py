"""Looks into the workers and routers that run: what is due, what stands on their disks, what waits, and who rests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from agents.served import ServedPartition
from agents.topology import Topology
from streams.config.settings import Settings
from streams.faust.inputs import DataLossError
from streams.records.merge import RewrittenError
from tests.e2e.world import BESIDE
from tests.simulation.loop import BEGIN

if TYPE_CHECKING:
    from tests.simulation.world import Actor, World

#: How processes end that find another input than the one that was applied.
LOSSES: Final = (DataLossError, RewrittenError)
#: So often this must happen before it is taken for what happens at every start.
REFUSED: Final = 4


def refused(world: "World") -> list[BaseException | str]:
    """Return how processes ended, since there are no faults any more, because an input has lost its tail."""
    deaths = world.deaths if world.plan.loses else []
    return [error for at, error in deaths if at > world.calm and isinstance(error, LOSSES)]


def served(actors: Iterable["Actor"]) -> Iterator[tuple[int, ServedPartition]]:
    """Yield what each of them serves, with the number of the partition."""
    for actor in actors:
        if actor.topology is not None:
            yield from actor.topology.processor._partitions.items()


def overdue(actors: Iterable["Actor"], quiet_seconds: float, now: float) -> str:
    """Return what has been due for two seconds by the clock of a topic that is quiet; empty: nothing."""
    due = (BEGIN + now - quiet_seconds - 2.0) * 1000
    late = [n for n, each in served(actors) if quiet_seconds and each.engine.ripens < due and each.live]
    return f"partition {late[-1]} is quiet, and what fell due does not happen" if late else ""


def tables(actors: Iterable["Actor"], folding: Mapping[str, Settings]) -> dict[tuple[str, int], dict[bytes, bytes]]:
    """Return what stands on the disks of those who serve partitions."""
    found = {}
    for actor in actors:
        if actor.topology is None or not actor.process or actor.process.stands:
            continue
        table = actor.topology.table
        for n in actor.topology.processor._partitions:
            if table.store._db_for_partition(n)._database.damaged:  # and nobody has read it yet
                continue
            rows = dict(table.store.range(n, b""))
            found[folding[actor.stage].app_id, n] = {
                key: row for key, row in rows.items() if key[:1] not in BESIDE and key[:2] != b"__"
            }
    return found


def longest(since: float, until: float, spans: Iterable[tuple[float, float]]) -> float:
    """Return the longest time between two times in which none of the spans was, s."""
    found, at = 0.0, since
    for begin, end in sorted(spans):
        found, at = max(found, min(begin, until) - at), max(at, end)
    return max(found, until - at)


def rests(topology: Topology) -> bool:
    """Whether a worker or a router has nothing left to do."""
    if not topology.app.faust.started or topology.app.faust.in_recovery:
        return False
    return all(each.idle for each in topology.app.consumer.partition_buffers.values())
