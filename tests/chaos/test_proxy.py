"""The proxy relays, cuts and silences; what it held back it delivers, in order."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.chaos.proxy import HOST, Proxy


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Yield a proxy before a server that echoes."""
    with socket.create_server((HOST, 0)) as server, Proxy() as relay:
        relay.upstream = server.getsockname()[1]

        def echo(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                while chunk := connection.recv(1 << 16):
                    connection.sendall(chunk)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield relay


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=20)


def asked(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    found = b""
    while len(found) < len(text):
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise EOFError
        found += chunk
    return found


def test_a_cut_ends_connections_and_new_ones_until_it_is_mended(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        assert asked(connection, b"a") == b"a"
        proxy.cut()
        with pytest.raises((OSError, EOFError)):
            asked(connection, b"b")
    with connected(proxy) as connection, pytest.raises((OSError, EOFError)):
        asked(connection, b"c")
    proxy.mend()
    with connected(proxy) as connection:
        assert asked(connection, b"d") == b"d"


def test_silence_keeps_the_connection_and_delivers_when_it_ends(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        assert asked(connection, b"a") == b"a"
        proxy.silence()
        connection.sendall(b"bc")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.mend()
        connection.settimeout(20)
        assert asked(connection, b"d")[:1] == b"b"
