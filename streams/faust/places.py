"""Where the inputs of partitions are read on when a worker takes these up, and what must not be gone on from."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from faust.types import TP

from state.journal import NONE, Journal
from streams.faust.inputs import RESTORE, DataLossError, Inputs


@dataclass
class Places:
    """Partitions that are taken up, and the topic-partitions of their inputs."""

    #: Who serves them.
    inputs: Inputs
    #: Of each partition the next offset of both inputs after the last checkpoint, and the journal since.
    taken_up: dict[int, tuple[tuple[int, int], Journal]]
    #: The group's offsets, which are for people: what the state says counts.
    committed: Mapping[TP, int | None]
    #: Where the inputs begin and end.
    earliest: Mapping[TP, int]
    ends: Mapping[TP, int]

    def applied(self, tp: TP) -> tuple[int, int]:
        """Return the next offset of an input after the last checkpoint, and after the journal."""
        topic, (fence, journal) = self.inputs.sources.index(tp.topic), self.taken_up[tp.partition]
        return fence[topic], journal.ends(fence)[topic]

    async def whole(self, highwaters: Callable[..., Awaitable[Mapping[TP, int]]]) -> None:
        """Raise `DataLossError` where the state of a partition is gone, and its inputs cannot give it again."""
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
        """Return from where on records were deleted that are to be read.

        Raises DataLossError if an input ends before what was applied of it.
        """
        found = {}
        for tp, committed in self.committed.items():
            fence, folded = self.applied(tp)
            if folded > self.ends[tp]:
                raise DataLossError(
                    f"the state of {tp.topic}/{tp.partition} has applied offset {folded - 1}, but the topic ends at "
                    f"{self.ends[tp]}: was the topic made anew? Restore it, or give the worker another TRUEUP_APP_ID"
                )
            applied = fence or committed or 0
            if applied < self.earliest[tp] and (fence or committed is not None):
                found[tp] = applied
        return found

    async def forgo(self, tp: TP) -> None:
        """Skip the journal since the last checkpoint if it cannot be folded again; its answers stand, unlearnt."""
        fences, journal = self.taken_up[tp.partition]
        if journal.entries:
            await self.inputs.forgo(tp.partition, journal)
            self.taken_up[tp.partition] = journal.ends(fences), Journal(journal.number, (NONE, NONE), [])

    def positions(self) -> dict[TP, int]:
        """Return the first offset to read of each input: the last that is in the rows, to see that it is the same."""
        found = {}
        for tp in self.committed:
            (fence, _), earliest = self.applied(tp), self.earliest[tp]
            _, journal = self.taken_up[tp.partition]
            known = journal.last[self.inputs.sources.index(tp.topic)] != NONE and fence > earliest
            found[tp] = fence - 1 if known else max(fence, earliest)
        return found

    def uncommitted(self) -> dict[TP, int]:
        """Return offsets to commit where the committed ones are not within what was applied.

        They say how far all is answered. Nothing comes again that would bring them up to the state, and somebody may
        have set them ahead of it.
        """
        found = {}
        for tp, committed in self.committed.items():
            fence, folded = self.applied(tp)
            if committed is None or not fence <= committed <= folded:
                found[tp] = max(fence, self.earliest[tp])
        return found
