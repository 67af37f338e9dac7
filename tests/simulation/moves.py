"""Judges a move to another number of partitions: what the command wrote against the pure function of the old rows."""

from collections.abc import Mapping, Sequence

from replay import moves
from state import kinds
from state.rescale import rescaled, rescaled_routes
from streams.faust.claims import UNFINISHED
from tests.e2e.world import BESIDE
from tests.simulation.folds import WrongError, differ
from tests.simulation.plan import OPERATORS, ROUTER, WORKER
from tests.simulation.world import World

Rows = dict[bytes, bytes]


def judged(world: World, stages: Mapping[str, Sequence[Rows]]) -> dict[str, list[Rows]]:
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
            differ(f"rows that {stage}'s partition {n} began with", rows, begun(world, new.folding[stage].changelog, n))
        made[stage] = wanted
    return made


def begun(world: World, changelog: str, n: int) -> Rows:
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
