"""What faults strike: brokers, proxies, workers and load; and how a fault says that a promise was broken."""

from collections.abc import Iterator
from dataclasses import dataclass

from aiokafka.structs import TopicPartition

from tests.chaos.cluster import Cluster
from tests.chaos.feed import Feed
from tests.chaos.fleet import Fleet
from tests.chaos.judge import Verdict, judge
from tests.chaos.proxy import Proxy
from tests.e2e.world import World

#: Longest wait for a worker to meet with what was ordered, s.
PATIENCE = 120.0


class BrokenPromiseError(AssertionError):
    """A worker did what it must not; the message says what. The campaign notes it and goes on."""


@dataclass
class Stage:
    """What faults strike."""

    world: World
    cluster: Cluster
    #: Those of each worker, one to each broker.
    proxies: list[list[Proxy]]
    fleet: Fleet
    feed: Feed

    def groups(self) -> Iterator[tuple[str, list[TopicPartition]]]:
        """Yield each consumer group and the partitions that it reads, in the order in which records pass them."""
        w = self.world
        inputs = w.settings.forecasts, w.settings.outcomes
        yield w.name, [TopicPartition(name, n) for name in inputs for n in range(w.partitions)]

    def judge(self) -> Verdict:
        """Judge what was left, when all that was sent is applied."""
        return judge(self.world)
