"""Run a worker in a process of its own, as a deployment does."""

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
from streams.config import variables
from streams.kafka.security import Access

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).resolve().parents[1]
#: Longest start, s: 3 are normal; a busy machine with two cores has taken 15.
READY_SECONDS: Final = 60.0
#: Longest stop, s: a worker finishes its batch and commits; 2 are normal.
STOP_SECONDS: Final = 60.0


class WorkerError(RuntimeError):
    """The worker did not start, or ended by itself; the message holds the end of its log."""


class Worker:
    """A worker process. It is a context manager that kills the process at the end.

    ``environment``: the worker's ``TRUEUP_*`` settings, in addition to those of this process and to the address of its
    metrics.
    """

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        with socket.create_server((HOST, 0)) as free:
            #: Port of ``/metrics``, ``/healthz`` and ``/readyz``, on loopback.
            self.port: int = free.getsockname()[1]
        self._environment = {
            # Only this process reads the metrics, on loopback: no password, no certificate.
            **{name: value for name, value in os.environ.items() if name not in variables.meanings(Access)},
            **environment,
            "TRUEUP_METRICS_HOST": HOST,
            "TRUEUP_METRICS_PORT": str(self.port),
            # The packages are in the root, and the demo may be started in any directory.
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        }
        self._log = log

    def __enter__(self) -> Self:
        """Start the process; see `ready`."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "run", "worker"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C in the terminal must not reach the worker, which is stopped later
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    async def ready(self) -> None:
        """Wait until the worker serves its partitions.

        Raises WorkerError if it ends, or takes longer than `READY_SECONDS`.
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
        """Return the samples of its metrics. Raises WorkerError if it has ended or does not answer."""
        try:
            return await asyncio.to_thread(ScrapedSamples.of, HOST, self.port)
        except OSError as exc:
            await asyncio.sleep(0.5)  # a dying process closes its sockets before its exit status is known
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
