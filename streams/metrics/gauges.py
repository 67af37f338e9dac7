"""What a worker tells Prometheus. Counters count once, after the commit point; gauges are views of stored sums."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic, time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from state.effects import Changes, Effects
from state.fence import FATES, Fence
from state.policy import Policies
from streams.metrics.catalogue import CATALOGUE, DELAYS, LATENCIES, PREFIX, RECORD_FATES, SIZES, STAGES, WAITS
from streams.metrics.exposition import OF_STREAMS, labelled
from streams.metrics.latency import Latencies
from streams.metrics.sample import Sample
from streams.metrics.slots import Slots, named
from streams.metrics.snapshot import PartitionSnapshot
from streams.records.decoding import REASONS

#: Counts all streams that have no series of their own. No stream has this name, and Prometheus drops an empty label.
HIDDEN: Final = ""
#: The input topics as labels name them, whatever they are called in Kafka.
INPUTS = ("forecasts", "outcomes")
#: By how much a row must be due in the future, by this clock, for its expiry to count as early, s: clocks may differ.
EARLY: Final = 600
#: Where the label of an event that was learnt at maturity came from, with the fates that count it.
MATURED = {"reported": "matured", "implied": "implied"}
NO_POLICIES: Final = Policies()


#: Reads now and here.
Sampler = Callable[[], Iterable[Sample]]


class Gauges(Collector):
    """The metrics of one worker.

    Parameters
    ----------
    most_streams
        Streams with series of their own, see `Slots`. Only their rows are held: the rest cost no time at a scrape.
    version
        Version of the program.
    sampler
        Reads what is not in the state: lag, buffers, store sizes, readiness.
    policies
        What streams are configured to do: those it names have series, and ages of outcomes are held against it.
    clock
        Returns the time, s; decides when slots change hands.
    app
        The application, as a label of every series that is not of one stream; empty: none has it.
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
        self._app = app
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a series beside every counter that says only when
        self.registry = CollectorRegistry()
        self._slots = Slots(most_streams, named(policies), clock)
        self._gained: list[str] = []
        self._version = version
        self._sampler = sampler
        self._policies = policies
        self._held: dict[int, PartitionSnapshot] = {}
        #: Forecasts answered and events resolved here, by label of their stream.
        self._answered: dict[str, int] = {}
        self._scored: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._waited, self._delayed = Latencies(WAITS), Latencies(DELAYS)
        self._updated = 0.0
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        buckets = {
            "batch_seconds": LATENCIES,
            "batch_records": SIZES,
            "stage_seconds": LATENCIES,
        }
        counters = ("records", "redelivered_records", "passed_records", "dead_letters", "expired", "matured_events")
        others = (
            "outputs",
            "opened_partitions",
            "expired_early",
            "withheld_letters",
            "overdue_labels",
            "belated_forecasts",
            "untaught_events",
            "far_off_times",
        )
        for name in (*counters, *others):
            self._counters[name] = Counter(
                PREFIX + name, CATALOGUE[name].help, CATALOGUE[name].labels, registry=self.registry
            )
        for name, edges in buckets.items():
            self._histograms[name] = Histogram(
                PREFIX + name, CATALOGUE[name].help, CATALOGUE[name].labels, buckets=edges, registry=self.registry
            )
        self._stages = {step: self._histograms["stage_seconds"].labels(name) for step, name in STAGES.items()}
        self._initialise()
        self.registry.register(self)

    def _initialise(self) -> None:
        """Start every series at zero, so that rate() sees the first increase."""
        for topic, fates in RECORD_FATES.items():
            for fate in fates:
                self._counters["records"].labels(topic, fate)
            for reason in REASONS:
                self._counters["dead_letters"].labels(topic, reason)
            self._counters["redelivered_records"].labels(topic)
            self._counters["passed_records"].labels(topic)
            self._counters["far_off_times"].labels(topic)
        for kind in ("forecast", "outcome"):
            self._counters["expired"].labels(kind)
        for label in MATURED:
            self._counters["matured_events"].labels(label)
        for topic in ("calibrated", "resolved", "dead-letters"):
            self._counters["outputs"].labels(topic)

    # -- what the worker reports -----------------------------------------------------------------------------------

    def assigned(self, partition: int, held: PartitionSnapshot) -> None:
        """Take up a partition whose state was restored."""
        self._held[partition] = held
        for stream in held.streams():
            if not self.shows(stream):
                held.drop(stream)
        self._counters["opened_partitions"].inc()
        # From zero, so that increase() sees the first events; a stream that is new starts with its first batch.
        for stream in (*held.streams(), *([HIDDEN] if self.hidden else [])):
            self._answered.setdefault(stream, 0)
            self._scored.setdefault(stream, 0)
            if self._policies.quota_of(stream):
                self._refused.setdefault(stream, 0)

    def restored(self, partition: int, held: PartitionSnapshot) -> None:
        """Take the rows of streams that gained a slot, see `gained`."""
        if partition in self._held:
            self._held[partition].add(held)

    def gained(self) -> list[str]:
        """Return the streams that gained a slot from another since this was asked; their rows are yet to be read."""
        gained, self._gained = self._gained, []
        return gained

    def revoked(self, partition: int) -> None:
        """Let go of a partition, so that its new owner's series are the only ones."""
        self._held.pop(partition, None)

    def partitions(self) -> list[int]:
        """Return the partitions held."""
        return list(self._held)

    def shows(self, stream: str) -> bool:
        """Return whether a stream has series of its own, and give it a slot if one is free; see `Slots.take`."""
        return self._slots.take(stream)

    def shown(self) -> list[str]:
        """Return the streams that have a slot; see `Slots.shown`."""
        return self._slots.shown

    @property
    def hidden_streams(self) -> frozenset[str]:
        """The streams that came here and have no series; this worker's partitions may hold state of them."""
        return self._slots.hidden_streams

    @property
    def hidden(self) -> int:
        """How many streams came here and have no series of their own; see `Slots.hidden`."""
        return self._slots.hidden

    def held(self) -> dict[int, PartitionSnapshot]:
        """Return what is held of each partition, for other readers; its rows are bytes, which nobody changes."""
        return dict(self._held)

    @property
    def updated(self) -> float:
        """When a batch was last committed, s since 1970; 0 if none was."""
        return self._updated

    def applied(self, partition: int, effects: Effects, fence: Fence) -> None:
        """Count a batch that is in the journal."""
        self._updated = time()
        self._fared(dict(zip(FATES, effects.fates, strict=True)))
        for source, reason in effects.rejected:
            self._counters["dead_letters"].labels(INPUTS[source], reason).inc()
        for topic, n in zip(INPUTS, effects.passed, strict=True):
            if n:
                self._counters["passed_records"].labels(topic).inc(n)
        self._delayed.observe(effects.delays)
        if effects.lapsed:
            soon = (self._updated + EARLY) * 1000
            self._counters["expired_early"].inc(sum(due > soon for due in effects.lapsed))
        self._count(effects.answered, self._answered)
        self._count(effects.resolved, self._scored)
        self._count(effects.refused, self._refused)
        self._counters["withheld_letters"].inc(effects.withheld)
        self._counters["overdue_labels"].inc(sum(effects.overdue.values()))
        self._counters["belated_forecasts"].inc(effects.belated)
        self._counters["untaught_events"].inc(sum(effects.untaught.values()))
        held = self._held.get(partition)
        if held is None:
            held = self._held[partition] = PartitionSnapshot(fence)
        held.fence = fence
        for loses, gains in self._slots.active(_events(effects)):
            self._gained.append(gains)
            for each in self._held.values():
                each.drop(loses)
            for counted in (self._answered, self._scored, self._refused):
                counted.pop(loses, None)
                counted.setdefault(gains, 0)

    def again(self, partition: int, topics: Sequence[int], fence: Fence) -> None:
        """Count records that were folded again after a crash, by their topics; they count only as such."""
        if (held := self._held.get(partition)) is not None:
            held.fence = fence
        for number, name in enumerate(INPUTS):
            self._counters["redelivered_records"].labels(name).inc(topics.count(number))

    def written(self, partition: int, changes: Changes) -> None:
        """Take the rows of a checkpoint."""
        if (held := self._held.get(partition)) is not None:
            held.applied(changes, self._policies, self.shows)

    def _fared(self, fates: Mapping[str, int]) -> None:
        """Count what became of records and rows."""
        for topic, names in RECORD_FATES.items():
            for fate, counted in names.items():
                n = sum(fates[name] for name in counted)
                if n:
                    self._counters["records"].labels(topic, fate).inc(n)
        for kind in ("forecast", "outcome"):
            if fates[f"expired_{kind}s"]:
                self._counters["expired"].labels(kind).inc(fates[f"expired_{kind}s"])
        for label, fate in MATURED.items():
            if fates[fate]:
                self._counters["matured_events"].labels(label).inc(fates[fate])

    def _count(self, found: Mapping[str, int], counted: dict[str, int]) -> None:
        """Add up what was counted by stream."""
        for stream, n in found.items():
            label = stream if stream and self.shows(stream) else HIDDEN
            counted[label] = counted.get(label, 0) + n

    def far_off(self, topic: int, n: int) -> None:
        """Count records of an input whose time lies far off."""
        self._counters["far_off_times"].labels(INPUTS[topic]).inc(n)

    def produced(self, topic: str, n: int) -> None:
        """Count acknowledged outputs."""
        self._counters["outputs"].labels(topic).inc(n)

    def batch(self, records: int, seconds: float) -> None:
        """Note the size of a batch and how long it took."""
        self._histograms["batch_records"].observe(records)
        self._histograms["batch_seconds"].observe(seconds)

    def stage(self, step: int, seconds: float) -> None:
        """Note how long a numbered step of a batch took."""
        self._stages[step].observe(seconds)

    def waited(self, since: Iterable[int]) -> None:
        """Note that forecasts of these Kafka timestamps, ms, have been answered; one ahead of this clock waited 0 s."""
        now = int(time() * 1000)
        self._waited.observe(now - stamp for stamp in since)

    # -- what Prometheus reads -------------------------------------------------------------------------------------

    def exposition(self) -> bytes:
        """Return what is of the worker and not of one stream, in Prometheus's text format."""
        return labelled(generate_latest(self.registry), self._app)

    def counted(self) -> dict[str, dict[str, int]]:
        """Return what each counter by stream counted."""
        return {
            "answered_forecasts": self._answered.copy(),
            "scored_events": self._scored.copy(),
            "refused_records": self._refused.copy(),
        }

    def collect(self) -> Iterator[Metric]:
        """Yield what is of the worker and not of one stream, but for what counts by itself."""
        batches = {"forecast_latency_seconds": self._waited, "label_delay_seconds": self._delayed}
        for name, latencies in batches.items():
            yield latencies.family(PREFIX + name, CATALOGUE[name].help)
        families = {
            name: (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
                PREFIX + name, metric.help, labels=metric.labels
            )
            for name, metric in CATALOGUE.items()
            if not {name} & {*self._counters, *self._histograms, *batches, *OF_STREAMS}
        }
        for name, labels, value in self._samples():
            families[name].add_metric(labels, value)
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Tell the registry nothing, so that registering does not collect."""
        return ()

    def _samples(self) -> Iterator[Sample]:
        held = list(self._held.values())
        yield "build_info", (self._version,), 1.0
        yield "pending_events", (), sum(partition.fence.pending for partition in held)
        yield "waiting_outcomes", (), sum(partition.fence.waiting for partition in held)
        yield "early_outcomes", (), sum(partition.fence.early for partition in held)
        yield "held_partitions", (), len(held)
        yield "hidden_streams", (), self.hidden
        yield "oldest_row_seconds", (), max((_oldest(partition.fence) for partition in held), default=0.0)
        if self._updated:
            yield "last_update_timestamp_seconds", (), self._updated
        yield from self._sampler()


def _events(effects: Effects) -> dict[str, int]:
    """Return how many forecasts and outcomes of each stream a batch took."""
    return {
        s: effects.answered.get(s, 0) + effects.resolved.get(s, 0) for s in {**effects.answered, **effects.resolved}
    }


def _oldest(fence: Fence) -> float:
    """Return the age of the row that stands first in any expiry queue, s of event time."""
    waiting = [queue for queue in list(fence.queues.values()) if queue.head < queue.tail]
    return max((fence.stream_time - (queue.due - queue.ttl_ms) for queue in waiting), default=0) / 1000
