"""Waits for the registry: asks until it answers, and reports how long that takes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, TypeVar

from streams.sources.registry import RegistryError

log = logging.getLogger("trueup")

#: Pause before the registry is asked again, s: the first pause, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
#: The state of a process that waits, in words.
WAITING: Final = "waiting for the schema registry"

T = TypeVar("T")


class Wait:
    """Questions that the registry has not answered yet. Any thread may ask `seconds`."""

    def __init__(self) -> None:
        #: Subject of each question that has failed once, and when it was first asked, s of a monotonic clock.
        self._began: list[tuple[float, str]] = []

    @property
    def seconds(self) -> float:
        """How long the oldest question has waited, s; 0 if none waits. A question counts once it has failed."""
        return max((monotonic() - began for began, _ in tuple(self._began)), default=0.0)

    @property
    def said(self) -> str:
        """The longest wait of a process, in words without names; empty if it does not wait."""
        waited = min(tuple(self._began), default=None)
        return "" if waited is None else f"{WAITING}, for {waited[1]}"

    async def answer(self, ask: Callable[[], Awaitable[T]], about: str, whose: str = "") -> T:
        """Ask until there is an answer, and return it.

        ``ask``: asks once. After a `RegistryError`, it is called again. Any other error is raised.
        ``about``: subject of the question, for the log and the probes.
        ``whose``: sources whose records need the answer, for the log only.
        """
        pause, began, waited = FIRST_PAUSE, monotonic(), False
        try:
            while True:
                try:
                    return await ask()
                except RegistryError as exc:
                    failure = exc
                if not waited:
                    self._began.append((began, about))
                    waited = True
                seconds, what = monotonic() - began, f"{about} of {whose}" if whose else about
                log.warning("%s, for %.0f s so far, to know %s: %s", WAITING, seconds, what, failure)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            if waited:
                self._began.remove((began, about))
