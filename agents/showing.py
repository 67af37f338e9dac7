"""Keeps the gauges up to date with the served partitions: with their rows, batches and checkpoints."""

from collections.abc import Iterable, Mapping
from typing import Any

from agents.notices import Notices
from agents.served import ServedPartition, committed
from state import formats
from state.effects import Changes
from state.fence import Fence
from state.policies import Policies
from streams.faust.state_table import StateTable
from streams.metrics import snapshot
from streams.metrics.gauges import Gauges
from streams.metrics.snapshot import PartitionSnapshot


class Showing:
    """Passes rows to the gauges.

    ``notices``: get overdue labels and withheld streams.
    """

    def __init__(self, table: StateTable, gauges: Gauges, policies: Policies, notices: Notices) -> None:
        self._table, self._gauges, self._policies, self._notices = table, gauges, policies, notices

    def taken_up(self, partition: int, fence: Fence) -> None:
        """Show a partition that was taken up; raises `CorruptFrame` if this build does not read its rows."""
        formats.check(lambda prefix: next(iter(self._table.store.range(partition, prefix)), None), self._policies)
        self._take_slots(partition)
        self._gauges.assigned(partition, self._held(partition, self._gauges.slots.shown, fence))

    def _take_slots(self, partition: int) -> None:
        """Give slots to the streams of a partition until no slot is left.

        A partition may hold rows of any number of streams, and all partitions wait while it is taken up. So at most as
        many streams are read as there are slots.
        """
        for streams in snapshot.present(lambda prefix: self._table.store.range(partition, prefix), self._policies):
            all(map(self._gauges.slots.take, streams))  # until a stream finds no slot

    def _held(self, partition: int, streams: Iterable[str], fence: Fence) -> PartitionSnapshot:
        """Return the stored rows of some streams of a partition, for the gauges."""
        return snapshot.read(
            lambda key: self._table.store.read(partition, key), self._policies, streams, committed(fence)
        )

    def written(self, number: int, changes: Changes, opened: Mapping[int, ServedPartition]) -> None:
        """Show what a checkpoint wrote."""
        self._gauges.written(number, changes)
        if gained := self._gauges.gained():  # slots that now belong to another stream, whose rows have not been read
            for each, served in opened.items():
                self._gauges.restored(each, self._held(each, gained, served.engine.fence))

    def count(self, number: int, effects: Any, fence: Fence) -> None:  # noqa: ANN401 - as the engine makes them
        """Count the effects of a batch that is now in the journal."""
        for stream, n in effects.overdue.items():
            self._notices.overdue(stream, n)
        for stream, begins in effects.withheld.items():
            self._notices.withheld(stream, number, begins=begins)
        self._gauges.applied(number, effects, fence)
