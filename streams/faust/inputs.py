"""The interface between the transport and the server of partitions, and the errors that end it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from aiokafka.structs import TopicPartition
from faust.types import TP

from state.journal import Journal
from streams.config.settings import Settings
from streams.records.merge import Batch, KafkaRecord

#: The remedy for missing state.
RESTORE: Final = (
    "Restore a snapshot ('trueup state restore'); or write the state anew from an archive ('trueup replay "
    "--write-state', 'trueup load'); or begin without it under another TRUEUP_APP_ID"
)
#: What to check and to do if a topic ends before offsets that were already read.
ANEW: Final = "was the topic recreated? Restore it, or give the worker another TRUEUP_APP_ID"


class DataLossError(RuntimeError):
    """Input records were deleted by retention before they were read."""


def deleted(tp: TP | TopicPartition, position: int, earliest: int, end: int) -> bool:
    """Return whether records from a position on were deleted. The brokers have said that the position is out of range.

    If they were not deleted, ask for the position again: a leader that has just been elected may lack an offset that it
    has a moment later. The epoch says whether records were cut behind it.

    ``earliest, end``: where the topic begins and ends now.

    Raises DataLossError if the topic ends before the position.
    """
    if position > end:
        raise DataLossError(
            f"{tp.topic}/{tp.partition} was read up to offset {position}, but it ends at {end} now: {ANEW}"
        )
    return position < earliest


def unread(tp: TP | TopicPartition, position: int, earliest: int, settings: Settings) -> str:
    """Return how many records were deleted before they were read, from a position up to the first remaining one.

    Raises DataLossError if the settings do not allow the stage to go on without them.
    """
    said = f"{earliest - position} records of {tp.topic}/{tp.partition} from offset {position} were deleted unread"
    if settings.data_loss == "stop":
        raise DataLossError(f"{said}: lengthen the topic's retention; TRUEUP_DATA_LOSS=continue goes on without them")
    return f"{said}; it goes on without them, as TRUEUP_DATA_LOSS=continue says: lengthen the topic's retention"


class Inputs(Protocol):
    """What the transport needs to know of the application."""

    @property
    def sources(self) -> tuple[str, str]:
        """Topics of forecasts and of outcomes."""

    @property
    def settings(self) -> Settings:
        """Sizes and times."""

    async def renew(self) -> None:
        """Confirm claims that have not been confirmed for long."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Topics that each partition's owner writes alone."""

    async def applied(self, partition: int, said: Sequence[int] = ()) -> tuple[tuple[int, int], Journal]:
        """Take up a partition whose outputs end at ``said``.

        Returns the next offset of each source after the last checkpoint, and the journal since then.
        """

    async def forgo(self, partition: int, journal: Journal) -> None:
        """Leave out the journal entries since the last checkpoint, because their records were deleted."""

    async def checkpoint(self) -> None:
        """Write checkpoints of all partitions. Raises nothing."""

    async def process(self, turn: Sequence[Batch], folded: Callable[[], None]) -> bool:
        """Fold and answer a turn. Call ``folded`` in between, when the next turn may begin.

        Returns whether it is done; if not, the process is about to end.
        """

    def waits_for(self, batch: Batch) -> bool:
        """Whether a batch cannot be folded at once, so that it would delay the others of its turn."""

    def tick(self, partition: int) -> int:
        """Return the stream time to which a partition without new records may go on, ms; 0: it must wait."""

    def skipped(self, tp: TopicPartition) -> Mapping[int, str]:
        """Return the offsets of a partition that are left out, each with the reason."""

    def revoked(self, partition: int) -> None:
        """Let go of a partition."""

    def restore(self, tp: TP, records: Sequence[KafkaRecord]) -> None:
        """Write changelog records to the table, with the offset of the last record."""

    def lost(self, tp: TP, records: int) -> None:
        """Count records of an input that were deleted before they were read."""

    def failed(self, exc: BaseException) -> None:
        """End the process, because it cannot go on after this error."""
