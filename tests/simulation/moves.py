"""Judges a move to another number of partitions: what the command wrote against the pure function of the old rows."""

from collections.abc import Sequence

from replay import moves
from state import kinds
from state.rescale import rescaled
from streams.faust.claims import UNFINISHED
from tests.e2e.world import BESIDE
from tests.simulation.folds import WrongError, differ
from tests.simulation.plan import OPERATORS
from tests.simulation.world import World


def judged(world: World, parts: Sequence[dict[bytes, bytes]]) -> list[dict[bytes, bytes]]:
    """Return the rows that the group which follows began with, by partition.

    Raises `WrongError` if they are not what the rows of the old partitions become.
    """
    _, new = world.eras
    plan = moves.plan(moves.EVENT, len(parts), [(0, 0)] * new.width, lambda _: 1, grown=False, routed=())
    wanted = rescaled([dict(sorted(part.items())) for part in parts], plan)
    for n, rows in enumerate(wanted):
        found = _begun(world, new.base.changelog, n)
        differ(f"rows that partition {n} began with", {k: v for k, v in rows.items() if k[:1] not in BESIDE}, found)
    return [{key: row for key, row in rows.items() if key[:1] not in BESIDE} for rows in wanted]


def _begun(world: World, changelog: str, n: int) -> dict[bytes, bytes]:
    """Return the rows of a partition as they were when the command wrote its fence."""
    rows: dict[bytes, bytes] = {}
    for each in world.kafka.logs[changelog, n].records(whole=True):
        if each.key is None or each.key[:1] in BESIDE or each.by.split(".")[0] not in OPERATORS:
            continue
        rows.pop(each.key, None)
        if each.value is not None:
            rows[each.key] = each.value
        if each.key == kinds.FENCE.key() and each.value not in (None, UNFINISHED):
            return rows
    raise WrongError(f"partition {n} of {changelog} has no fence of the command")
