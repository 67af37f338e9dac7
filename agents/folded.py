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
    """Records of a batch that the engine has applied."""

    #: The batch.
    batch: Batch
    #: Its partition.
    served: Served
    #: What is to be produced.
    outputs: OutputBatch
    #: What the journal is to say of them; None: it says so already.
    entry: Entry | None
    #: Of the first journal entry after them.
    number: int
    #: As the engine made them.
    effects: Any
    #: The dead letters.
    rejected: list[Rejected]
    #: Of the state with them.
    fence: Fence


@dataclass(frozen=True)
class FoldedTurn:
    """A turn whose records are applied; nothing of it is in the journal yet, unless it was there before."""

    #: When its folding was asked for, s of a clock that only counts.
    started: float
    #: Its batches.
    parts: list[Folded]


def committed(fence: Fence) -> Fence:
    """Return a fence as it is in the state now: the engine moves its own while it folds what may never be committed."""
    return Fence.decode(fence.encode())
