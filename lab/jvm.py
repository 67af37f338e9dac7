"""Servers in Java on this machine: which java runs them, on which port, and that none outlives who started it."""

import ctypes
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

HOST: Final = "127.0.0.1"


def java() -> str | None:
    """Return the java of JAVA_HOME, or of the PATH if that is not set; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


def lacking() -> str:
    """Return what to tell somebody who has no java."""
    home = os.environ.get("JAVA_HOME")
    return f"no java {f'in JAVA_HOME={home}' if home else 'on the PATH'}: install Java 17 or newer"


def free_port(*others: int | None) -> int:
    """Return a free port below those of outgoing connections, which no client takes while its server is down."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server((HOST, port)):
            if port not in others:
                return port


def dies_with_parent() -> Callable[[], None] | None:
    """Return what a child runs before java, so that the kernel kills it when its parent ends; Linux only."""
    if sys.platform != "linux":
        return None
    prctl, parent, set_parent_death_signal = ctypes.CDLL(None).prctl, os.getpid(), 1

    def run() -> None:
        prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(1)

    return run
