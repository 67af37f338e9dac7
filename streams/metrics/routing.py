"""The metrics of intake and router."""

from collections.abc import Iterable, Iterator, Sequence
from time import time
from typing import Final

from state import routes
from state.effects import Effects
from state.fence import Fence
from streams.metrics.catalogue import CATALOGUE, LATENCIES, SIZES
from streams.metrics.metric import Sample, counter, gauge
from streams.metrics.stage import Folding, Sampler, StageMetrics, by_topic
from streams.records import decoding, routing

OWN: Final = {
    metric.name: metric
    for metric in (
        counter("routed_records{topic, fate}", "Routes and labels applied, by what became of them"),
        gauge("routed_events", "Events that still wait for labels"),
        gauge("unrouted_events", "Events whose label waits for a forecast"),
        counter("expired_routes{kind}", "Events that no longer wait: forecast, or only labelled"),
        counter(
            "mapped_records{source, fate}",
            "Source records read, by what became of them: sent on, passed over by `when`, or dead",
        ),
    )
}
KNOWN: Final = {**CATALOGUE, **OWN}
#: The router's inputs, by the name of a worker's inputs.
INPUTS: Final = {"forecasts": "routes", "outcomes": "labels"}
TOPICS: Final = ("routes", "labels")
#: The fates of records, each with its topic.
RECORD_FATES: Final = routes.FATES[: routes.INPUT_FATES]


class RouteGauges(Folding):
    """The metrics of one router; see `streams.metrics.gauges.Gauges`.

    ``app``: the application, as `StageMetrics` takes it.
    """

    def __init__(self, version: str, sampler: Sampler, app: str = "") -> None:
        counters: dict[str, list[tuple[str, ...]]] = {
            "routed_records": by_topic(RECORD_FATES),
            "expired_routes": [("routes",), ("labels",)],
            "dead_letters": [(topic, reason) for topic in TOPICS for reason in routing.REASONS],
            "outputs": [],
        }
        super().__init__(TOPICS, KNOWN, version, sampler, counters, app)

    # -- what the router reports -----------------------------------------------------------------------------------

    def taken_up(self, partition: int, fence: Fence) -> None:
        """Show a partition whose state was restored."""
        self._held[partition] = fence

    def written(self, partition: int, *_: object) -> None:
        """Do nothing: metrics show no row of a checkpoint."""

    def count(self, partition: int, effects: Effects, fence: Fence) -> None:
        """Count a batch that is in the journal."""
        self.updated = time()
        self._held[partition] = fence
        self._fared("routed_records", RECORD_FATES, effects.fates)
        for fate, n in zip(routes.FATES, effects.fates, strict=False):
            if n and fate.startswith("expired_"):
                self._counters["expired_routes"].labels(fate.removeprefix("expired_")).inc(n)
        self._rejected(effects.rejected)

    def again(self, partition: int, topics: Sequence[int], fence: Fence) -> None:
        """Count records that were folded again after a crash, by their topics."""
        self._held[partition] = fence
        self._redelivered(topics)

    def waited(self, since: Iterable[int]) -> None:
        """Do nothing: workers answer forecasts."""

    def _samples(self) -> Iterator[Sample]:
        held: list[Sequence[int]] = [fence.fates for fence in list(self._held.values())]
        yield "held_partitions", (), len(held)
        yield "routed_events", (), sum(each[routes.OPENED] - each[routes.EXPIRED_ROUTES] for each in held)
        left = routes.EARLY_JOINED, routes.EXPIRED_LABELS
        yield "unrouted_events", (), sum(each[routes.EARLY_OPENED] - sum(each[one] for one in left) for each in held)
        for name, labels, value in super()._samples():
            yield name, tuple(INPUTS.get(label, label) for label in labels), value


class IntakeGauges(StageMetrics):
    """The metrics of one intake.

    ``sampler``: reads lag and readiness.
    ``app``: the application, as `StageMetrics` takes it.
    """

    def __init__(self, version: str, sources: Iterable[str], sampler: Sampler, app: str = "") -> None:
        named, reasons = list(sources), decoding.REASONS | routing.REASONS
        counters: dict[str, list[tuple[str, ...]]] = {
            "mapped_records": [(source, fate) for source in named for fate in ("sent", "passed", "dead")],
            "dead_letters": [(source, reason) for source in named for reason in reasons],
            "outputs": [],
            "far_off_times": [(source,) for source in named],
        }
        buckets = {"batch_seconds": LATENCIES, "batch_records": SIZES}
        super().__init__(KNOWN, version, sampler, counters, buckets, app)

    def mapped(self, source: str, fate: str, reason: str, records: int) -> None:
        """Count source records by fate: sent, passed over, or dead with a reason."""
        self._counters["mapped_records"].labels(source, fate).inc(records)
        if reason:
            self._counters["dead_letters"].labels(source, reason).inc(records)

    def far_off(self, source: str, n: int) -> None:
        """Count records of a source whose time is far off."""
        self._counters["far_off_times"].labels(source).inc(n)

    def batch(self, records: int, seconds: float) -> None:
        """Note the size and duration of a batch, and its time."""
        self.updated = time()
        super().batch(records, seconds)
