"""Processes that share jobs: the parts of a replay, or the partitions of an audit."""

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any, Final, Self, TypeVar

from agents import compiled

T = TypeVar("T")
#: Number of records that one process derives in about a second; others take as long to start.
FEW: Final = 10_000
#: Seconds between two looks at the progress of the processes.
LOOK_SECONDS = 0.1
#: Thresholds of the garbage collector: new objects before it runs, and runs before it looks at older objects. There are
#: many rows and tickets, and no cycles: with Python's own thresholds it takes a third to a half of the time.
_COLLECTED: Final = (1_000_000, 50, 20)

#: Signals that ask the process to end.
_ENDS = (signal.SIGINT, signal.SIGTERM)
#: The function that `report` calls while this process runs jobs.
_told: list[Callable[[int], None]] = []


class StoppedError(RuntimeError):
    """The jobs were stopped, so their results are incomplete."""


class Processes:
    """Runs jobs in other processes. It is a context. After an interruption, jobs end when they next `report`.

    ``processes``: the most processes; with 1, no process is started.
    ``show``: called now and then with the progress that jobs report.
    """

    def __init__(self, processes: int, show: Callable[[int], None]) -> None:
        self._processes, self._show = processes, show
        self._stack = ExitStack()
        self._done = 0
        #: Signals that ask for an end, while there are other processes.
        self._interrupted: Sequence[int] = ()

    def __enter__(self) -> Self:
        """Start."""
        if self._processes > 1:
            self._interrupted = self._stack.enter_context(_noted())
            self._stack.enter_context(compiled.handed_on())
            # They are not forked: a copy of a process with threads and open connections is unsafe.
            context = get_context("spawn")
            self._counter, stop = context.Value("q"), context.Event()
            given = self._counter, stop, os.getpid()
            self._pool = ProcessPoolExecutor(self._processes, context, initializer=_begin, initargs=given)
            self._stack.callback(self._pool.shutdown, cancel_futures=True)
            self._stack.callback(stop.set)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End. Raise KeyboardInterrupt if a signal came after the last jobs."""
        self._stack.close()
        if self._interrupted and kind is None:
            raise KeyboardInterrupt

    def all(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results of jobs, in the order of the jobs."""
        if self._processes <= 1:
            _told[:] = [self._add]
            try:
                with seldom_collected():
                    return [job() for job in jobs]
            finally:
                _told.clear()
        running = [self._pool.submit(job) for job in jobs]
        while True:
            ended, left = wait(running, timeout=LOOK_SECONDS, return_when=FIRST_EXCEPTION)
            self._show(self._counter.value)
            if self._interrupted:
                raise KeyboardInterrupt
            for each in ended:
                each.result()
            if not left:
                return [each.result() for each in running]

    def _add(self, more: int) -> None:
        self._done += more
        self._show(self._done)


def report(more: int) -> None:
    """Report progress from a job; raises StoppedError if the job should end."""
    for each in _told:
        each(more)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the garbage collector run rarely: after many new objects, and still more rarely on old objects."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def cores() -> int:
    """Return the number of processes that can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def enough(records: int) -> int:
    """Return the number of processes for an audit of this many records."""
    return 1 if records <= FEW else cores()


@contextmanager
def _noted() -> Iterator[list[int]]:
    """Note signals that ask for an end, and raise later: an exception now could break the pool's bookkeeping."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen  # signals go to the main thread
        return
    before = {each: signal.signal(each, lambda number, _: seen.append(number)) for each in _ENDS}
    try:
        yield seen
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _begin(counter: Any, stop: Any, parent: int) -> None:  # noqa: ANN401 - multiprocessing's
    gc.set_threshold(*_COLLECTED)
    for each in _ENDS:
        signal.signal(each, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent tells its children when to end

    def add(more: int) -> None:
        if stop.is_set() or os.getppid() != parent:
            raise StoppedError
        with counter.get_lock():
            counter.value += more

    _told[:] = [add]
