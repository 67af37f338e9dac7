"""The common part of the metrics of worker, router and intake."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.metrics.catalogue import LATENCIES, PREFIX, SIZES, STAGES
from streams.metrics.exposition import labelled
from streams.metrics.metric import Metric as Exported
from streams.metrics.metric import Sample

#: Reads present values that are not in the state.
Sampler = Callable[[], Iterable[Sample]]
Family = CounterMetricFamily | GaugeMetricFamily


class StageMetrics(Collector):
    """The metrics of a process, in a registry of its own.

    ``known``: every metric that it may export, by name.
    ``sampler``: reads what is not in the state.
    ``counters``: counters, with the label values that start at zero, so that rate() sees the first increase.
    ``histograms``: edges of their buckets, by name.
    ``app``: label of every series; empty: no label.
    """

    def __init__(
        self,
        known: Mapping[str, Exported],
        version: str,
        sampler: Sampler,
        counters: Mapping[str, Iterable[tuple[str, ...]]],
        histograms: Mapping[str, Sequence[float]],
        app: str = "",
    ) -> None:
        self._app = app
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a series beside every counter that says only when
        self.registry = CollectorRegistry()
        self._known = known
        self._version = version
        self._sampler = sampler
        #: Metrics that are shown even without a sample.
        self._always: Sequence[str] = ()
        #: When a batch was last committed, s since 1970; 0 if none has been.
        self.updated = 0.0
        self._counters = {
            name: Counter(PREFIX + name, known[name].help, known[name].labels, registry=self.registry)
            for name in counters
        }
        self._histograms = {
            name: Histogram(PREFIX + name, known[name].help, known[name].labels, buckets=edges, registry=self.registry)
            for name, edges in histograms.items()
        }
        for name, several in counters.items():
            for labels in several:
                self._counters[name].labels(*labels)
        self.registry.register(self)

    def produced(self, topic: str, n: int) -> None:
        """Count acknowledged records of a topic, by its label."""
        self._counters["outputs"].labels(topic).inc(n)

    def batch(self, records: int, seconds: float) -> None:
        """Note the size of a batch, and how long it took up to its last acknowledgement."""
        self._histograms["batch_records"].observe(records)
        self._histograms["batch_seconds"].observe(seconds)

    def exposition(self) -> bytes:
        """Return the metrics that do not belong to one stream, in Prometheus's text format."""
        return labelled(generate_latest(self.registry), self._app)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are not counters."""
        found = {name: self._family(name) for name in self._always}
        for name, labels, value in self._samples():
            if name not in found:
                found[name] = self._family(name)
            found[name].add_metric(labels, value)
        yield from found.values()

    def _family(self, name: str) -> Family:
        metric = self._known[name]
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        return kind(PREFIX + name, metric.help, labels=metric.labels)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not collect."""
        return ()

    def _samples(self) -> Iterator[Sample]:
        yield "build_info", (self._version,), 1.0
        if self.updated:
            yield "last_update_timestamp_seconds", (), self.updated
        yield from self._sampler()


def by_topic(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the labels of records' fates. Each name begins with the topic."""
    return [tuple(name.split("_", 1)) for name in names]


class Folding(StageMetrics):
    """The metrics of a process with engines, one for each partition; as `StageMetrics`, with the inputs' names."""

    def __init__(
        self,
        inputs: Sequence[str],
        known: Mapping[str, Exported],
        version: str,
        sampler: Sampler,
        counters: Mapping[str, Iterable[tuple[str, ...]]],
        app: str = "",
    ) -> None:
        self._inputs = inputs
        #: What each partition has.
        self._held: dict[int, Any] = {}
        buckets = {"batch_seconds": LATENCIES, "batch_records": SIZES, "stage_seconds": LATENCIES}
        again = {"redelivered_records": [(topic,) for topic in inputs]}
        super().__init__(known, version, sampler, {**counters, **again}, buckets, app)
        self._stages = {step: self._histograms["stage_seconds"].labels(name) for step, name in STAGES.items()}

    def revoked(self, partition: int) -> None:
        """Drop a partition, so that only its new owner has its series."""
        self._held.pop(partition, None)

    def partitions(self) -> list[int]:
        """Return the partitions held."""
        return list(self._held)

    def stage(self, step: int, seconds: float) -> None:
        """Note how long a numbered step of a batch took."""
        self._stages[step].observe(seconds)

    def _fared(self, counter: str, names: Sequence[str], fates: Sequence[int]) -> None:
        """Count records by fate; ``names``: the fates."""
        for labels, n in zip(by_topic(names), fates, strict=False):
            if n:
                self._counters[counter].labels(*labels).inc(n)

    def _redelivered(self, topics: Sequence[int]) -> None:
        """Count records that were folded again after a crash, by topic. They count nowhere else."""
        for number, name in enumerate(self._inputs):
            self._counters["redelivered_records"].labels(name).inc(topics.count(number))

    def _rejected(self, found: Iterable[tuple[int, str]]) -> None:
        """Count dead letters by their topic and reason."""
        for topic, reason in found:
            self._counters["dead_letters"].labels(self._inputs[topic], reason).inc()
