"""Records that the engine has applied, and that nobody has acknowledged yet."""

from dataclasses import dataclass
from typing import Any

from agents.served import Served
from state.events import Rejected
from state.fence import Fence
from state.journal import Entry
from streams.faust.outputs import OutputBatch
from streams.records.merge import Batch


@dataclass(frozen=True)
class Folded:
    """Records of a batch that the engine has applied.

    Attributes
    ----------
    batch
        The batch.
    served
        Its partition.
    outputs
        What is to be produced.
    entry
        What the journal is to say of them; None: it says so already.
    number
        Of the first journal entry after them.
    effects
        As the engine made them.
    rejected
        The dead letters.
    fence
        Of the state with them.
    """

    batch: Batch
    served: Served
    outputs: OutputBatch
    entry: Entry | None
    number: int
    effects: Any
    rejected: list[Rejected]
    fence: Fence


@dataclass(frozen=True)
class FoldedTurn:
    """A turn whose records are applied; nothing of it is in the journal yet, unless it was there before.

    Attributes
    ----------
    started
        When its folding was asked for, s of a clock that only counts.
    parts
        Its batches.
    """

    started: float
    parts: list[Folded]


def committed(fence: Fence) -> Fence:
    """Return a fence as it is in the state now: the engine moves its own while it folds what may never be committed."""
    return Fence.decode(fence.encode())
