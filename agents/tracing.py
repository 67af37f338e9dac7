"""Traces: a span for each turn, if OpenTelemetry is installed and the environment names a receiver.

A thread sends spans by OTLP over HTTP. OpenTelemetry's variables say where and how. While the receiver does not answer,
spans are dropped, and nothing waits. The trace of a forecast continues in its answer without any of this, see
`streams.sources.carrying`.
"""

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any, Final, Self

from agents.served import FoldedTurn
from state.fence import FORECASTS
from streams.config.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("trueup")

#: Variables that name a receiver. Without one of them there are no spans.
RECEIVERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: The most links of a span. A turn may have thousands of records.
LINKS: Final = 32
_HEADER: Final = "traceparent"


class Spans:
    """Makes spans of turns.

    Raises ImportError if OpenTelemetry is not installed.

    ``settings``: names the application and this worker.
    ``environment``: may have ``OTEL_SERVICE_NAME``.
    ``exporter``: sends spans; None: by OTLP over HTTP.
    """

    def __init__(
        self, settings: Settings, environment: Mapping[str, str], exporter: "SpanExporter | None" = None
    ) -> None:
        # ruff: noqa: PLC0415 - an optional package that few users install
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        named = {
            "service.name": environment.get("OTEL_SERVICE_NAME", "trueup"),
            "service.instance.id": settings.owner,
            "trueup.app_id": settings.app_id,
        }
        self._provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("trueup")
        self._trace: Any = trace
        self._traces = TraceContextTextMapPropagator()

    @classmethod
    def wanted(cls, settings: Settings, environment: Mapping[str, str]) -> Self | None:
        """Return a maker of spans; None if the environment names no receiver or OpenTelemetry is not installed."""
        name = next((each for each in RECEIVERS if environment.get(each)), None)
        if name is None:
            return None
        try:
            return cls(settings, environment)
        except ImportError as exc:
            log.warning("%s is set, but no spans are sent: %s; pip install 'trueup[tracing]'", name, exc)
            return None

    def turn(self, turn: FoldedTurn, noted: float) -> None:
        """Make the span of an answered turn. ``noted``: when the turn was in the journal, on the turn's clock."""
        batches = [part.batch for part in turn.parts]
        records = [record for batch in batches for record in batch.records]
        forecasts = sum(topic == FORECASTS for topic, _ in records)
        now, clock = time_ns(), perf_counter()

        def at(seconds: float) -> int:
            return now - int((clock - seconds) * 1e9)

        span = self._tracer.start_span(
            "turn",
            kind=self._trace.SpanKind.CONSUMER,
            links=self._links([record.headers for _, record in records if record.headers]),
            attributes={
                "messaging.system": "kafka",
                "messaging.batch.message_count": len(records),
                "trueup.forecasts": forecasts,
                "trueup.outcomes": len(records) - forecasts,
                "trueup.partitions": [batch.partition for batch in batches],
                "trueup.epochs": [batch.epoch for batch in batches],
                "trueup.folded_again": any(batch.again is not None for batch in batches),
            },
            start_time=at(turn.started),
        )
        span.add_event("journal", timestamp=at(noted))
        span.end(now)

    def _links(self, headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> list[Any]:
        """Return links to the spans that the first traced records name."""
        links: list[Any] = []
        for each in headers:
            for name, value in each:
                if name == _HEADER and value:
                    named = self._traces.extract({_HEADER: value.decode(errors="replace")})
                    context = self._trace.get_current_span(named).get_span_context()
                    links += [self._trace.Link(context)] * context.is_valid
            if len(links) >= LINKS:
                break
        return links

    def close(self) -> None:
        """Send the remaining spans. Call it outside of the loop, because it waits for the receiver."""
        self._provider.shutdown()
