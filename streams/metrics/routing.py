"""What intake and the router tell Prometheus."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from state import routes
from state.effects import Effects
from state.fence import Fence
from streams.metrics import catalogue
from streams.metrics.catalogue import CATALOGUE, LATENCIES, PREFIX, SIZES, STAGES
from streams.metrics.exposition import labelled
from streams.metrics.sample import Sample
from streams.records import decoding, routing

#: Metrics that a worker has, too, with the same meaning.
SHARED: Final = (
    "dead_letters",
    "outputs",
    "redelivered_records",
    "batch_seconds",
    "batch_records",
    "stage_seconds",
    "ready",
    "registry_waiting_seconds",
    "build_info",
    "failed_logins",
    "lost_records",
    "held_partitions",
    "last_update_timestamp_seconds",
    "raw_answers",
    "unlike_outputs",
    "far_off_times",
    "uncarried",
    "recovery_remaining_records",
    "recovery_restored_rows",
    "recovery_seconds",
    "recovery_left_seconds",
    "buffered_records",
    "buffered_bytes",
    "fetch_paused",
    "lag_records",
    "held_back_records",
    "held_back_seconds",
    "state_rows",
    "state_bytes",
)
OWN: Final = {
    metric.name: metric
    for metric in (
        catalogue.Metric(
            "routed_records", "counter", ("topic", "fate"), "Routes and labels applied, by what became of them"
        ),
        catalogue.Metric("routed_events", "gauge", (), "Events that labels are waited for"),
        catalogue.Metric("unrouted_events", "gauge", (), "Events whose label waits for a forecast"),
        catalogue.Metric(
            "expired_routes",
            "counter",
            ("kind",),
            "Events that are waited for no longer: forecast, or only labelled",
        ),
        catalogue.Metric(
            "mapped_records",
            "counter",
            ("source", "fate"),
            "Source records read, by what became of them: sent on, passed over by `when`, or dead",
        ),
    )
}
KNOWN: Final = {**CATALOGUE, **OWN}
#: The names of the router's inputs, for those that a worker's have.
INPUTS: Final = {"forecasts": "routes", "outcomes": "labels"}
TOPICS: Final = ("routes", "labels")


class Stage(Collector):
    """What the metrics of intake and router have in common.

    Parameters
    ----------
    version
        Version of the program.
    sampler
        Reads what is not in the state.
    counters
        Names of what counts by itself.
    histograms
        Edges of their buckets, by name.
    app
        The application, as a label of every series; empty: none has it.
    """

    def __init__(
        self,
        version: str,
        sampler: Callable[[], Iterable[Sample]],
        counters: Iterable[str],
        histograms: Mapping[str, Sequence[float]],
        app: str = "",
    ) -> None:
        self._app = app
        disable_created_metrics()  # type: ignore[no-untyped-call]  # as a worker's
        self.registry = CollectorRegistry()
        self._version = version
        self._sampler = sampler
        self._updated = 0.0
        self._counters = {
            name: Counter(PREFIX + name, KNOWN[name].help, KNOWN[name].labels, registry=self.registry)
            for name in counters
        }
        self._histograms = {
            name: Histogram(PREFIX + name, KNOWN[name].help, KNOWN[name].labels, buckets=edges, registry=self.registry)
            for name, edges in histograms.items()
        }

    def produced(self, topic: str, n: int) -> None:
        """Count acknowledged records of a topic, by its label."""
        self._counters["outputs"].labels(topic).inc(n)

    def batch(self, records: int, seconds: float) -> None:
        """Note the size of a batch and how long it took, until its last acknowledgement."""
        self._histograms["batch_records"].observe(records)
        self._histograms["batch_seconds"].observe(seconds)

    def exposition(self) -> bytes:
        """Return everything in Prometheus's text format."""
        return labelled(generate_latest(self.registry), self._app)

    def collect(self) -> Iterator[Metric]:
        """Yield what does not count by itself."""
        found: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, labels, value in self._samples():
            metric = KNOWN[name]
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = found.setdefault(name, kind(PREFIX + name, metric.help, labels=metric.labels))
            family.add_metric(labels, value)
        yield from found.values()

    def describe(self) -> Iterable[Metric]:
        """Tell the registry nothing, so that registering does not collect."""
        return ()

    def _samples(self) -> Iterator[Sample]:
        yield "build_info", (self._version,), 1.0
        if self._updated:
            yield "last_update_timestamp_seconds", (), self._updated
        yield from self._sampler()


class RouteGauges(Stage):
    """The metrics of one router; see `streams.metrics.gauges.Gauges`.

    Parameters
    ----------
    version
        Version of the program.
    sampler
        Reads what is not in the state.
    app
        The application, as `Stage` takes it.
    """

    def __init__(self, version: str, sampler: Callable[[], Iterable[Sample]], app: str = "") -> None:
        super().__init__(
            version,
            sampler,
            ("routed_records", "expired_routes", "dead_letters", "outputs", "redelivered_records"),
            {"batch_seconds": LATENCIES, "batch_records": SIZES, "stage_seconds": LATENCIES},
            app,
        )
        self._held: dict[int, Fence] = {}
        self._stages = {step: self._histograms["stage_seconds"].labels(name) for step, name in STAGES.items()}
        for fate in routes.FATES[: routes.INPUT_FATES]:
            self._counters["routed_records"].labels(*fate.split("_", 1))
        for topic in TOPICS:
            self._counters["redelivered_records"].labels(topic)
            for reason in routing.REASONS:
                self._counters["dead_letters"].labels(topic, reason)
        for kind in ("routes", "labels"):
            self._counters["expired_routes"].labels(kind)
        self.registry.register(self)

    # -- what the router reports -----------------------------------------------------------------------------------

    def assigned(self, partition: int, fence: Fence) -> None:
        """Take up a partition whose state was restored."""
        self._held[partition] = fence

    def revoked(self, partition: int) -> None:
        """Let go of a partition."""
        self._held.pop(partition, None)

    def partitions(self) -> list[int]:
        """Return the partitions held."""
        return list(self._held)

    def applied(self, partition: int, effects: Effects, fence: Fence) -> None:
        """Count a batch that is in the journal."""
        self._updated = time()
        self._held[partition] = fence
        for i, (fate, n) in enumerate(zip(routes.FATES, effects.fates, strict=False)):
            if n and i < routes.INPUT_FATES:
                self._counters["routed_records"].labels(*fate.split("_", 1)).inc(n)
            elif n and fate.startswith("expired_"):
                self._counters["expired_routes"].labels(fate.removeprefix("expired_")).inc(n)
        for topic, reason in effects.rejected:
            self._counters["dead_letters"].labels(TOPICS[topic], reason).inc()

    def again(self, partition: int, topics: Sequence[int], fence: Fence) -> None:
        """Count records that were folded again after a crash, by their topics."""
        self._held[partition] = fence
        for number, name in enumerate(TOPICS):
            self._counters["redelivered_records"].labels(name).inc(topics.count(number))

    def stage(self, step: int, seconds: float) -> None:
        """Note how long a numbered step of a batch took."""
        self._stages[step].observe(seconds)

    def waited(self, since: Iterable[int]) -> None:
        """Do nothing: forecasts are answered by workers."""

    def _samples(self) -> Iterator[Sample]:
        held = [fence.fates for fence in list(self._held.values())]
        yield "held_partitions", (), len(held)
        yield "routed_events", (), sum(each[routes.OPENED] - each[routes.EXPIRED_ROUTES] for each in held)
        left = routes.EARLY_JOINED, routes.EXPIRED_LABELS
        yield "unrouted_events", (), sum(each[routes.EARLY_OPENED] - sum(each[one] for one in left) for each in held)
        for name, labels, value in super()._samples():
            yield name, tuple(INPUTS.get(label, label) for label in labels), value


class IntakeGauges(Stage):
    """The metrics of one intake.

    Parameters
    ----------
    version
        Version of the program.
    sources
        Names of the sources.
    sampler
        Reads lag and readiness.
    app
        The application, as `Stage` takes it.
    """

    def __init__(
        self, version: str, sources: Iterable[str], sampler: Callable[[], Iterable[Sample]], app: str = ""
    ) -> None:
        super().__init__(
            version,
            sampler,
            ("mapped_records", "dead_letters", "outputs", "far_off_times"),
            {"batch_seconds": LATENCIES, "batch_records": SIZES},
            app,
        )
        for source in sources:
            self._counters["far_off_times"].labels(source)
            for fate in ("sent", "passed", "dead"):
                self._counters["mapped_records"].labels(source, fate)
            for reason in decoding.REASONS | routing.REASONS:
                self._counters["dead_letters"].labels(source, reason)
        self.registry.register(self)

    def mapped(self, source: str, fate: str, reason: str, records: int) -> None:
        """Count source records: sent, passed over or dead, and then why."""
        self._counters["mapped_records"].labels(source, fate).inc(records)
        if reason:
            self._counters["dead_letters"].labels(source, reason).inc(records)

    def far_off(self, source: str, n: int) -> None:
        """Count records of a source whose time lies far off."""
        self._counters["far_off_times"].labels(source).inc(n)

    def batch(self, records: int, seconds: float) -> None:
        """Note it, and that there was one just now."""
        self._updated = time()
        super().batch(records, seconds)
