"""Whether any broker answers. It is known from the requests that a process's clients send anyway.

It sends no requests of its own: a consumer fetches and sends heartbeats all the time. If one of several brokers is
away, that is not silence, because the others answer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

log = logging.getLogger("trueup")

#: Kafka counts as silent after so long without an answer, s.
SECONDS: Final = 10.0
#: Time between two looks, s. Silence is reported this much early, so that probes and pages know of it in time.
LOOK, EARLY = 0.25, 1.0
#: No answer of a working cluster takes longer than this, s.
SLOW: Final = 2.0


class Contact:
    """The contact of one process's clients to the brokers; any thread may use it.

    ``brokers``: addresses of the cluster, for the message.
    """

    def __init__(self, brokers: Sequence[str]) -> None:
        self._brokers = ", ".join(brokers)
        #: A message that Kafka does not answer; empty while it answers.
        self.lost = ""
        #: When the first request after the last answer was sent; None if no request waits.
        self._since: float | None = None
        #: End of the last silence longer than `SLOW`.
        self._regained = float("-inf")

    def asked(self) -> None:
        """Note that a request is sent, or a connection opened."""
        if self._since is None:
            self._since = monotonic()

    def answered(self) -> None:
        """Note that a broker has answered."""
        if self.silence > SLOW:
            self._regained = monotonic()
        self._since = None

    @property
    def silence(self) -> float:
        """How long requests have waited without any answer, s; 0 if none waits."""
        since = self._since
        return 0.0 if since is None else monotonic() - since

    async def watch(self) -> None:
        """Keep `lost` up to date until cancelled. Log once that Kafka is silent, and once that it is back."""
        looked = began = monotonic()
        while True:
            now = monotonic()
            if now - looked > SLOW and self._since is not None:
                self._since = now  # this process was paused, which says nothing about Kafka
            looked, silence = now, self.silence
            if not self.lost and silence >= SECONDS - EARLY:
                began = now - silence
                self.lost = f"Kafka at {self._brokers} has not answered for {SECONDS:g} s; nothing is lost"
                log.warning(self.lost)
            elif self.lost and silence < SLOW:
                self.lost = ""
                log.warning("Kafka at %s answers again, after %.0f s", self._brokers, now - began)
            await asyncio.sleep(LOOK)

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Bound a wait for brokers, as `asyncio.timeout` does, but stop the clock while all brokers are silent.

        Raises TimeoutError after ``seconds`` in which brokers answered.
        """
        loop = asyncio.get_running_loop()
        look: asyncio.TimerHandle

        def extend() -> None:
            nonlocal look
            if limit.expired():  # in this turn of the loop
                return
            if self.silence > min(SLOW, seconds / 4) or monotonic() - self._regained < seconds:
                limit.reschedule(max(limit.when() or 0.0, loop.time() + seconds))
            look = loop.call_later(seconds / 8, extend)

        async with asyncio.timeout(seconds) as limit:
            look = loop.call_later(seconds / 8, extend)  # the last look is shortly before the end
            try:
                yield limit
            finally:
                look.cancel()
