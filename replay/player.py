"""A replay's player: the workers' engine on the events of one partition, for several configurations side by side.

Nothing is stored. The first configuration serves, and the others challenge it, so that all share one ledger. In the
place of what workers count, or beside it, an observer writes down what was answered and what happened; `replay.score`
reads that.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from replay.column_file import Tape
from replay.configuration import Configuration
from replay.partition_result import PartitionResult
from replay.taping import Taping
from state.counting import Counting
from state.effects import Changes
from state.engine import Partition
from state.events import Event, Output, Rejected
from state.ledger import IMMATURE, WAITING, Row
from state.service import Service


class _Beside:
    """The observer of a replay that makes rows, too: what it writes down, and what workers count."""

    counting: Counting

    def __init__(self, taping: Taping) -> None:
        self._taping = taping

    def opened(self, service: Service) -> None:
        self.counting.opened(service)

    def issued(self, service: Service, row: Row, x: Sequence[float], stream_time: int) -> None:
        self.counting.issued(service, row, x, stream_time)
        self._taping.issued(service, row, x, stream_time)

    def parked(self, event_id: str, ts: int) -> None:
        self._taping.parked(event_id, ts)

    def labelled(self, service: Service, row: Row, y: float, ts: int) -> None:
        self.counting.labelled(service, row, y, ts)

    def resolved(self, service: Service, row: Row, event_id: str, applied: int, now_ms: int) -> int:
        self._taping.resolved(service, row, event_id, applied, now_ms)
        return self.counting.resolved(service, row, event_id, applied, now_ms)

    def revised(self, service: Service, row: Row, event_id: str, was: float, now_ms: int) -> None:
        self.counting.revised(service, row, event_id, was, now_ms)
        self._taping.revised(service, row, event_id, was, now_ms)

    def expired(self, service: Service, row: Row, event_id: str) -> None:
        self.counting.expired(service, row, event_id)
        self._taping.expired(service, row, event_id)


class Player:
    """Plays events of one partition to several configurations that agree in `Configuration.reading`.

    They agree in when labels are learnt, too, so an event has one label at a time for all.

    ``configurations``: at least one.
    ``directory``: where the tape is kept.
    ``rejected``: called with each dead letter.
    ``rows``: whether `rows` is asked for at the end; then there is one configuration, with challengers of its own.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        directory: Path,
        rejected: Callable[[Rejected], None] = lambda _: None,
        *,
        rows: bool = False,
    ) -> None:
        plans = [each.policies for each in configurations]
        self._rejected = rejected
        self._tape = Tape(directory)
        self.played = PartitionResult(directory)
        self._taping = Taping(configurations, self._tape, self.played)
        self.streams = self._taping.streams
        if rows:
            both = _Beside(self._taping)
            self.partition = Partition(plans[0], None, both)
            both.counting = Counting(plans[0], self.partition.services)
        else:
            self.partition = Partition(plans[0], None, self._taping, plans)
        self.played.fates = self.partition.fence.fates

    def play(self, events: Iterable[Event]) -> list[Output]:
        """Apply events in order, each topic's in the order of its offsets and none twice; return what answers them."""
        partition, dead = self.partition, self.played.dead
        partition.begin()
        outputs = partition.apply(events)
        rejected = partition.end().rejected
        for reason in rejected:
            dead[reason] = dead.get(reason, 0) + 1
        if rejected:
            for output in outputs:
                if isinstance(output, Rejected):
                    self._rejected(output)
        self._tape.spill()
        return outputs

    def run_on(self, now: int) -> None:
        """Let stream time run on to a moment, ms, without a record, and all forecasts mature that are due then."""
        self.partition.begin()
        self.partition.tick(now, len(self.partition.rows))
        self._tape.spill()

    def rows(self) -> Changes:
        """Return all rows that a worker would have now; nothing can be played after that."""
        return self.partition.checkpoint()

    def end(self) -> PartitionResult:
        """Look at every calibrator a last time, write the tape, and return what was played."""
        partition, played = self.partition, self.played
        self._taping.end()
        played.records = partition.fence.applied
        played.immature = sum(row is not None and row.status in (IMMATURE, WAITING) for row in partition.rows.values())
        self._tape.close()
        return played
