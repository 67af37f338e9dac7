"""Whether reading stands still, so that nobody should wait for it any longer."""

import asyncio
from math import inf

#: How long the number of offsets left may stay the same, s: longer than a cluster takes to replace a broker.
STILL_SECONDS = 60.0


class Standstill:
    """Watches how many offsets are still to be read. Create the object on the event loop."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._least, self._since = inf, self._time()

    def at(self, left: int) -> bool:
        """Note how many offsets are left; return whether their number has not fallen for `STILL_SECONDS`."""
        if left < self._least:
            self._least, self._since = left, self._time()
        return self._time() - self._since > STILL_SECONDS
