"""Whether reading stands still: then nobody waits for it any longer."""

import asyncio
from math import inf

#: How long what is left may stay as it is, s: longer than a cluster takes to replace a broker.
STILL_SECONDS = 60.0


class Standstill:
    """Watches how many offsets are left to be read. Create the object on the event loop."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._least, self._since = inf, self._time()

    def at(self, left: int) -> bool:
        """Note how many offsets are left; return whether they have not become fewer for `STILL_SECONDS`."""
        if left < self._least:
            self._least, self._since = left, self._time()
        return self._time() - self._since > STILL_SECONDS
