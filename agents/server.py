"""Serves ``/metrics``, ``/healthz``, ``/readyz`` and the pages, with one thread for each connection.

``/healthz`` fails when the worker's event loop has not ticked for a while. ``/readyz`` also fails while state is
restored. Neither needs a password, because orchestrators send none. All other paths need the password, if one is set.

A connection serves one request. Its head must arrive within `HEAD_SECONDS`. If too many connections wait, the oldest is
closed. So a client that sends its request at once is always served. Probes are always answered; other requests share
`CONNECTIONS` places.
"""

import gzip
import io
import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from socketserver import TCPServer, ThreadingMixIn
from time import monotonic, sleep, thread_time
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from streams.kafka.security import Access

log = logging.getLogger("trueup")

#: Requests served at the same time, probes not counted. Any further one is told to come again.
CONNECTIONS = 32
#: How long metrics and pages are cached, as a multiple of the processor time that it took to make them.
KEPT = 9.0
#: The most pages in the cache.
PAGES = 32
#: The most connections whose head has not come yet.
WAITING = 64
#: Longest time for a head, TLS handshake included, s; and its largest size, bytes.
HEAD_SECONDS, HEAD_BYTES = 5.0, 65_536
#: Longest time for the client to read an answer, s.
ANSWER_SECONDS = 30.0
#: Delay after a wrong password, s; and shortest time between two log lines about wrong passwords, s.
WRONG_SECONDS, TELL_SECONDS = 1.0, 60.0

Headers = list[tuple[str, str]]
T = TypeVar("T")


class Response(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    headers: Headers
    body: bytes


#: Returns the answer for a page, given its unquoted path and query.
Ask = Callable[[str, str], Response]


class _Late(Exception):  # noqa: N818 - ends a connection, and is nobody's error
    """The head was late or too long."""


class _Head(io.RawIOBase):
    """Reads a request's head before a deadline, however slowly its bytes come."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._left = HEAD_BYTES

    def readable(self) -> bool:
        """Always return True."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - whatever the reader above has
        """Read the bytes that have come, waiting no longer than the deadline."""
        left = self._deadline - monotonic()
        if left <= 0 or not self._left:
            raise _Late
        self._connection.settimeout(left)
        read = self._connection.recv_into(buffer[: self._left])
        self._left -= read
        return read


class _Request(BaseHTTPRequestHandler):
    """One connection."""

    server: "_Listener"

    def setup(self) -> None:
        """Take the connection."""
        self.connection = self.request
        self.wfile = io.BytesIO()

    def finish(self) -> None:
        """Do nothing: the server closes the connection."""

    def log_message(self, *_: object) -> None:
        """Do not log requests."""

    def handle(self) -> None:
        """Serve the connection. Broken connections and failed TLS handshakes are the client's problem."""
        try:
            whole = self._read()
        except (OSError, _Late, HTTPException, ValueError):  # ValueError: closed during a TLS operation
            return
        finally:
            self.server.heard(self.connection)
        if whole:
            with suppress(OSError):
                self.server.serve(self)

    def _read(self) -> bool:
        deadline = monotonic() + HEAD_SECONDS
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.settimeout(HEAD_SECONDS)
            self.connection.do_handshake()
        self.rfile = io.BufferedReader(_Head(self.connection, deadline))
        self.raw_requestline = self.rfile.readline(HEAD_BYTES)
        return bool(self.raw_requestline) and self.parse_request()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - the base class's
        """Tell the client what is wrong with a head."""
        self.answer(HTTPStatus(code), [("Content-Type", "text/plain")], b"this is not a request that can be answered\n")

    def answer(self, status: HTTPStatus, headers: Headers, body: bytes) -> None:
        """Send an answer: without the server's name, and for HEAD without a body."""
        own = [("Content-Length", str(len(body))), ("Connection", "close")]
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{n}: {v}" for n, v in [*headers, *own]), "", ""]
        self.connection.settimeout(ANSWER_SECONDS)
        bare = getattr(self, "command", None) == "HEAD"
        self.connection.sendall("\r\n".join(lines).encode("latin-1") + (b"" if bare else body))


class _Listener(ThreadingMixIn, TCPServer):
    """Accepts connections, and limits how many wait."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], serve: Callable[[_Request], None]) -> None:
        self.context: ssl.SSLContext | None = None
        self.serve = serve
        self._lock = threading.Lock()
        #: Connections whose head has not come, the oldest first.
        self._waiting: dict[socket.socket, None] = {}
        #: Places for requests other than probes.
        self.places = threading.BoundedSemaphore(CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Request)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. The TLS handshake may block, so the connection's own thread does it."""
        connection, address = super().get_request()
        if self.context is not None:
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self._expect(connection)
        return connection, address

    def _expect(self, connection: socket.socket) -> None:
        """Note a new connection. If too many wait, close the oldest."""
        with self._lock:
            self._waiting[connection] = None
            if len(self._waiting) <= WAITING:
                return
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
        with suppress(OSError):
            socket.socket.shutdown(oldest, socket.SHUT_RDWR)  # below TLS, because its thread may be in the handshake

    def heard(self, connection: socket.socket) -> None:
        """Note that a connection's head has come."""
        with self._lock:
            self._waiting.pop(connection, None)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - the base class's
        """Close a connection, wherever it ended."""
        self.heard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - the base class's
        """Log an error of this server. Errors of clients do not come here."""
        log.exception("cannot answer a request")  # noqa: LOG004 - called where it was caught


class _Kept(Generic[T]):
    """A cache for readers that makes one value at a time; concurrent readers share it.

    A value is kept for nine times the processor time that it took to make it. So any number of readers takes at most a
    tenth of a processor. On a small worker a value is at most milliseconds old.
    """

    def __init__(self, most: int = 1) -> None:
        self._most, self._lock = most, threading.Lock()
        #: By name: the time until which a value is kept, and the value; the oldest first.
        self._kept: dict[str, tuple[float, T]] = {}

    def get(self, name: str, make: Callable[[], T]) -> T:
        """Return the cached value of a name, or make it."""
        with self._lock:
            if name in self._kept and monotonic() < self._kept[name][0]:
                return self._kept[name][1]
            used = thread_time()
            made = make()
            self._kept.pop(name, None)
            if len(self._kept) == self._most:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = monotonic() + KEPT * (thread_time() - used), made
            return made


class Server:
    """Serves one worker's metrics, probes and pages.

    Raises OSError if the address cannot be taken.
    Raises ValueError if the certificate cannot be loaded.

    ``host, port``: address to listen on; port 0 takes a free one, see `port`.
    ``exposition``: returns the text of ``/metrics``; one thread at a time calls it. TimeoutError if there is none now.
    ``healthy``: answers ``/healthz``.
    ``unready``: answers ``/readyz``: why the worker is not ready, in words that anybody may read; empty if it is ready.
    ``pages``: answers every other path; None: there is none.
    ``access``: who may read, and the server's certificate and names.
    """

    def __init__(
        self,
        host: str,
        port: int,
        exposition: Callable[[], bytes],
        healthy: Callable[[], bool],
        unready: Callable[[], str],
        pages: Ask | None = None,
        access: Access | None = None,
    ) -> None:
        self._access = access or Access()
        self._hosts = {host.lower(), socket.gethostname().lower(), *self._access.names}
        self._exposition = exposition
        #: The metrics as text, plain and compressed.
        self._metrics = _Kept[tuple[bytes, bytes]]()
        #: For each probe's path, a function that returns what is wrong.
        self._probes: Mapping[str, Callable[[], str]] = {
            "/healthz": lambda: "" if healthy() else "no",
            "/readyz": lambda: f"no: {why}" if (why := unready()) else "",
        }
        self._pages, self._kept = pages, _Kept[Response](PAGES)
        #: Number of requests with a wrong name or password.
        self.failed_logins = 0

        self._told = -TELL_SECONDS
        context = self._access.context
        self._server = _Listener((host, port), self._serve)
        self._server.context = context
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def _serve(self, request: _Request) -> None:
        path, _, query = request.path.partition("?")
        if request.command not in ("GET", "HEAD"):
            request.answer(HTTPStatus.METHOD_NOT_ALLOWED, [("Allow", "GET, HEAD"), *_TEXT], b"this can only be read\n")
        elif path in self._probes:
            wrong = self._probes[path]()
            status = HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK
            request.answer(status, [*_TEXT], f"{wrong or 'yes'}\n".encode())
        elif not (host := request.headers.get("Host", "")).isprintable():
            request.send_error(HTTPStatus.BAD_REQUEST)
        elif not named(host, self._hosts):
            said = b"it is not known by this name: add it to TRUEUP_METRICS_NAMES\n"
            request.answer(HTTPStatus.MISDIRECTED_REQUEST, [*_TEXT], said)
        elif not self._server.places.acquire(blocking=False):
            request.answer(HTTPStatus.SERVICE_UNAVAILABLE, [("Retry-After", "1"), *_TEXT], b"too many readers\n")
        else:
            try:
                self._admit(request, path, query)
            finally:
                self._server.places.release()

    def _admit(self, request: _Request, path: str, query: str) -> None:
        if not self._access.admits(given := request.headers.get("Authorization", "")):
            if given:
                self._failed(request.client_address[0])
                sleep(WRONG_SECONDS)
            asks = ("WWW-Authenticate", 'Basic realm="trueup", charset="UTF-8"')
            request.answer(HTTPStatus.UNAUTHORIZED, [asks, *_TEXT], b"a user name and a password are needed\n")
        elif path == "/metrics":
            try:
                plain, packed = self._metrics.get(path, self._made)
            except TimeoutError:
                said = b"what this is of does not answer\n"
                request.answer(HTTPStatus.SERVICE_UNAVAILABLE, [*_TEXT], said)
            else:
                gzipped = "gzip" in request.headers.get("Accept-Encoding", "").lower()
                headers = [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)]
                headers += [("Content-Encoding", "gzip")] if gzipped else []
                request.answer(HTTPStatus.OK, headers, packed if gzipped else plain)
        elif (pages := self._pages) is not None:  # requests that wait keep their places, and places are few
            name = unquote_to_bytes(path.encode("latin-1")).decode(errors="replace")  # bytes may come unquoted
            request.answer(*self._kept.get(request.path, lambda: pages(name, query)))
        else:
            request.answer(HTTPStatus.NOT_FOUND, [*_TEXT], b"there are /metrics, /healthz and /readyz\n")

    def _made(self) -> tuple[bytes, bytes]:
        plain = self._exposition()
        return plain, gzip.compress(plain, 1)

    def _failed(self, client: str) -> None:
        """Count a wrong password. Log a summary now and then."""
        self.failed_logins += 1
        if monotonic() - self._told >= TELL_SECONDS:
            self._told = monotonic()
            log.warning("a wrong name or password for the metrics from %s; %d in all", client, self.failed_logins)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        """Give the address up: another process serves it."""
        self._server.server_close()


_TEXT: Final = (("Content-Type", "text/plain"),)


def named(host: str, known: Iterable[str]) -> bool:
    """Whether a ``Host`` header names this server. This prevents DNS rebinding.

    A foreign page can point its own host name to this server, and read answers through a user's browser. It cannot do
    so with an IP address, nor with a name without a dot, because no registrar sells such names.
    """
    name = re.sub(r":\d*$", "", host.strip().lower()).strip("[]").removesuffix(".")
    if "." not in name or name in known:
        return True
    with suppress(ValueError):
        return bool(ip_address(name))
    return False
