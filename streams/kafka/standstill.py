"""Whether reading stands still, so that nobody should wait for it any longer."""

from collections.abc import Callable
from math import inf

#: How long the number of offsets left may stay the same, s: longer than a cluster takes to replace a broker.
STILL_SECONDS = 60.0


class Standstill:
    """Watches how many offsets are left to be read; ``time``: the clock of the event loop, s."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._least, self._since = inf, self._time()

    def at(self, left: int) -> bool:
        """Note how many offsets are left; return whether their number has not fallen for `STILL_SECONDS`."""
        if left < self._least:
            self._least, self._since = left, self._time()
        return self._time() - self._since > STILL_SECONDS
