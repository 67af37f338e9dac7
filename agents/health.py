"""``python -m agents.health [PATH PORT...]``: the health check of the image. It asks the worker of this container.

Without arguments it asks whether the worker is alive. ``/readyz 9464 9465 9466`` asks whether all stages of `trueup
run` are ready. It reads the few settings it needs itself: `streams.config.settings` imports Faust, which takes a second
of processor time at every check.
"""

import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final

#: Longest wait for an answer, s. It is less than that of the image's health check, so that the reason is printed.
SECONDS: Final = 5.0
#: Where a worker listens by default. A test compares these with the settings.
HOST, PORT = "127.0.0.1", 9464


def asked(
    host: str,
    port: int,
    path: str,
    seconds: float,
    *,
    tls: bool,
    most: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Ask a process of this machine that listens at an address; return the status and the text of its answer.

    ``most``: bytes of the answer to read; None: all.
    """
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = HOST
    connection = HTTPConnection(host, port, timeout=seconds)
    if tls:
        # The certificate has the worker's public name, not that of loopback. The request does not leave this machine.
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        connection = HTTPSConnection(host, port, timeout=seconds, context=trusting)
    with closing(connection):
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(most).decode(errors="replace")


def status(environment: Mapping[str, str], path: str = "/healthz", port: int | None = None) -> tuple[bool, str]:
    """Ask the worker with this environment, or the server at a port; return whether all is well, and its answer."""
    if port is None:
        port = int(environment.get("TRUEUP_METRICS_PORT", PORT))
    host, tls = environment.get("TRUEUP_METRICS_HOST", HOST), bool(environment.get("TRUEUP_METRICS_CERTFILE"))
    try:
        answered, said = asked(host, port, path, SECONDS, tls=tls, most=100)
    except (OSError, HTTPException) as exc:
        return False, str(exc) or type(exc).__name__
    return answered == 200, said.strip()


def main(arguments: Sequence[str] = ()) -> int:
    """Print each answer, and return the exit status: 0 if all are well."""
    path, *ports = arguments or ("/healthz",)
    found = [status(os.environ, path, int(port)) for port in ports] or [status(os.environ, path)]
    for _, said in found:
        sys.stdout.write(f"{said}\n")
    return 0 if all(well for well, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
