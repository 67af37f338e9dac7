"""Rows that readers of metrics and pages are shown, put together by hand."""

from typing import Any

from state.effects import Changes
from state.fence import Fence
from state.kind import Kind
from state.policies import Policies
from streams.metrics.snapshot import PartitionSnapshot, by_stream


def hold(held: PartitionSnapshot, kind: Kind[Any], row: bytes, stream: str, *of: object) -> None:
    """Put a row among those held, as a checkpoint does; ``of`` is what its key says beside the stream."""
    held.rows[stream] = {**held.rows.get(stream, {}), kind.key(stream, *of): row}


def holding(rows: dict[bytes, bytes]) -> PartitionSnapshot:
    """Return what is held of rows."""
    return PartitionSnapshot(Fence(), by_stream(rows))


def shown(changes: Changes, policies: Policies, kind: Kind[Any]) -> dict[tuple[Any, ...], bytes]:
    """Return the rows of a kind that readers are shown after a checkpoint, by what their keys say."""
    held = PartitionSnapshot(Fence())
    held.applied(changes, policies, lambda _: True)
    rows = {key: row for each in held.rows.values() for key, row in each.items()}
    return {kind.of(key): row for key, row in rows.items() if key[:1] == kind.letter}
