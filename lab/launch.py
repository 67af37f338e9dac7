"""A worker as a process of its own, as a deployment would start it."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Final, Self

from lab.scrape import ScrapedSamples, get
from streams.config.settings import ACCESS

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).resolve().parents[1]
#: 3 are normal; a busy machine with two cores has taken 15.
READY_SECONDS: Final = 60.0
#: A stopping worker finishes its batch and commits; 2 are normal.
STOP_SECONDS: Final = 60.0


class WorkerError(RuntimeError):
    """The worker did not start, or ended by itself; the message holds the end of its log."""


class Worker:
    """A worker process; a context, which kills what still runs when it is left.

    Parameters
    ----------
    environment
        The worker's ``TRUEUP_*`` settings, in addition to those of this process; where its metrics listen is added.
    log
        File for what it prints.

    Attributes
    ----------
    port
        Of ``/metrics``, ``/healthz`` and ``/readyz``, on loopback.
    """

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        with socket.create_server((HOST, 0)) as free:
            self.port: int = free.getsockname()[1]
        self._environment = {
            # Nobody but us reads its metrics, on loopback: no password, no certificate.
            **{name: value for name, value in os.environ.items() if name not in ACCESS},
            **environment,
            "TRUEUP_METRICS_HOST": HOST,
            "TRUEUP_METRICS_PORT": str(self.port),
            # The root is where the packages are, whatever the directory the demo was started in.
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        }
        self._log = log

    def __enter__(self) -> Self:
        """Start the process; see `ready`."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "worker"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # a Ctrl-C in the terminal is for us; the worker is told in order
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    async def ready(self) -> None:
        """Return when it serves its partitions.

        Raises
        ------
        WorkerError
            If it ends instead, or takes longer than `READY_SECONDS`.
        """
        deadline = monotonic() + READY_SECONDS
        while not await asyncio.to_thread(self._answers):
            self.check()
            if monotonic() > deadline:
                raise WorkerError(
                    f"the worker was not ready within {READY_SECONDS:.0f} s; its log ends:\n{self.tail()}"
                )
            await asyncio.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return get(HOST, self.port, "/readyz")[0] == 200
        except OSError:
            return False

    async def scrape(self) -> ScrapedSamples:
        """Return what its metrics say.

        Raises
        ------
        WorkerError
            If it has ended or does not answer.
        """
        try:
            return await asyncio.to_thread(ScrapedSamples.of, HOST, self.port)
        except OSError as exc:
            await asyncio.sleep(0.5)  # a process that dies closes its sockets before it can be waited for
            self.check()
            raise WorkerError(f"the worker's metrics cannot be read: {exc}; its log ends:\n{self.tail()}") from exc

    def check(self) -> None:
        """Raise `WorkerError` if it has ended."""
        status = self._process.poll()
        if status is not None:
            raise WorkerError(f"the worker ended with status {status}; its log ends:\n{self.tail()}")

    async def stop(self) -> int:
        """Send SIGTERM and return the exit status; negative if it had to be killed."""
        self._process.terminate()
        try:
            return await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
