"""What folding a batch changed, and what it did."""

from collections import defaultdict
from dataclasses import dataclass, field

from state.events import Output
from state.fence import FATES


@dataclass(slots=True)
class Changes:
    """Rows that changed since the last checkpoint.

    Attributes
    ----------
    rows
        Rows to write, by key; None deletes. They are written all at once, or not at all.
    of_streams
        Those among ``rows`` that belong to a stream and say something of it.
    """

    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    of_streams: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Effects(Changes):
    """What a batch did; the rows it changed are here only if `state.engine.Partition.fold` made a checkpoint of it.

    Attributes
    ----------
    outputs
        Records to produce, in order. Of a whole batch: parts return their own.
    fates
        How many records and rows met each of `state.fence.FATES` in this batch.
    delays
        Milliseconds from forecast to outcome, for each event resolved in this batch by an outcome.
    rejected
        Topic and reason of every dead letter.
    withheld
        How many of these say only where their record stands.
    refused
        How many records of each stream its quota refused; without a stream those of unknown events.
    overdue
        How many events of each stream got their first outcome after silence had labelled them.
    belated
        How many forecasts were as old as their stream's ttl when they came: the row of an earlier copy is gone.
    untaught
        How many events of each stream taught nothing, because their entity had taught.
    passed
        How many records of each topic were passed over.
    answered, resolved
        How many forecasts of each stream were answered, duplicates included, and how many of its events resolved.
    lapsed
        When the forecasts and outcomes that expired in this batch without a partner were due, and the forecasts that
        silence labelled: stream time, ms.
    """

    outputs: list[Output] = field(default_factory=list)
    fates: list[int] = field(default_factory=lambda: [0] * len(FATES))
    delays: list[int] = field(default_factory=list)
    lapsed: list[int] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    withheld: int = 0
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    overdue: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    belated: int = 0
    untaught: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    passed: list[int] = field(default_factory=lambda: [0, 0])
    answered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    resolved: dict[str, int] = field(default_factory=lambda: defaultdict(int))
