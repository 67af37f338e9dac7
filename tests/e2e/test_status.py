"""The process that serves metrics, probes and pages: with a password, and when it is killed."""

import os
import signal
from pathlib import Path

from agents.worker import FAILED
from tests.e2e.world import MakeWorld, wait_for
from tests.events import mixed


def test_a_worker_whose_readers_are_killed_ends_and_the_next_goes_on_at_the_same_port(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.send(mixed(300).sent)
    with w.worker() as worker:
        w.wait_until_applied()
        pid, port = worker.process.pid, worker.port()
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert Path(f"/proc/{child}/comm").read_text() == "trueup-readers\n"
        os.kill(int(child), signal.SIGKILL)
        assert worker.process.wait(30) == FAILED
        assert "the process that serves metrics and probes has ended" in worker.printed
    with w.worker(TRUEUP_METRICS_PORT=str(port)) as worker:
        wait_for("the worker", worker.ready)
        worker.kill()
    password = {"TRUEUP_METRICS_USERNAME": "ops", "TRUEUP_METRICS_PASSWORD": "secret"}
    with w.worker(TRUEUP_METRICS_PORT=str(port), **password) as worker:  # the readers of the one before let go of it
        wait_for("the worker", worker.ready)
        assert [worker.get(path)[0] for path in ("/", "/metrics")] == [401, 401]
        assert worker.stop() == 0
    w.judge()
