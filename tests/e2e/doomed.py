"""Run a worker that kills itself: ``doomed.py STEP BATCHES`` dies when so many batches have passed the step."""

import os
import signal
import sys

from agents import logs, worker
from streams.settings import Settings


def main() -> int:
    """Run until the end that was asked for."""
    logs.configure()
    step, left = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 1 else (0, 0)

    def probe(passed: int) -> None:
        nonlocal left
        if passed == step:
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return worker.run(Settings.from_env(os.environ), probe=probe)


if __name__ == "__main__":
    sys.exit(main())
