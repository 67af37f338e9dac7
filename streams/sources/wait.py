"""Waiting for the registry: it is asked again until it answers, and how long that takes is said and shown."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, TypeVar

from streams.sources.registry import RegistryError

log = logging.getLogger("trueup")

#: Pause before the registry is asked again, s: the first, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
#: What a process says of itself that waits.
WAITING: Final = "waiting for the schema registry"

T = TypeVar("T")


class Wait:
    """Questions that the registry has not answered yet; any thread may ask `seconds`."""

    def __init__(self) -> None:
        #: What each question is about that failed once, and when it was first asked, s of a clock that only counts.
        self._began: list[tuple[float, str]] = []

    @property
    def seconds(self) -> float:
        """How long the oldest question has waited, s; 0 if none does. A question counts once it has failed."""
        return max((monotonic() - began for began, _ in tuple(self._began)), default=0.0)

    @property
    def said(self) -> str:
        """The longest wait of a process, as text without names; empty if it does not wait."""
        waited = min(tuple(self._began), default=None)
        return "" if waited is None else f"{WAITING}, for {waited[1]}"

    async def answer(self, ask: Callable[[], Awaitable[T]], about: str, whose: str = "") -> T:
        """Ask until there is an answer, and return it.

        ``ask``: asks once; `RegistryError` says that asking again may help, anything else is raised.
        ``about``: what is asked for; the log names it, and so do probes.
        ``whose``: whose records ask for it; only the log names them.
        """
        pause, began = FIRST_PAUSE, monotonic()
        try:
            return await ask()
        except RegistryError as exc:
            failure = exc
        waited = began, about
        self._began.append(waited)
        try:
            while True:
                seconds, what = monotonic() - began, f"{about} of {whose}" if whose else about
                log.warning("%s, for %.0f s so far, to know %s: %s", WAITING, seconds, what, failure)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                try:
                    return await ask()
                except RegistryError as exc:
                    failure = exc
        finally:
            self._began.remove(waited)
