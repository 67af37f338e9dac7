"""Gauges that hold what a worker would after some events, without a worker."""

import random
from collections.abc import Iterable

from agents.status.pages import Pages
from agents.status.readings import Readings
from state import kinds
from state.engine import Partition
from state.events import Event, Forecast, Outcome
from state.fence import Fence
from state.kind import kind_of
from state.policies import Policies
from state.policy import Policy
from streams.config.settings import Settings
from streams.faust.progress import Recovery
from streams.metrics.gauges import Gauges
from streams.metrics.mirror import ChangeSource, Mirror, Standing
from streams.metrics.snapshot import PartitionSnapshot, by_stream
from tests.holding import hold


def learnt(policies: Policies, streams: Iterable[str], n: int, seed: int = 0) -> PartitionSnapshot:
    """Return what is held of a partition that has resolved ``n`` events of each stream; y is 1 with chance p²."""
    draw = random.Random(seed)
    events: list[Event] = []
    offset = 0
    names = list(streams)
    for i in range(n):
        for name in names:
            p = draw.random()
            events += [
                Forecast(offset, None, f"{name}-{i}", name, p, (), 1000 + offset),
                Outcome(offset, None, f"{name}-{i}", float(draw.random() < p * p), 2000 + offset),
            ]
            offset += 1
    events.append(Forecast(offset, None, "waits", names[0], 0.5, (), 9000 + offset))
    held = folded(policies, events)
    described = kinds.SCORES, kinds.WINDOWS, kinds.CALIBRATOR, kinds.COURSE
    for stream, rows in held.rows.items():
        held.rows[stream] = {key: row for key, row in rows.items() if kind_of(key) in described}
    return held


def folded(policies: Policies, events: list[Event]) -> PartitionSnapshot:
    """Return what is held of a partition after events."""
    stored: dict[bytes, bytes] = {}
    partition = Partition(policies, stored.get)
    for start in range(0, len(events), 1000):
        for key, row in partition.fold(events[start : start + 1000]).rows.items():
            if row is None:
                stored.pop(key, None)
            else:
                stored[key] = row
    fence = Fence.decode(stored[kinds.FENCE.key()])
    return PartitionSnapshot(fence, by_stream(stored), fence)


def renamed(held: PartitionSnapshot, name: str, names: Iterable[str]) -> PartitionSnapshot:
    """Return the same with one stream's rows under many names: a thousand streams without a thousand folds."""
    made = PartitionSnapshot(held.fence)
    for each in names:
        for key, row in held.rows[name].items():
            hold(made, kind_of(key), row, each, *kind_of(key).of(key)[1:])
    return made


def readings(
    *partitions: PartitionSnapshot,
    settings: Settings | None = None,
    ready: bool = True,
    recovery: Recovery | None = None,
) -> Readings:
    """Return readings of a worker that holds these partitions, numbered from 0."""
    gauges = Gauges(2000, "1.2.3", lambda: ())
    for n, held in enumerate(partitions):
        gauges.assigned(n, held)
    standing = Standing("" if ready else "no partition is served", recovery or Recovery())
    mirror = Mirror(ChangeSource(gauges.exposition, gauges, lambda: standing))
    mirror.refresh()
    return Readings(settings or Settings(), mirror, "1.2.3")


def pages(*partitions: PartitionSnapshot, policies: Policies | None = None) -> Pages:
    """Return the pages of such a worker."""
    return Pages(readings(*partitions, settings=None if policies is None else Settings(policies=policies)))


#: Streams of one probability, by the default calibrator.
DEFAULT = Policies(default=Policy())
