"""A worker's metrics. Counters count once, after the commit point. Gauges are views of stored sums."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic, time
from typing import Final

from prometheus_client.core import Metric

from state.effects import Changes, Effects
from state.fence import FATES, INPUT_FATES, Fence
from state.policies import Policies
from streams.metrics.catalogue import CATALOGUE, DELAYS, PREFIX, WAITS
from streams.metrics.exposition import OF_STREAMS
from streams.metrics.latency import Latencies
from streams.metrics.metric import Sample
from streams.metrics.slots import Slots, named
from streams.metrics.snapshot import PartitionSnapshot
from streams.metrics.stage import Folding, Sampler, by_topic
from streams.records.decoding import REASONS

#: Label of all streams without series of their own. No stream has this name, and Prometheus drops an empty label.
HIDDEN: Final = ""
#: Names of the input topics in labels, independent of their names in Kafka.
INPUTS: Final = ("forecasts", "outcomes")
#: The fates of records, each with its topic.
RECORD_FATES: Final = FATES[:INPUT_FATES]
#: An expiry is early if its row was due later than this after the present time, s. Clocks may differ by less.
EARLY: Final = 600
#: Origin of a label that was learnt at maturity, with the fates that count it.
MATURED: Final = {"reported": "matured", "implied": "implied"}
NO_POLICIES: Final = Policies()
#: The counters by stream: forecasts answered, events resolved, events that taught nothing.
ANSWERED, SCORED, UNTAUGHT = "answered_forecasts", "scored_events", "untaught_events"


#: Counters, with the series that start at zero.
_COUNTERS: Final[dict[str, list[tuple[str, ...]]]] = {
    "records": by_topic(RECORD_FATES),
    "passed_records": [(topic,) for topic in INPUTS],
    "dead_letters": [(topic, reason) for topic in INPUTS for reason in REASONS],
    "expired": [("forecast",), ("outcome",)],
    "matured_events": [(label,) for label in MATURED],
    "outputs": [("calibrated",), ("resolved",), ("dead-letters",)],
    "opened_partitions": [],
    "expired_early": [],
    "overdue_labels": [],
    "belated_forecasts": [],
    "contradicting_outcomes": [],
    "far_off_times": [(topic,) for topic in INPUTS],
}


class Gauges(Folding):
    """The metrics of one worker.

    ``most_streams``: the most streams with series of their own, see `Slots`. Others take no time in a scrape.
    ``sampler``: reads what is not in the state: lag, buffers, store sizes, readiness.
    ``policies``: how streams are configured. Named streams have series. Ages of outcomes are compared with the
    settings.
    ``clock``: returns the time, s; decides when slots change hands.
    ``app``: label of every series that is not of one stream; empty: no label.
    """

    def __init__(
        self,
        most_streams: int,
        version: str,
        sampler: Sampler,
        policies: Policies = NO_POLICIES,
        clock: Callable[[], float] = monotonic,
        app: str = "",
    ) -> None:
        #: The streams with series of their own.
        self.slots = Slots(most_streams, named(policies), clock)
        self._gained: list[str] = []
        self._policies = policies
        #: What each counter by stream has counted, by the stream's label.
        self._by_stream: dict[str, dict[str, int]] = {name: {} for name in (ANSWERED, SCORED, UNTAUGHT)}
        self._waited, self._delayed = Latencies(WAITS), Latencies(DELAYS)
        self._latencies = {"forecast_latency_seconds": self._waited, "label_delay_seconds": self._delayed}
        super().__init__(INPUTS, CATALOGUE, version, sampler, _COUNTERS, app)
        others = {*self._counters, *self._histograms, *self._latencies, *OF_STREAMS}
        self._always = [name for name in CATALOGUE if name not in others]

    # -- what the worker reports -----------------------------------------------------------------------------------

    def assigned(self, partition: int, held: PartitionSnapshot) -> None:
        """Take up a partition whose state was restored."""
        self._held[partition] = held
        for stream in held.streams():
            if not self.slots.take(stream):
                del held.rows[stream]
        self._counters["opened_partitions"].inc()
        # Counters start at zero, so that increase() sees the first events. A new stream's start with its first batch.
        for stream in (*held.streams(), *([HIDDEN] if self.slots.hidden_streams else [])):
            policy = self._policies.of(stream) if stream else None
            untaught = policy is not None and (policy.entity or policy.label_rate)
            for name in (ANSWERED, SCORED, *([UNTAUGHT] if untaught else [])):
                self._by_stream[name].setdefault(stream, 0)

    def restored(self, partition: int, held: PartitionSnapshot) -> None:
        """Take the rows of streams that gained a slot, see `gained`."""
        if partition in self._held:
            self._held[partition].rows.update(held.rows)

    def gained(self) -> list[str]:
        """Return the streams that gained a slot since the last call. Their rows have not been read yet."""
        gained, self._gained = self._gained, []
        return gained

    def held(self) -> dict[int, PartitionSnapshot]:
        """Return the snapshot of each partition, for other readers. Rows are immutable bytes."""
        return dict(self._held)

    def applied(self, partition: int, effects: Effects, fence: Fence) -> None:
        """Count a batch that is in the journal."""
        self.updated = time()
        self._fared("records", RECORD_FATES, effects.fates)
        self._left(dict(zip(FATES, effects.fates, strict=True)))
        self._rejected(effects.rejected)
        for topic, n in zip(INPUTS, effects.passed, strict=True):
            if n:
                self._counters["passed_records"].labels(topic).inc(n)
        self._delayed.observe(effects.delays)
        if effects.lapsed:
            soon = (self.updated + EARLY) * 1000
            self._counters["expired_early"].inc(sum(due > soon for due in effects.lapsed))
        self._count(ANSWERED, effects.answered)
        self._count(SCORED, effects.resolved)
        self._counters["overdue_labels"].inc(sum(effects.overdue.values()))
        self._counters["belated_forecasts"].inc(effects.belated)
        self._count(UNTAUGHT, effects.untaught)
        self._counters["contradicting_outcomes"].inc(effects.contradicting)
        held = self._held.get(partition)
        if held is None:
            held = self._held[partition] = PartitionSnapshot(fence)
        held.fence = fence
        events = Counter(effects.answered)
        events.update(effects.resolved)
        for loses, gains in self.slots.active(events):
            self._gained.append(gains)
            for each in self._held.values():
                each.rows.pop(loses, None)
            for counted in self._by_stream.values():
                counted.pop(loses, None)
                counted.setdefault(gains, 0)

    def again(self, partition: int, topics: Sequence[int], fence: Fence) -> None:
        """Count records that were folded again after a crash, by topic. No other counter counts them."""
        if (held := self._held.get(partition)) is not None:
            held.fence = fence
        self._redelivered(topics)

    def written(self, partition: int, changes: Changes) -> None:
        """Take the rows of a checkpoint."""
        if (held := self._held.get(partition)) is not None:
            held.applied(changes, self._policies, self.slots.take, self.slots.hides)

    def _left(self, fates: Mapping[str, int]) -> None:
        """Count the rows that expired, and the events that matured."""
        for kind in ("forecast", "outcome"):
            if fates[f"expired_{kind}s"]:
                self._counters["expired"].labels(kind).inc(fates[f"expired_{kind}s"])
        for label, fate in MATURED.items():
            if fates[fate]:
                self._counters["matured_events"].labels(label).inc(fates[fate])

    def _count(self, name: str, found: Mapping[str, int]) -> None:
        """Add up what was counted by stream."""
        counted = self._by_stream[name]
        for stream, n in found.items():
            label = stream if stream and self.slots.take(stream) else HIDDEN
            counted[label] = counted.get(label, 0) + n

    def far_off(self, topic: int, n: int) -> None:
        """Count records of an input whose time is far off."""
        self._counters["far_off_times"].labels(INPUTS[topic]).inc(n)

    def waited(self, since: Iterable[int]) -> None:
        """Note that forecasts with these Kafka timestamps (ms) were answered.

        A timestamp ahead of this clock counts as 0 s.
        """
        now = int(time() * 1000)
        self._waited.observe(now - stamp for stamp in since)

    # -- what Prometheus reads -------------------------------------------------------------------------------------

    def counted(self) -> dict[str, dict[str, int]]:
        """Return what each counter by stream has counted."""
        return {name: counted.copy() for name, counted in self._by_stream.items()}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the worker that are not counters and do not belong to one stream."""
        for name, latencies in self._latencies.items():
            yield latencies.family(PREFIX + name, CATALOGUE[name].help)
        yield from super().collect()

    def _samples(self) -> Iterator[Sample]:
        held: list[PartitionSnapshot] = list(self._held.values())
        yield "pending_events", (), sum(partition.fence.pending for partition in held)
        yield "waiting_outcomes", (), sum(partition.fence.waiting for partition in held)
        yield "early_outcomes", (), sum(partition.fence.early for partition in held)
        yield "held_partitions", (), len(held)
        yield "hidden_streams", (), len(self.slots.hidden_streams)
        yield "oldest_row_seconds", (), max((_oldest(partition.fence) for partition in held), default=0.0)
        yield from super()._samples()


def _oldest(fence: Fence) -> float:
    """Return the age of the oldest row in any expiry queue, in s of event time."""
    waiting = [queue for queue in list(fence.queues.values()) if queue.head < queue.tail]
    return max((fence.stream_time - (queue.due - queue.ttl_ms) for queue in waiting), default=0) / 1000
