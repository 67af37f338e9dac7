"""``/metrics``, ``/healthz`` and ``/readyz``, on a thread of their own.

A thread, so that a worker whose event loop hangs can still say so: ``/healthz`` fails when the loop has not ticked
for a while. It does not fail while state is restored; ``/readyz`` does.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log no scrapes."""


class Server:
    """Serves one worker's metrics and probes.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes a free one, see `port`.
    registry
        What ``/metrics`` shows.
    healthy, ready
        Answer ``/healthz`` and ``/readyz``.

    Raises
    ------
    OSError
        If the address cannot be taken.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        healthy: Callable[[], bool],
        ready: Callable[[], bool],
    ) -> None:
        metrics = make_wsgi_app(registry)
        probes = {"/healthz": healthy, "/readyz": ready}

        def application(environment: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
            path = environment["PATH_INFO"]
            if path == "/metrics":
                return metrics(environment, start)  # type: ignore[no-any-return]
            if path not in probes:
                start("404 Not Found", [("Content-Type", "text/plain")])
                return [b"there are /metrics, /healthz and /readyz\n"]
            good = probes[path]()
            start("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"yes\n" if good else b"no\n"]

        self._server = make_server(host, port, application, server_class=ThreadingWSGIServer, handler_class=_Silent)
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
