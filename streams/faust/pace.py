"""Does long work in slices, with rests in between, so that turns go on at nearly their usual speed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

#: Length of a rest as a multiple of the slice before it, and its upper limit, s. Without the limit, the rest after
#: a slice in which the disk or this process stood still would delay those who wait for the end of the work.
REST: Final = 3
LONGEST: Final = 0.1


class Pace:
    """Rests after each slice of work, unless somebody waits for the end of the work.

    ``late``: whether the work is already late.
    """

    def __init__(self, late: Callable[[], bool]) -> None:
        self._late = late
        self._waiting = 0

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """A context without rests: its owner waits for the end of the work."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def slices(self, parts: Iterable[T]) -> AsyncIterator[T]:
        """Yield parts, each one slice of work, and rest after each."""
        now = asyncio.get_running_loop().time
        began = now()
        for part in parts:
            yield part
            rest = 0.0 if self._waiting or self._late() else min(REST * (now() - began), LONGEST)
            await asyncio.sleep(rest)
            began = now()


HURRIED: Final = Pace(lambda: True)
