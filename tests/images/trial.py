"""A trial: findings that are printed one by one, and what it waits for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: Longest wait for anything in a container, s.
PATIENCE: Final = 120.0


class Trial:
    """What was found out, and whether all of it is as it should be."""

    def __init__(self) -> None:
        self.failed = 0

    def found(self, claim: str, holds: bool, evidence: object = "") -> bool:  # noqa: FBT001 - a finding is its two values
        """Print a finding, and return whether it holds."""
        self.failed += not holds
        print(f"{'ok    ' if holds else 'WRONG '} {claim}{f': {evidence}' if str(evidence) else ''}", flush=True)
        return holds

    def becomes(self, claim: str, condition: Callable[[], bool]) -> bool:
        """Wait for a condition, and print whether it came."""
        began = time.monotonic()
        while not (holds := _holds(condition)) and time.monotonic() < began + PATIENCE:
            time.sleep(0.1)
        return self.found(claim, holds, f"after {time.monotonic() - began:.1f} s")

    @contextmanager
    def timed(self, claim: str) -> Iterator[None]:
        """Print how long something took."""
        began = time.monotonic()
        yield
        self.found(claim, holds=True, evidence=f"{time.monotonic() - began:.0f} s")

    def over(self) -> int:
        """Print the sum of it, and return the exit status."""
        print(f"{self.failed} wrong" if self.failed else "all as it should be")
        return 1 if self.failed else 0


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except OSError:
        return False
