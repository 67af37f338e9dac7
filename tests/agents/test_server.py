"""What a worker serves: metrics, probes, and nothing else, on the address it was given."""

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from agents.server import Server
from streams.settings import Settings

HOST = "127.0.0.1"


class Answer(NamedTuple):
    status: int
    kind: str
    body: str


def get(server: Server, path: str, method: str = "GET") -> Answer:
    connection = HTTPConnection(HOST, server.port, timeout=10)
    try:
        connection.request(method, path)
        response: HTTPResponse = connection.getresponse()
        return Answer(response.status, response.headers["Content-Type"], response.read().decode())
    finally:
        connection.close()


class State:
    """What the probes say."""

    healthy = True
    ready = True


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Yield a server with nothing to tell, whose probes say what `State` says."""
    with serving() as made:
        yield made


@contextmanager
def serving(registry: CollectorRegistry | None = None) -> Iterator[Server]:
    server = Server(HOST, 0, registry or CollectorRegistry(), lambda: State.healthy, lambda: State.ready)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def test_metrics_are_what_the_registry_holds_now() -> None:
    registry = CollectorRegistry()
    counter = Counter("trueup_records", "Records", registry=registry)
    with serving(registry) as server:
        for n in (0, 1):
            answer = get(server, "/metrics")
            assert answer.status == 200
            assert answer.kind.startswith("text/plain; version=")
            shown = {
                sample.name: sample.value
                for family in text_string_to_metric_families(answer.body)
                for sample in family.samples
            }
            assert shown["trueup_records_total"] == n
            counter.inc()


@pytest.mark.parametrize(("path", "probe"), [("/healthz", "healthy"), ("/readyz", "ready")])
@pytest.mark.parametrize("good", [True, False], ids=["yes", "no"])
def test_a_probe_answers_for_itself_alone(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    probe: str,
    good: bool,  # noqa: FBT001 - a case
) -> None:
    for each in ("healthy", "ready"):
        monkeypatch.setattr(State, each, good if each == probe else not good)
    assert get(server, path) == (200 if good else 503, "text/plain", "yes\n" if good else "no\n")


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/healthz/x", "/favicon.ico", "/..%2fetc/passwd"])
def test_any_other_path_is_404_and_says_what_there_is(server: Server, path: str) -> None:
    answer = get(server, path)
    assert answer.status == 404
    assert all(known in answer.body for known in ("/metrics", "/healthz", "/readyz"))


def test_it_listens_on_its_address_alone(server: Server) -> None:
    assert server._server.server_address == (HOST, server.port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=10).close()


def test_unless_told_otherwise_a_worker_listens_on_loopback() -> None:
    assert Settings().metrics_host == HOST


def test_an_address_that_is_taken_is_an_error(server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        Server(HOST, server.port, CollectorRegistry(), bool, bool)


def test_stop_frees_the_port() -> None:
    with serving() as server:
        port = server.port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, port))


def test_requests_are_not_logged(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    get(server, "/metrics")
    get(server, "/nothing")
    assert capfd.readouterr() == ("", "")


class Slow(Collector):
    """Takes as long as a test wants."""

    def __init__(self) -> None:
        self.asked, self.free = threading.Event(), threading.Event()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        self.asked.set()
        assert self.free.wait(10)
        yield GaugeMetricFamily("trueup_ready", "Ready", value=1)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()


def test_a_slow_scrape_does_not_hold_up_the_probes() -> None:
    registry = CollectorRegistry()
    registry.register(slow := Slow())
    scraped: list[Answer] = []
    with serving(registry) as server:
        scrape = threading.Thread(target=lambda: scraped.append(get(server, "/metrics")))
        scrape.start()
        try:
            assert slow.asked.wait(10)
            assert get(server, "/healthz").status == 200
            assert scraped == []
        finally:
            slow.free.set()
            scrape.join(10)
    assert scraped[0].status == 200
