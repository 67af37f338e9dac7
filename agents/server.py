"""``/metrics``, ``/healthz``, ``/readyz`` and the pages, on threads of their own.

Threads, so that a worker whose event loop hangs can still say so: ``/healthz`` fails when the loop has not ticked
for a while. It does not fail while state is restored; ``/readyz`` does. Both are open to whoever can connect, as
orchestrators ask without a password; everything else asks for one where one is set.
"""

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

from streams.security import Access

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: Connections served at one time; one more is closed. Readers are a few scrapers and people.
CONNECTIONS = 32
#: How long a connection may be silent, s; whoever sends a header a minute does not hold a thread.
SILENCE = 15.0


class _Silent(WSGIRequestHandler):
    timeout = SILENCE

    def log_message(self, *_: object) -> None:
        """Log no scrapes."""

    def handle(self) -> None:
        """Serve one connection; one that breaks off or does not speak TLS is the reader's affair."""
        with suppress(OSError):
            super().handle()


class _Listener(ThreadingWSGIServer):
    """Serves up to `CONNECTIONS` at one time, by TLS if there is a context."""

    context: ssl.SSLContext | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as the base class takes them
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(*args, **kwargs)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; its handshake is done by the thread that serves it, which may wait for it."""
        connection, address = super().get_request()
        if self.context is not None:
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class has it
        """Serve on a thread, or close what is too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class has it
        """Serve, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class Server:
    """Serves one worker's metrics, probes and pages.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes a free one, see `port`.
    registry
        What ``/metrics`` shows.
    healthy, ready
        Answer ``/healthz`` and ``/readyz``.
    pages
        Answers every other path; None: there is none.
    access
        Who may read, and by which certificate.

    Raises
    ------
    OSError
        If the address cannot be taken.
    ValueError
        If the certificate cannot be loaded.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        healthy: Callable[[], bool],
        ready: Callable[[], bool],
        pages: "WSGIApplication | None" = None,
        access: Access | None = None,
    ) -> None:
        access = access or Access()
        metrics = make_wsgi_app(registry)
        probes = {"/healthz": healthy, "/readyz": ready}

        def application(environment: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
            path = environment["PATH_INFO"]
            if path in probes:
                good = probes[path]()
                start("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain")])
                return [b"yes\n" if good else b"no\n"]
            if not access.admits(environment.get("HTTP_AUTHORIZATION", "")):
                asks = ("WWW-Authenticate", 'Basic realm="trueup", charset="UTF-8"')
                start("401 Unauthorized", [("Content-Type", "text/plain"), asks])
                return [b"a user name and a password are needed\n"]
            if path == "/metrics":
                return metrics(environment, start)  # type: ignore[no-any-return]
            if pages is not None:
                return pages(environment, start)
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there are /metrics, /healthz and /readyz\n"]

        context = access.context
        self._server = make_server(host, port, application, server_class=_Listener, handler_class=_Silent)
        self._server.context = context
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_port

    def start(self) -> None:
        """Serve until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
