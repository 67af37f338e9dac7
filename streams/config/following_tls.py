"""TLS contexts that follow their files: a renewed certificate needs no restart."""

import logging
import os
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Self

log = logging.getLogger("trueup")


class FollowingContext(ssl.SSLContext):
    """A TLS context that uses the present content of its files for each new connection.

    asyncio and sockets ask a context once for each connection (``wrap_bio``, ``wrap_socket``). Then this context looks
    whether a file has changed. If so, it makes a new inner context. If that fails, as between the renewals of a
    certificate and of its key, the last good one stays in use, and the log says why. Open connections do not change.

    ``make``: makes an ordinary context from the files; raises ValueError if it cannot.
    ``files``: the files that it reads; None where one is not set.
    """

    def __new__(cls, make: Callable[[], ssl.SSLContext], files: Iterable[str | None]) -> Self:  # noqa: ARG004 - as `__init__`
        """Return a context that is itself never used."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Iterable[str | None]) -> None:
        self._make = make
        self._files = [file for file in files if file]
        self._seen = self._look()
        self._good = make()

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:  # noqa: ANN401 - as the base class
        """Return the TLS object of a connection of asyncio."""
        return self._newest().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:  # noqa: ANN401 - as the base class
        """Return the TLS socket of a connection."""
        return self._newest().wrap_socket(*args, **options)

    def _newest(self) -> ssl.SSLContext:
        if (now := self._look()) != self._seen:
            self._seen = now
            try:
                self._good = self._make()
            except ValueError as exc:
                log.warning("%s; new connections use the last content that could be read", exc)
            else:
                log.info("read again, for new connections: %s", ", ".join(self._files))
        return self._good

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Return a value that changes when a file changes. It contains None for a missing file."""
        return [_mark(file) for file in self._files]


def _mark(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - the path as it was set
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
