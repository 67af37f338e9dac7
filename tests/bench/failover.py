"""How long a worker's partitions go unanswered after kill -9, by session, and how often a session ends by mistake.

``python -m tests.bench.failover [SESSION ...] [--quiet S] [--burn N]``: two workers with names of their own, a steady
feed. First nothing is done for a while, next to processes that burn the machine: every partition that moves then is a
false alarm. Then one worker is killed, and not started again.
"""

import argparse
import multiprocessing
import os
import random
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.broker import Broker
from tests.e2e.world import Worker, World, wait_for
from tests.events import forecast

PARTITIONS = 4
#: Forecasts a second.
RATE = 50


def burn() -> None:
    """Keep a processor busy."""
    while True:
        random.random()


class Feed(threading.Thread):
    """Sends forecasts until it is stopped."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world = world
        self._ended = threading.Event()

    def run(self) -> None:
        """Send a second's forecasts every second."""
        n = 0
        while not self._ended.wait(1.0):
            now = int(time.time() * 1000)
            self._world.send(forecast(f"e{i}", 0.5, now) for i in range(n, n + RATE))
            n += RATE

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self.join()


def held(*workers: Worker) -> float:
    """Return how many partitions the workers serve."""
    return sum(worker.metric("held_partitions") for worker in workers if worker.metric("ready"))


def measure(bootstrap: str, directory: Path, session: int, quiet: float) -> tuple[float, float]:
    """Return how many partitions were taken up in quiet times, and for how long the killed worker's were not served."""
    world = World(bootstrap, directory, PARTITIONS, TRUEUP_SESSION_SECONDS=str(session), TRUEUP_REQUEST_SECONDS="15")
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                world.worker(TRUEUP_INSTANCE_ID=name, TRUEUP_DATA_DIR=str(directory / f"{session}-{name}"))
            )
            for name in ("one", "two")
        )
        feed = Feed(world)
        feed.start()
        stack.callback(feed.stop)
        wait_for("both to serve", lambda: held(one, two) == PARTITIONS and bool(held(one)) and bool(held(two)), 300)
        before = one.metric("opened_partitions_total") + two.metric("opened_partitions_total")
        time.sleep(quiet)
        moved = one.metric("opened_partitions_total") + two.metric("opened_partitions_total") - before
        one.kill()
        began = time.monotonic()
        wait_for("the other to take over", lambda: held(two) == PARTITIONS, 300)
        return moved, time.monotonic() - began


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", type=int, nargs="*", default=[6, 10, 15, 30])
    parser.add_argument("--quiet", type=float, default=120.0)
    parser.add_argument("--burn", type=int, default=8)
    options = parser.parse_args()
    burning = [multiprocessing.Process(target=burn, daemon=True) for _ in range(options.burn)]
    with TemporaryDirectory(prefix="trueup-failover-") as directory, Broker() as broker:
        for each in burning:
            each.start()
        for session in options.sessions:
            moved, silent = measure(broker.bootstrap, Path(directory), session, options.quiet)
            load = os.getloadavg()[0]
            print(
                f"session {session} s: {moved:g} partitions moved by mistake in {options.quiet:g} s, load {load:.0f}; "
                f"killed: not served for {silent:.1f} s",
                flush=True,
            )
    for each in burning:
        each.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
