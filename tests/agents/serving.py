"""A server of metrics, probes and pages on a free port of this machine, and what asks it."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import NamedTuple

from agents.server import Ask, Server
from streams.kafka.security import Access

HOST = "127.0.0.1"


@contextmanager
def serving(
    exposition: Callable[[], bytes] = bytes,
    healthy: Callable[[], bool] = lambda: True,
    unready: Callable[[], str] = str,
    pages: Ask | None = None,
    access: Access | None = None,
) -> Iterator[Server]:
    """Serve; without arguments nothing is exposed, and all is well."""
    server = Server(HOST, 0, exposition, healthy, unready, pages, access)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Answer(NamedTuple):
    status: int
    kind: str
    body: str


def asked(connection: HTTPConnection, path: str, **headers: str) -> Answer:
    """Return the answer to one request, and close its connection."""
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers["Content-Type"], response.read().decode())
    finally:
        connection.close()


def get(server: Server, path: str, **headers: str) -> Answer:
    return asked(HTTPConnection(HOST, server.port, timeout=60), path, **headers)


def connected(server: Server) -> socket.socket:
    return socket.create_connection((HOST, server.port), timeout=60)


def said(server: Server, request: bytes) -> bytes:
    """Return everything that is answered to a request."""
    with connected(server) as connection:
        connection.sendall(request)
        answered = b""
        while piece := connection.recv(65_536):
            answered += piece
        return answered
