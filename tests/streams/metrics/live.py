"""A worker's partitions as gauges see them."""

from collections import defaultdict
from collections.abc import Iterable

from state import kinds
from state.effects import Effects
from state.engine import Partition
from state.events import Event
from state.policies import Policies
from state.policy import Policy
from state.scoring.scores import Scores
from streams.metrics.gauges import Gauges
from streams.metrics.snapshot import PartitionSnapshot, read


class Live:
    """Partitions folded by the real engine, as a worker does, and reported to gauges."""

    def __init__(self, gauges: Gauges, calibrator: str = "platt+minimax", policies: Policies | None = None) -> None:
        self.gauges = gauges
        patterns = [("numbers", Policy("quantile")), ("classes", Policy("multiclass"))]
        self._policies = gauges._policies = policies or Policies(patterns, Policy(calibrator))
        self.rows: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        self._engines: dict[int, Partition] = {}

    def fold(self, partition: int, events: Iterable[Event]) -> Effects:
        rows = self.rows[partition]
        if partition not in self._engines:
            self._engines[partition] = Partition(self._policies, rows.get)
            self.gauges.assigned(partition, PartitionSnapshot(self._engines[partition].fence))
        engine = self._engines[partition]
        effects = engine.fold(events)
        for key, row in effects.rows.items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        self.gauges.applied(partition, effects, engine.fence)
        self.gauges.written(partition, effects)
        return effects

    def stored(self, partition: int, *streams: str) -> PartitionSnapshot:
        return read(self.rows[partition].get, self._policies, streams, self._engines[partition].fence)

    def scores(self, partition: int, stream: str) -> Scores:
        rows = kinds.apart(self.rows[partition])
        return kinds.history(rows[kinds.SCORES.key(stream)], rows.get(kinds.WINDOWS.key(stream))).total
