"""The processes that share out the parts of a replay."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from agents import compiled
from replay.partition_task import Done, Part, run

#: Seconds between two looks at how far the processes are.
LOOK_SECONDS = 0.1

#: Signals that ask for an end.
_ENDS = (signal.SIGINT, signal.SIGTERM)
#: Of a process of the pool: the counter and the flag that all share, and the id of the process that started it.
_shared: tuple[Any, Any, int] | None = None


class StoppedError(RuntimeError):
    """The replay was stopped; what was played so far is of no use."""


def play(parts: Sequence[Part], processes: int, show: Callable[[int], None]) -> list[Done]:
    """Play parts and return what they gave, in their order, whatever the number of processes.

    Parameters
    ----------
    parts
        At least one.
    processes
        At most so many at once; with 1 nothing is started.
    show
        Called now and then with how much was read so far, in the unit of `Source.size`.
    """
    if min(processes, len(parts)) == 1:
        read = 0

        def progress(more: int) -> None:
            nonlocal read
            read += more
            show(read)

        return [run(part, progress) for part in parts]
    with _noted() as interrupted, compiled.handed_on():
        return _shared_out(parts, min(processes, len(parts)), show, interrupted)


def _shared_out(
    parts: Sequence[Part], processes: int, show: Callable[[int], None], interrupted: Sequence[int]
) -> list[Done]:
    # Not forked: a copy of a process that has threads and open connections is not safe to go on with.
    context = multiprocessing.get_context("spawn")
    counter, stop = context.Value("q"), context.Event()
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(counter, stop, os.getpid()))
    try:
        futures = [pool.submit(_play, part) for part in parts]
        while True:
            done, left = wait(futures, timeout=LOOK_SECONDS, return_when=FIRST_EXCEPTION)
            show(counter.value)
            if interrupted:
                raise KeyboardInterrupt
            for future in done:
                future.result()
            if not left:
                return [future.result() for future in futures]
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _noted() -> Iterator[list[int]]:
    """Note the signals that ask for an end instead of raising in the midst of a pool's own bookkeeping."""
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
    global _shared  # noqa: PLW0603 - the only way an initializer has
    _shared = counter, stop, parent
    for each in _ENDS:
        signal.signal(each, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says what to do


def _play(part: Part) -> Done:
    if _shared is None:
        raise RuntimeError("not a process of the pool")
    counter, stop, parent = _shared

    def progress(more: int) -> None:
        if stop.is_set() or os.getppid() != parent:
            raise StoppedError
        with counter.get_lock():
            counter.value += more

    return run(part, progress)
