"""Runs commands of operators: code that is no coroutine and calls `asyncio.run`, on the loop of a simulation.

A command has a thread of its own, and it and the loop take turns: one of both runs, the other waits. What the command
hands to `asyncio.run`, the loop runs as a task of the command's process. So the command can be killed and can stand
still wherever that task can. One that was killed unwinds at once, and nothing that it does then takes effect.
"""

import asyncio
import threading
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from tests.simulation.loop import PROCESS

T = TypeVar("T")


class KilledError(BaseException):
    """The process has ended: nothing of it may go on."""


class _Command(threading.Thread):
    """A command that runs."""

    def __init__(self, code: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._loop, self._context, self._code = asyncio.get_running_loop(), copy_context(), code
        #: What the command asks the loop to run, or how it ended; and what came of it.
        self.asked: SimpleQueue[tuple[Coroutine[Any, Any, Any] | None, Any, BaseException | None]] = SimpleQueue()
        self.answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.killed = False

    def run(self) -> None:
        """Run the code; the loop waits meanwhile."""
        _RUNNING.command = self
        events._set_running_loop(self._loop)
        try:
            self.asked.put((None, self._context.run(self._code), None))
        except BaseException as exc:  # noqa: BLE001 - whoever waits gets it
            self.asked.put((None, None, exc))
        finally:
            events._set_running_loop(None)

    def hand(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Let the loop run a coroutine, and return what it returns."""
        if self.killed:
            coroutine.close()
            raise KilledError
        self.asked.put((coroutine, None, None))
        result, error = self.answers.get()
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def kill(self) -> None:
        """Unwind, as its process has ended."""
        self.killed = True
        if self.is_alive():
            self.answers.put((None, KilledError()))
            self.join()


_RUNNING = threading.local()


def handed(coroutine: Coroutine[Any, Any, T], **_: Any) -> T:
    """Stand for `asyncio.run`."""
    return _RUNNING.command.hand(coroutine)  # type: ignore[no-any-return]


async def command(code: Callable[[], T]) -> T:
    """Run a command as a part of the process that calls, and return what it returns."""
    running = _Command(code)
    process = PROCESS.get()
    process.ends.append(running.kill)
    running.start()
    while True:
        coroutine, result, error = running.asked.get()
        if coroutine is None:
            process.ends.remove(running.kill)
            running.join()
            if error is not None:
                raise error
            return result  # type: ignore[no-any-return]
        try:
            running.answers.put((await coroutine, None))
        except Exception as exc:  # noqa: BLE001 - the command gets it
            running.answers.put((None, exc))
