"""Runs a worker in its own process, as a deployment does."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lab.jvm import HOST, Server, free_port
from lab.scrape import ScrapedSamples, get
from streams.config import variables
from streams.kafka.security import Access

ROOT: Final = Path(__file__).resolve().parents[1]
#: Longest stop, s. A worker finishes its batch and commits; 2 s are normal.
STOP_SECONDS: Final = 60.0


class WorkerError(RuntimeError):
    """The worker did not start, or ended by itself. The message has the end of its log."""


class Worker(Server):
    """A worker process. It does not wait for the start, see `ready`.

    ``environment``: the worker's ``TRUEUP_*`` settings, in addition to those of this process and to the address of its
    metrics.
    """

    said, error = "the worker", WorkerError

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        super().__init__(log)
        #: Port of ``/metrics``, ``/healthz`` and ``/readyz``, on loopback.
        self.port = free_port()
        self._environment = {
            # Only this process reads the metrics, on loopback, so they need no password and no certificate.
            **{name: value for name, value in os.environ.items() if name not in variables.meanings(Access)},
            **environment,
            "TRUEUP_METRICS_HOST": HOST,
            "TRUEUP_METRICS_PORT": str(self.port),
            # The packages are in the root, and the demo may be started in any directory.
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        }

    def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-m", "cli.main", "run", "worker"]
        self._process = self._launch(command, environment=self._environment)

    def ready(self) -> None:
        """Wait until the worker serves its partitions. Raises WorkerError if the worker ends or takes too long."""
        self._await(self._answers)

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
            await asyncio.sleep(0.5)  # a process that is ending closes its sockets before its exit status is known
            why = f"'s metrics cannot be read: {exc}" if self.alive else f" ended with status {self.status}"
            raise WorkerError(f"the worker{why}; its log ends:\n{self.tail()}") from exc
