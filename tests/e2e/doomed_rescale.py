"""Run ``trueup state rescale``, kill it when a step has been passed so often: ``STEP TIMES``, then its arguments."""

import os
import signal
import sys

from cli import rescale
from streams.config.settings import Settings


def main() -> None:
    """Run until the end that was asked for."""
    step, times, width, to, *changes = sys.argv[1:]
    left = int(times)

    def probe(passed: int) -> None:
        nonlocal left
        if passed == int(step):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    rescale.run(
        Settings.from_env(os.environ), rescale.settled(os.environ, to, changes), int(width), by=None, probe=probe
    )


if __name__ == "__main__":
    main()
