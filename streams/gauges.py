"""What a worker tells Prometheus. Counters count once, after the commit point; gauges are views of stored sums."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import time

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from state import rows
from state.engine import Effects
from state.fence import FATES, Fence
from state.rows import Served
from state.scores import Kind, Scores
from streams.catalogue import CATALOGUE, DELAYS, LATENCIES, RECORD_FATES, SIZES
from streams.records import REASONS

PREFIX = "trueup_"
KINDS: tuple[Kind, ...] = ("raw", "calibrated")
#: Sums all streams beyond the first ones, so that names in records cannot mint series.
OTHER = "other"
#: The input topics as labels name them, whatever they are called in Kafka.
INPUTS = ("forecasts", "outcomes")


@dataclass(slots=True)
class Held:
    """What is exported of one partition: its fence, and the latest rows of its streams, still encoded."""

    fence: Fence
    scores: dict[str, bytes] = field(default_factory=dict)
    calibrators: dict[str, bytes] = field(default_factory=dict)


#: Reads now and here: yields (metric name, label values, value).
Sampler = Callable[[], Iterable[tuple[str, tuple[str, ...], float]]]


class Gauges(Collector):
    """The metrics of one worker.

    Parameters
    ----------
    most_streams
        Streams with series of their own.
    version
        Version of the program.
    sampler
        Reads what is not in the state: lag, buffers, store sizes, readiness.
    """

    def __init__(self, most_streams: int, version: str, sampler: Sampler) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a series beside every counter that says only when
        self.registry = CollectorRegistry()
        self._most_streams = most_streams
        self._version = version
        self._sampler = sampler
        self._held: dict[int, Held] = {}
        self._totals: dict[str, Scores] = {}
        self._risen: dict[tuple[str, tuple[str, ...]], float] = {}
        self._labels: dict[str, str] = {}
        self._updated = 0.0
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        buckets = {"label_delay_seconds": DELAYS, "batch_seconds": LATENCIES, "batch_records": SIZES}
        for name in ("records", "redelivered_records", "dead_letters", "expired", "outputs"):
            self._counters[name] = Counter(
                PREFIX + name, CATALOGUE[name].help, CATALOGUE[name].labels, registry=self.registry
            )
        for name, edges in buckets.items():
            self._histograms[name] = Histogram(
                PREFIX + name, CATALOGUE[name].help, buckets=edges, registry=self.registry
            )
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
        for kind in ("forecast", "outcome"):
            self._counters["expired"].labels(kind)
        for topic in ("calibrated", "resolved", "dead-letters"):
            self._counters["outputs"].labels(topic)

    # -- what the worker reports -----------------------------------------------------------------------------------

    def assigned(self, partition: int, held: Held) -> None:
        """Take up a partition whose state was restored."""
        self._held[partition] = held

    def revoked(self, partition: int) -> None:
        """Let go of a partition, so that its new owner's series are the only ones."""
        self._held.pop(partition, None)

    def partitions(self) -> list[int]:
        """Return the partitions held."""
        return list(self._held)

    def applied(self, partition: int, effects: Effects, fence: Fence) -> None:
        """Count a batch whose rows were acknowledged; redelivered events count only as such."""
        self._updated = time()
        fates = dict(zip(FATES, effects.fates, strict=True))
        for topic, names in RECORD_FATES.items():
            for fate, counted in names.items():
                n = sum(fates[name] for name in counted)
                if n:
                    self._counters["records"].labels(topic, fate).inc(n)
        for kind in ("forecast", "outcome"):
            if fates[f"expired_{kind}s"]:
                self._counters["expired"].labels(kind).inc(fates[f"expired_{kind}s"])
        for source, reason in effects.rejected:
            self._counters["dead_letters"].labels(INPUTS[source], reason).inc()
        for topic, n in zip(INPUTS, effects.again, strict=True):
            if n:
                self._counters["redelivered_records"].labels(topic).inc(n)
        observe = self._histograms["label_delay_seconds"].observe
        for delay in effects.delays:
            observe(delay / 1000)
        held = self._held.get(partition)
        if held is None:
            held = self._held[partition] = Held(fence)
        held.fence = fence
        held.calibrators.update(effects.calibrators)
        for stream, row in effects.scores.items():
            before = held.scores.get(stream)
            new = rows.decode_scores(row)
            gained = new if before is None else new - rows.decode_scores(before)
            label = self._label(stream)
            total = self._totals.get(label)
            self._totals[label] = gained if total is None else total + gained
            held.scores[stream] = row

    def produced(self, topic: str, n: int) -> None:
        """Count acknowledged outputs."""
        self._counters["outputs"].labels(topic).inc(n)

    def batch(self, records: int, seconds: float) -> None:
        """Note the size of a batch and how long it took."""
        self._histograms["batch_records"].observe(records)
        self._histograms["batch_seconds"].observe(seconds)

    # -- what Prometheus reads -------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are views of sums; called by the server's thread."""
        families = {
            name: (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
                PREFIX + name, metric.help, labels=metric.labels
            )
            for name, metric in CATALOGUE.items()
            if name not in self._counters and name not in self._histograms
        }
        for name, labels, value in self._samples():
            families[name].add_metric(labels, value)
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Tell the registry nothing, so that registering does not collect."""
        return ()

    def _samples(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        held = list(self._held.values())
        yield "build_info", (self._version,), 1.0
        yield "pending_events", (), sum(partition.fence.pending for partition in held)
        yield "early_outcomes", (), sum(partition.fence.early for partition in held)
        if self._updated:
            yield "last_update_timestamp_seconds", (), self._updated
        yield from self._sampler()
        for label, total in list(self._totals.items()):
            for name, labels, value in _counted(label, total):
                # Rounding may take an ulp off a sum, and rate() takes a counter that falls for one that started anew.
                risen = self._risen[name, labels] = max(value, self._risen.get((name, labels), value))
                yield name, labels, risen
        scores: dict[str, Scores] = {}
        served: dict[str, list[Served]] = {}
        for partition in held:
            for stream, row in list(partition.scores.items()):
                label = self._label(stream)
                decoded = rows.decode_scores(row)
                scores[label] = scores[label] + decoded if label in scores else decoded
            for stream, row in list(partition.calibrators.items()):
                label = self._label(stream)
                served.setdefault(label, []).append(rows.decode_calibrator(row, stream))
        for label, total in scores.items():
            yield from _scored(label, total)
        for label, made in served.items():
            yield from _guaranteed(label, made)

    def _label(self, stream: str) -> str:
        label = self._labels.get(stream)
        if label is None:
            if len(self._labels) >= self._most_streams:
                return OTHER
            label = self._labels[stream] = stream
        return label


def _counted(label: str, total: Scores) -> Iterator[tuple[str, tuple[str, ...], float]]:
    yield "scored_events", (label,), total.n
    for kind in KINDS:
        yield "brier_sum", (label, kind), total.brier(kind) * total.n if total.n else 0.0
        yield "log_loss_sum", (label, kind), total.log_loss(kind) * total.n if total.n else 0.0
        for i, each in enumerate(total.bins(kind)):
            yield "bin_events", (label, kind, str(i)), each.n
            yield "bin_forecast_sum", (label, kind, str(i)), each.p
            yield "bin_outcome_sum", (label, kind, str(i)), each.y


def _scored(label: str, total: Scores) -> Iterator[tuple[str, tuple[str, ...], float]]:
    yield "resolved", (label,), total.n
    if not total.n:
        return
    for kind in KINDS:
        yield "ece", (label, kind), total.ece(kind)
        yield "brier", (label, kind), total.brier(kind)
        yield "log_loss", (label, kind), total.log_loss(kind)
    yield "regret", (label, "brier"), total.regret_brier()
    yield "regret", (label, "log"), total.regret_log()


def _guaranteed(label: str, made: list[Served]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Weigh the calibrators of several partitions by what each has learnt: errors are means over events."""
    learning = [served for served in made if served.calibrator.learnt]
    learnt = sum(served.calibrator.learnt for served in learning)
    errors = [served.calibrator.error() for served in learning]
    bounds = [served.calibrator.bound(served.outstanding) for served in learning]
    for name, values in (("calibration_error", errors), ("calibration_bound", bounds)):
        known = [
            value * served.calibrator.learnt
            for value, served in zip(values, learning, strict=True)
            if value is not None
        ]
        if known and len(known) == len(learning):
            yield name, (label,), sum(known) / learnt
