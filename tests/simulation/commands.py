"""Runs commands of operators, as the command line runs them, on the loop of a simulation.

A command has a thread of its own, and it and the loop take turns: one of both runs, the other waits. What the command
hands to `asyncio.run`, the loop runs as a task of the command's process. So the command can be killed and can stand
still wherever that task can. One that was killed unwinds at once, and nothing that it does then takes effect.
"""

import asyncio
import fcntl
import os
import random
import sys
import threading
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import cache
from io import StringIO
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Self, TypeVar
from unittest.mock import patch
from uuid import UUID

import replay.load
from cli import history, main, rescale, skip, streams_file  # noqa: F401 - what they import has the clocks of the loop
from replay import processes
from replay.audit import auditor  # noqa: F401 - as above
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


def _handed(coroutine: Coroutine[Any, Any, T], **_: Any) -> T:
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
            running.answers.put((await asyncio.create_task(coroutine), None))
        except Exception as exc:  # noqa: BLE001 - the command gets it
            running.answers.put((None, exc))


def trueup(environment: Mapping[str, str], *arguments: str) -> str:
    """Run a command line, which is part of a `command`, and return what it prints to standard output."""
    for name in [name for name in os.environ if name.startswith("TRUEUP_") and name != "TRUEUP_COMPILED"]:
        del os.environ[name]
    os.environ.update(environment)
    _RUNNING.stdout, _RUNNING.stderr = StringIO(), StringIO()
    given = _parser()[0].parse_args(history.joined(arguments))
    given.run(given)
    return str(_RUNNING.stdout.getvalue())


@cache
def _parser() -> Any:
    return [main.parser()]


class _Printed:
    """Stands for a standard stream: what a command prints is its own."""

    def __init__(self, name: str) -> None:
        self._name, self._real = name, getattr(sys, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_RUNNING, self._name, self._real), name)


class _Runner:
    """Stands for `asyncio.Runner`."""

    run = staticmethod(_handed)
    get_loop = staticmethod(asyncio.get_running_loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _locked(file: int, _: int) -> None:
    """Stand for `fcntl.flock`: others go on while it waits."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _handed(asyncio.sleep(0.1))
        else:
            return


@contextmanager
def on_the_loop() -> Iterator[None]:
    """Let commands run on the loop: none has threads or processes, or waits where the loop does not know it."""
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ))
        for name in ("stdout", "stderr"):
            stack.enter_context(patch.object(sys, name, _Printed(name)))
        stack.enter_context(patch.object(asyncio, "run", _handed))
        stack.enter_context(patch.object(asyncio, "Runner", _Runner))
        stack.enter_context(patch.object(processes, "cores", lambda: 1))
        stack.enter_context(patch.object(replay.load, "uuid4", lambda: UUID(int=random.getrandbits(128))))
        locks = SimpleNamespace(LOCK_EX=fcntl.LOCK_EX, flock=_locked)
        stack.enter_context(patch.object(streams_file, "fcntl", locks))
        yield
