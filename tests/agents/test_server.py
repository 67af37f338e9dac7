"""What a worker serves: metrics, probes, and nothing else, on the address it was given."""

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from http import HTTPStatus

import pytest

from agents import server as servers
from agents.server import Response, Server, named
from streams.kafka.security import Access
from tests.agents.serving import HOST, connected, get, said, serving
from tests.e2e.world import wait_for


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(lambda: b"trueup_ready 1\n") as made:
        yield made


@pytest.mark.parametrize("path", ["/", "/metrics/", "/healthz/x", "/..%2fetc/passwd"])
def test_any_other_path_is_404_and_says_what_there_is(
    server: Server, capfd: pytest.CaptureFixture[str], path: str
) -> None:
    assert get(server, path) == (404, "text/plain", "there are /metrics, /healthz and /readyz\n")
    assert capfd.readouterr() == ("", ""), "requests are not logged"


def test_it_listens_on_its_address_alone_and_one_that_is_taken_is_an_error(server: Server) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=60).close()
    with pytest.raises(OSError, match="in use"):
        Server(HOST, server.port, bytes, bool, str)


def test_a_head_has_one_deadline_however_it_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "HEAD_SECONDS", 0.3)
    with serving() as server, connected(server) as dripping:
        dripping.settimeout(0.05)
        for byte in b"GET /healthz HTTP/1.1\r\n" + b"X-Slow: y\r\n" * 1000:
            with suppress(BrokenPipeError, ConnectionResetError):
                dripping.sendall(bytes([byte]))
                with suppress(TimeoutError):
                    if dripping.recv(1) == b"":
                        return
                continue
            return
        raise AssertionError("it was never closed")


def test_probes_and_metrics_answer_beside_connections_that_drip(server: Server) -> None:
    with ExitStack() as held:
        drippers = [held.enter_context(connected(server)) for _ in range(3 * servers.WAITING)]
        for each in drippers:
            with suppress(OSError):  # it was closed for a newer one
                each.sendall(b"GET /metrics HTT")
        for path in ("/healthz", "/readyz", "/metrics") * 6:
            assert get(server, path).status == 200


def test_where_too_many_wait_the_oldest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "WAITING", 2)
    with serving() as server, ExitStack() as held:
        oldest, *others = (held.enter_context(connected(server)) for _ in range(3))
        assert oldest.recv(1) == b""
        for each in others:
            each.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert each.recv(100).startswith(b"HTTP/1.1 200")


def test_there_are_so_many_places_and_probes_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "CONNECTIONS", 1)
    asked, free = threading.Event(), threading.Event()

    def slow() -> bytes:
        asked.set()
        assert free.wait(10)
        return b""

    with serving(slow) as server:
        scrape = threading.Thread(target=get, args=(server, "/metrics"))
        scrape.start()
        try:
            assert asked.wait(10)
            refused = said(server, b"GET /metrics HTTP/1.0\r\n\r\n")
            assert refused.startswith(b"HTTP/1.1 503")
            assert b"\r\nRetry-After: 1\r\n" in refused
            assert get(server, "/healthz").status == 200
        finally:
            free.set()
            scrape.join(10)
        wait_for("a place, which is free a moment after the answer", lambda: get(server, "/metrics").status == 200)


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("", True),
        ("127.0.0.1", True),
        ("10.0.0.7:9464", True),
        ("127.0.0.1.", True),
        ("[::1]:9464", True),
        ("[::ffff:1.2.3.4]:9464", True),
        ("localhost:9464", True),
        ("Metrics.Example.com:443", True),
        ("metrics.example.com.", True),
        ("rebound.example.net", False),
        ("127.0.0.1.example.net:9464", False),
        ("1.2.3", False),
        ("[::1]evil.com", False),
        ("127.0.0.1:evil.com", False),
        ("[evil.com]", False),
        ("a\0.b", False),
        ("\u00e9.b", False),
        ("\udcff.b", False),
    ],
)
def test_only_by_addresses_plain_names_and_those_that_are_set_it_is_read(host: str, *, known: bool) -> None:
    assert named(host, {"metrics.example.com"}) == known


def test_another_pages_name_reads_nothing_and_probes_have_any() -> None:
    with serving(access=Access(hosts="metrics.example.com, other.example.com")) as server:
        for host, path, status in (
            ("rebound.example.net", "/api/streams", 421),
            ("rebound.example.net", "/metrics", 421),
            ("rebound.example.net", "/healthz", 200),
            ("OTHER.example.com:9464", "/metrics", 200),
        ):
            assert get(server, path, Host=host).status == status


@pytest.mark.parametrize("path", ["/api/streams/größe?q=%C3%B6".encode(), b"/api/streams/gr%C3%B6%C3%9Fe?q=%C3%B6"])
def test_a_page_is_asked_by_its_path_whether_that_was_quoted_or_not(path: bytes) -> None:
    asked: list[tuple[str, str]] = []

    def page(path: str, query: str) -> Response:
        asked.append((path, query))
        return Response(HTTPStatus.OK, [], b"")

    with serving(pages=page) as server:
        assert said(server, b"GET " + path + b" HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert asked == [("/api/streams/größe", "q=%C3%B6")]


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/nowhere"])
def test_head_is_get_without_the_body(server: Server, path: str) -> None:
    whole = said(server, f"GET {path} HTTP/1.0\r\n\r\n".encode())
    head = said(server, f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
    assert whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" == head
    assert f"Content-Length: {len(whole) - len(head)}".encode() in head


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"200"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", b"405"),
        *((b"GET /metrics HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", b"400") for host in (b"a\0.b", b"a.b\x7f")),
    ],
)
def test_nothing_is_said_of_what_serves_and_it_can_only_be_read(
    server: Server, caplog: pytest.LogCaptureFixture, request_: bytes, status: bytes
) -> None:
    answered = said(server, request_)
    assert answered.startswith(b"HTTP/1.1 " + status)
    assert (b"\r\nAllow: GET, HEAD\r\n" in answered) == (status == b"405")
    assert b"server:" not in answered.lower()
    assert b"python" not in answered.lower()
    assert not caplog.records


@pytest.mark.parametrize(
    ("accepted", "packed"), [("gzip", True), ("br;q=1.0, GZIP;q=0.5", True), ("identity", False), ("", False)]
)
def test_metrics_are_packed_for_who_accepts_it(server: Server, accepted: str, *, packed: bool) -> None:
    answered = said(server, f"GET /metrics HTTP/1.1\r\nAccept-Encoding: {accepted}\r\n\r\n".encode())
    head, _, body = answered.partition(b"\r\n\r\n")
    assert (b"Content-Encoding: gzip" in head) == packed
    assert (gzip.decompress(body) if packed else body) == b"trueup_ready 1\n"


@pytest.mark.parametrize("head", [b"GET " + b"x" * 70_000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000])
def test_a_head_without_end_is_no_request(server: Server, head: bytes) -> None:
    with connected(server) as connection, suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(head)
        answered = connection.recv(100)
        assert answered == b"" or answered.startswith(b"HTTP/1.1 4")
    assert get(server, "/healthz").status == 200


def test_what_is_made_is_shared_until_it_is_nine_times_as_old_as_what_making_it_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, made = 1000.0, list[str]()

    def make(name: str) -> str:
        nonlocal now
        made.append(name)
        now += 2.0
        return name

    monkeypatch.setattr(servers, "monotonic", lambda: now)
    monkeypatch.setattr(servers, "thread_time", lambda: now)
    kept = servers._Kept[str](2)
    for after, name, times in (
        (0, "/a", 1),
        (17.9, "/a", 1),
        (0.2, "/a", 2),
        (0, "/b", 3),
        (0, "/a", 3),
        (0, "/c", 4),
        (0, "/a", 5),
    ):
        now += after
        assert kept.get(name, partial(make, name)) == name
        assert len(made) == times, (name, made)
