"""The offsets from which a worker reads partitions that it takes up, and the cases in which it must not go on."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from faust.types import TP

from state.journal import NONE, Journal
from streams.faust.inputs import ANEW, RESTORE, DataLossError, Inputs


@dataclass
class Places:
    """Partitions that a worker takes up, and the topic-partitions of their inputs."""

    #: The server of the partitions.
    inputs: Inputs
    #: By partition: the next offsets of both inputs after the last checkpoint, and the journal since then.
    taken_up: dict[int, tuple[tuple[int, int], Journal]]
    #: The group's committed offsets. They are only for people; the offsets in the state decide.
    committed: Mapping[TP, int | None]
    #: Where the inputs begin and end.
    earliest: Mapping[TP, int]
    ends: Mapping[TP, int]

    def applied(self, tp: TP) -> tuple[int, int]:
        """Return the next offset of an input after the last checkpoint, and after the journal."""
        topic, (fence, journal) = self.inputs.sources.index(tp.topic), self.taken_up[tp.partition]
        return fence[topic], journal.ends(fence)[topic]

    async def whole(self, highwaters: Callable[..., Awaitable[Mapping[TP, int]]]) -> None:
        """Raise `DataLossError` if the state of a partition is gone, and its inputs cannot rebuild it."""
        empty = {n for n, (fence, journal) in self.taken_up.items() if not any(journal.ends(fence))}
        bare = [tp for tp in self.committed if self.earliest[tp] and tp.partition in empty]
        journals = {TP(self.inputs.settings.journal, tp.partition): tp for tp in bare}
        for journal, end in (await highwaters(*journals) if journals else {}).items():
            if end:
                tp = journals[journal]
                raise DataLossError(
                    f"partition {tp.partition} was served before, as {journal.topic} has {end} entries of it, and its "
                    f"state is gone: records of {tp.topic} before {self.earliest[tp]} are deleted, so it cannot be "
                    f"derived again. {RESTORE}"
                )

    def lost(self) -> dict[TP, int]:
        """Return the first offsets of records that should be read but were deleted.

        Raises DataLossError if an input now ends before records that were applied.
        """
        found = {}
        for tp, committed in self.committed.items():
            fence, folded = self.applied(tp)
            if folded > self.ends[tp]:
                raise DataLossError(
                    f"the state of {tp.topic}/{tp.partition} has applied offset {folded - 1}, but the topic ends at "
                    f"{self.ends[tp]}: {ANEW}"
                )
            applied = fence or committed or 0
            if applied < self.earliest[tp] and (fence or committed is not None):
                found[tp] = applied
        return found

    async def forgo(self, tp: TP) -> None:
        """Skip the journal since the last checkpoint if it cannot be folded again.

        Its answers remain, but nothing is learnt from their records.
        """
        fences, journal = self.taken_up[tp.partition]
        if journal.entries:
            await self.inputs.forgo(tp.partition, journal)
            self.taken_up[tp.partition] = journal.ends(fences), Journal(journal.number, (NONE, NONE), [])

    def positions(self) -> dict[TP, int]:
        """Return the first offset to read of each input: the last record in the rows, to check that it is the same."""
        found = {}
        for tp in self.committed:
            (fence, _), (_, journal) = self.applied(tp), self.taken_up[tp.partition]
            known = journal.last[self.inputs.sources.index(tp.topic)] != NONE
            found[tp] = max(fence - known, self.earliest[tp])
        return found

    def uncommitted(self) -> dict[TP, int]:
        """Return the offsets to commit for inputs whose committed offset does not fit the state.

        The committed offset says how far all records are answered. It may be behind the state, with no new record to
        move it. Or somebody has set it ahead of the state.
        """
        found = {}
        for tp, committed in self.committed.items():
            fence, folded = self.applied(tp)
            if committed is None or not fence <= committed <= folded:
                found[tp] = max(fence, self.earliest[tp])
        return found
