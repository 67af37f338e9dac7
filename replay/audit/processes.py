"""The processes of an audit: partitions have nothing in common, so each is a job for one of as many as processors.

Few records are audited in this process, because it takes less time than others take to start.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from typing import Any, Final, Self, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agents import compiled
from replay.console import Console

T = TypeVar("T")
#: Records that one process derives in about the second that others take to start.
FEW: Final = 10_000
#: Where a process reports how far it is.
_reports: list["SimpleQueue[int]"] = []


class Processes:
    """Runs jobs, and shows how far they are.

    Parameters
    ----------
    what, total
        What is done, and how much of it there is.
    records
        How many records that is about.
    """

    def __init__(self, console: Console, what: str, total: int, records: int) -> None:
        self._console, self._what, self._total, self._records = console, what, total, records
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        context = get_context("spawn")
        self._reports = context.SimpleQueue()
        self._pool: Executor
        if self._records <= FEW:
            self._stack.callback(_reports.clear)
            self._pool = self._stack.enter_context(
                ThreadPoolExecutor(1, initializer=_report_to, initargs=(self._reports,))
            )
        else:
            self._stack.enter_context(compiled.handed_on())
            processes = os.cpu_count() or 1
            self._pool = self._stack.enter_context(
                ProcessPoolExecutor(processes, context, initializer=_report_to, initargs=(self._reports,))
            )
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        hidden = not self._console.is_terminal
        progress = Progress(*columns, console=self._console, transient=True, disable=hidden)
        self._progress = self._stack.enter_context(progress)
        self._task = self._progress.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def all(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Return what jobs return, in their order."""
        running = [self._pool.submit(job) for job in jobs]
        left: set[Any] = set(running)
        while left:
            _, left = wait(left, timeout=0.2)
            while not self._reports.empty():
                self._progress.advance(self._task, self._reports.get())
        return [each.result() for each in running]


def report(more: int) -> None:
    """Tell, in a job, that so much more is done."""
    for queue in _reports:
        queue.put(more)


def _report_to(queue: "SimpleQueue[int]") -> None:
    _reports[:] = [queue]
