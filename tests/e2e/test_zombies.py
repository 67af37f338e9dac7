"""A worker that is stopped past its session and wakes: what it appends then is refused, and nothing is harmed."""

import shutil
import signal
from pathlib import Path

from agents.worker import FAILED
from tests.e2e.world import MakeWorld, Worker, wait_for
from tests.events import mixed

#: Long enough for a busy machine to answer in, short enough to wait for.
BRIEF = {"TRUEUP_SESSION_SECONDS": "4", "TRUEUP_REQUEST_SECONDS": "4"}


def frozen(worker: Worker) -> bool:
    """Whether the process is stopped; fails at once if it has ended."""
    assert worker.process.poll() is None, worker.printed[-4000:]
    return Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def test_a_worker_frozen_before_its_append_is_refused_and_ends(world: MakeWorld) -> None:
    w = world(partitions=1, TRUEUP_BATCH_RECORDS="100", **BRIEF)
    w.send(mixed(700, seed=3).sent)
    # Of a later batch, outputs on their way might time out first.
    with w.worker("--freeze", "2", "1", TRUEUP_DATA_DIR=str(w.directory / "zombie")) as zombie:
        wait_for("the worker to freeze", lambda: frozen(zombie))
        with w.worker() as heir:
            w.wait_until_applied()
            zombie.process.send_signal(signal.SIGCONT)
            assert zombie.process.wait(60) == FAILED, zombie.printed[-4000:]
            assert "FencedError: another worker has taken over partition" in zombie.printed
            assert heir.process.poll() is None, heir.printed[-4000:]
    w.judge()
    # What an empty disk recovers is what the heir wrote, and it is complete.
    shutil.rmtree(w.directory / "data")
    w.serve(mixed(200, seed=4, start=3_000_000).sent)
    w.judge()
