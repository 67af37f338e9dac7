"""Long work in slices, with rests in between, so that turns go on at nearly their usual speed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

#: Others have so many times as long as a slice took.
REST: Final = 3


class Pace:
    """Rests after each slice of work, unless there is a hurry.

    ``hurry``: whether somebody waits for the end of the work.
    """

    def __init__(self, hurry: Callable[[], bool] = lambda: True) -> None:
        self._hurry = hurry

    async def slices(self, parts: Iterable[T]) -> AsyncIterator[T]:
        """Yield parts, each a slice of work, and rest after each."""
        now = asyncio.get_running_loop().time
        began = now()
        for part in parts:
            yield part
            await asyncio.sleep(0 if self._hurry() else REST * (now() - began))
            began = now()


HURRIED: Final = Pace()
