"""Traces by the packages of OpenTelemetry, with a receiver of OTLP that decodes what comes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import Sent, forecast, outcome

#: Id of the trace, hex digits.
TRACE = "4bf92f35" * 4


def traced(sent: Sent, span: int) -> Sent:
    return sent._replace(headers=(("traceparent", b"00-%b-%016x-01" % (TRACE.encode(), span)), ("other", b"x")))


@contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """Run a receiver of OTLP over HTTP; yield its address and the spans that have come, each with its resource."""
    proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    spans: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            for of in proto.ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend((of.resource, span) for each in of.scope_spans for span in each.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", spans
        server.shutdown()


def headers(world: World, label: str) -> dict[str, dict[str, bytes]]:
    """Return the headers of a topic's records by their events."""
    return {(record.key or b"").decode(): dict(record.headers) for record in world.read(label)}


def plain(value: Any) -> Any:
    """Return an attribute's value."""
    kind = value.WhichOneof("value")
    return [plain(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def test_a_trace_goes_on_to_calibrated_and_resolved_and_turns_have_spans(world: MakeWorld) -> None:
    w = world(partitions=1)
    sent = [
        traced(forecast("traced", 0.2, 1_000), 1),
        forecast("untraced", 0.3, 1_001)._replace(headers=(("traceparent", b"none"),)),
        traced(outcome("early", 1, 1_002), 2),
        traced(forecast("early", 0.4, 1_003), 3),
        traced(outcome("traced", 1, 1_004), 4),
        outcome("untraced", 0, 1_005),
    ]
    with (
        receiver() as (address, spans),
        w.worker(OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_BSP_SCHEDULE_DELAY="100") as worker,
    ):
        w.send(sent)
        w.wait_until_applied()
        wait_for("spans", lambda: sum(len(span.links) for _, span in spans) == 4)
        assert worker.stop() == 0
    calibrated, resolved = (headers(w, label) for label in ("calibrated", "resolved"))
    of = {span: {"traceparent": f"00-{TRACE}-{span:016x}-01".encode()} for span in range(5)}
    assert calibrated == {"traced": of[1], "untraced": {"traceparent": b"none"}, "early": of[3]}
    assert resolved == {"traced": of[4], "untraced": {}, "early": of[3]}
    linked = [link for _, span in spans for link in span.links]
    assert {link.trace_id.hex() for link in linked} == {TRACE}
    assert sorted(int(link.span_id.hex(), 16) for link in linked) == [1, 2, 3, 4]
    told = [{each.key: plain(each.value) for each in span.attributes} for _, span in spans]
    assert sum(each["messaging.batch.message_count"] for each in told) == len(sent)
    assert (sum(each["trueup.forecasts"] for each in told), told[0]["trueup.partitions"]) == (3, [0])
    assert all(
        span.start_time_unix_nano <= event.time_unix_nano <= span.end_time_unix_nano
        for _, span in spans
        for event in span.events
    )
    resource = {each.key: plain(each.value) for each in spans[0][0].attributes}
    assert (resource["service.name"], resource["trueup.app_id"]) == ("trueup", w.name)
