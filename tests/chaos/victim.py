"""Run a worker that obeys: SIGUSR1 makes it read, from the file that is its argument, what befalls it next.

``{"die_at": 3}`` kills it when its next batch has passed step 3; ``{"die_restoring": 2}`` when it has restored
two fetches of the changelog; ``{"die_folding": 1}`` when it has folded a turn again that stands in the journal;
``{"clock": 3600}`` lets its wall clock jump; ``{"file_bytes": 65536}`` limits its files, for machines where no small
disk can be mounted; ``{"freeze_at": 1}`` stops it when its next batch has passed a step. What stands in the file at the
start is obeyed from the start. A second argument names another stage to run.
"""

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import intake, logs
from agents.processor import BatchProcessor
from streams.config.settings import Settings
from streams.faust import standbys, state_table, stores
from tests.e2e.doomed import run


def main() -> int:
    """Run until the end that was ordered, or SIGTERM."""
    logs.configure()
    file = Path(sys.argv[1])
    orders: dict[str, Any] = {}
    true_time = time.time

    def read(*_: object) -> None:
        orders.clear()
        orders.update(json.loads(file.read_text()))
        shift = orders.get("clock", 0)
        time.time = lambda: true_time() + shift
        if "file_bytes" in orders:
            resource.setrlimit(resource.RLIMIT_FSIZE, (orders["file_bytes"], resource.RLIM_INFINITY))

    def probe(passed: int) -> None:
        if passed == orders.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        if passed == orders.get("freeze_at"):
            del orders["freeze_at"]
            os.kill(os.getpid(), signal.SIGSTOP)

    def counted(restore: Callable[..., None]) -> Callable[..., None]:
        def count(*arguments: Any) -> None:
            restore(*arguments)
            if "die_restoring" in orders:
                orders["die_restoring"] -= 1
                if orders["die_restoring"] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        return count

    _die_folding(orders)
    # What it is to serve, or a copy of what others serve.
    state_table.restore = standbys.restore = counted(stores.restore)  # type: ignore[attr-defined]
    if file.exists():
        read()
    intake.LOOK_SECONDS = 5.0  # type: ignore[misc]  # so that it soon learns of new partitions
    threading.Thread(target=follow, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGUSR1, read)
    return run(sys.argv[2] if len(sys.argv) > 2 else "worker", Settings.from_env(os.environ), probe)


def _die_folding(orders: dict[str, Any]) -> None:
    """End when a turn was folded again, if that is ordered."""

    async def folded(self: BatchProcessor, turn: Any) -> Any:
        done = await fold(self, turn)
        if "die_folding" in orders and any(batch.again for batch in turn):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    fold, BatchProcessor.fold = BatchProcessor.fold, folded  # type: ignore[method-assign, assignment]


def follow(parent: int) -> None:
    """End when the suite has ended, however that came about: nobody else would stop this worker."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
