"""Run a worker that meets with an accident.

``--kill STEP BATCHES`` kills it when so many batches have passed the step of the order of effects; ``--slow-seeks S``
delays the return of every seek, so that fetches already under way come back after it.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping

from faust.types import TP

from agents import logs, worker
from streams.settings import Settings
from streams.transport import Thread


def main() -> int:
    """Run until the end that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", type=int, nargs=2, default=(0, 0))
    parser.add_argument("--slow-seeks", type=float, default=0.0)
    options = parser.parse_args()
    logs.configure()
    step, left = options.kill

    def probe(passed: int) -> None:
        nonlocal left
        if passed == step:
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if options.slow_seeks:
        slow_down(options.slow_seeks)
    return worker.run(Settings.from_env(os.environ), probe=probe)


def slow_down(seconds: float) -> None:
    """Let every seek return late."""
    seek = Thread.seek_wait

    async def late(self: Thread, partitions: Mapping[TP, int]) -> None:
        await seek(self, partitions)
        await asyncio.sleep(seconds)

    Thread.seek_wait = late  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    sys.exit(main())
