"""Spreads a reader's work, so that answers to forecasts seldom wait for it.

Readers of metrics and pages share one interpreter with the worker. An answer that is under way waits for the piece that
is being worked on: a millisecond or two. Pieces in a row make it wait at each of its steps. With rests between them it
waits once, if at all.
"""

from collections.abc import Callable
from time import monotonic, sleep, thread_time
from typing import Final

#: The share of a processor that readers get, and how much of it they may use at once after a while without work, s.
SHARE: Final = 0.1
BURST: Final = 0.03
#: The shortest rest, s: enough for an answer that waits. The least work that asks for one, s.
REST: Final = 0.001
PIECE: Final = 0.001


class Pace:
    """Rests before each piece of work, so that work has its share of the time on average.

    One thread at a time may use it.

    Parameters
    ----------
    clock, used, rest
        Tell the time and the processor time of this thread, s, and let time pass.
    """

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        used: Callable[[], float] = thread_time,
        rest: Callable[[float], None] = sleep,
    ) -> None:
        self._clock, self._used, self._sleep = clock, used, rest
        #: When the next piece may begin, and what this thread had used when the present one began, s.
        self._next, self._began = 0.0, 0.0

    def begin(self, most: float = 10.0) -> None:
        """Rest for the work that was done, but no longer than ``most`` seconds; then begin a piece."""
        now = self._clock()
        self._next = min(max(self._next, now - BURST / SHARE), now + most)
        self._sleep(max(REST, self._next - now))
        self._began = self._used()

    def end(self) -> None:
        """End a piece."""
        self._next += (self._used() - self._began) / SHARE

    def rest(self) -> None:
        """End a piece and begin the next, unless this one is still short."""
        if self._used() - self._began >= PIECE:
            self.end()
            self.begin()
