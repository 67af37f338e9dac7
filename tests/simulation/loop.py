"""An event loop in virtual time, whose order is drawn from a seed, and the processes that live on it.

Nothing here waits: when no callback is ready, the clock jumps to the next timer. There are no sockets and no threads:
what is handed to a thread runs at once. All processes of a simulation share one loop. A process is told by a context
variable, which every callback and task inherits from whoever made it. So a process can be killed between two callbacks
as `kill -9` would, or stand still for a while and go on: its callbacks are dropped, or kept.

Within a process callbacks run in the order in which they became ready, as asyncio promises. Which process runs next is
drawn from the seed.
"""

import asyncio
import heapq
import random
import sys
import time
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime
from itertools import count
from types import FunctionType, ModuleType
from typing import Any, Final

from state.formats import ARITHMETIC
from tests.simulation import builds

#: What the clocks say when a simulation begins: ms since 1970, as s.
BEGIN: Final = 1_700_000_000.0
#: How long a callback takes, s: time passes, however little, in a loop that never waits.
STEP: Final = 1e-5
#: So many callbacks of a process run at most before another's may.
IN_TURN: Final = 8


class Process:
    """A process on the loop."""

    def __init__(self, name: str, number: int = 0) -> None:
        #: The first is also that of the process that follows it.
        self.name, self.identity = name, f"{name}.{number}"
        #: Whether its callbacks run (once dead it stays dead), whether they are kept meanwhile, and how far its wall
        #: clock is ahead, s.
        self.alive, self.stands, self.ahead = True, False, 0.0
        #: After so many callbacks it is struck; None: it is not.
        self.left: int | None = None
        self.struck: Callable[[], None] = lambda: None
        self.ready: deque[Handle] = deque()
        #: Tasks of a dead process are kept: what clears up when they are collected would run at a time of its own.
        self.tasks: list[asyncio.Task[Any]] = []
        #: Called when it ends.
        self.ends: list[Callable[[], None]] = []
        #: Version of the arithmetic of its build.
        self.build = ARITHMETIC


#: The process that a callback belongs to; the brokers and the simulation itself are None.
PROCESS: Final[ContextVar[Any]] = ContextVar("PROCESS", default=None)


class Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory."""

    def __hash__(self) -> int:
        return self.number  # type: ignore[attr-defined, no-any-return]


class Future(asyncio.Future[Any]):
    """The same of a future, which few sets have: it is numbered when it comes to the first."""

    number = 0

    def __hash__(self) -> int:
        if not self.number:
            self.number = self.get_loop()._number()  # type: ignore[attr-defined]
        return self.number


class Handle:
    """A callback that is to run; asyncio's own costs twice as much."""

    __slots__ = ("args", "callback", "context")

    def __init__(self, callback: Any, args: Any, context: Context) -> None:
        self.callback, self.args, self.context = callback, args, context

    def cancel(self) -> None:
        """Let it not run."""
        self.callback = self.args = None

    def cancelled(self) -> bool:
        """Whether it will not run."""
        return self.callback is None


class Loop(asyncio.BaseEventLoop):
    """The loop.

    ``seed``: of the order of processes.
    """

    def __init__(self, seed: str) -> None:
        super().__init__()
        #: Callbacks run so far: ``steps``.
        self.rng, self.now, self.steps = random.Random(seed), 0.0, 0
        self._number, self._own = count(1).__next__, Process("")
        self._processes = [self._own]
        self.ended: list[Process] = []
        self._timers: list[tuple[float, int, Process, Handle]] = []
        self.set_task_factory(self._task)
        self.set_exception_handler(self._failed)
        self.errors: list[BaseException] = []

    def process(self, name: str, number: int) -> Process:
        """Return a new process, which does nothing yet; see `within`."""
        made = Process(name, number)
        self._processes.append(made)
        return made

    def kill(self, process: Process) -> None:
        """End a process: none of its callbacks runs any more."""
        process.alive = False
        process.ready.clear()
        self._processes = [each for each in self._processes if each is not process]
        self.ended.append(process)
        for each in process.ends:
            each()

    def bury(self) -> None:
        """End all processes, and clear up what they left: none of it can do anything any more."""
        for process in self._processes[1:]:
            self.kill(process)
        events._set_running_loop(self)
        try:
            for process in self.ended:
                with within(process):
                    for task in process.tasks:
                        task._log_destroy_pending = False  # type: ignore[attr-defined]
                        if not task.done():
                            _close(task.get_coro())
                process.tasks.clear()
        finally:
            events._set_running_loop(None)
        self.close()

    def time(self) -> float:
        """Return virtual seconds since the simulation began."""
        return self.now

    def _failed(self, _: object, context: dict[str, Any]) -> None:
        """Keep what goes wrong in the simulation itself; what processes do not look at is theirs."""
        if PROCESS.get() is None and "exception" in context:
            self.errors.append(context["exception"])

    def _task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Task:
        task = Task.__new__(Task)
        task.number = self._number()  # type: ignore[attr-defined]
        task.__init__(coroutine, loop=loop, **options)  # type: ignore[misc]
        process = PROCESS.get()
        if process is not None:
            process.tasks.append(task)
        return task

    def create_task(self, coro: Any, **options: Any) -> Task:
        """Begin a task."""
        return self._task(self, coro, **options)

    def create_future(self) -> Future:
        """Return a future."""
        return Future(loop=self)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        """Run a callback as its process's next."""
        context = copy_context() if context is None else context
        handle = Handle(callback, args, context)
        process = context.get(PROCESS) or self._own
        if process.alive:
            process.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        """Run a callback at a time."""
        return self.call_later(when - self.now, callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        """Run a callback after some seconds."""
        context = copy_context() if context is None else context
        handle = Handle(callback, args, context)
        heapq.heappush(self._timers, (self.now + delay, self._number(), context.get(PROCESS) or self._own, handle))
        return handle

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # noqa: ARG002 - as asyncio's
        """Run what is meant for a thread at once."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as exc:  # noqa: BLE001 - whoever waits gets it
            done.set_exception(exc)
        return done

    def _run_once(self) -> None:
        """Run some callbacks of a process, or let time pass until there is one."""
        timers = self._timers
        while timers and (timers[0][0] <= self.now or timers[0][3].callback is None):
            _, _, process, timer = heapq.heappop(timers)
            if process.alive:
                process.ready.append(timer)
        able = [each for each in self._processes if each.ready and not each.stands]
        if not able:
            if not timers:
                raise RuntimeError("nothing is left to run")
            self.now = max(self.now, timers[0][0])
            return
        self._run_in_turn(able[0] if len(able) == 1 else able[int(self.rng.random() * len(able))])

    def _run_in_turn(self, process: Process) -> None:
        ready = process.ready
        for _ in range(IN_TURN):
            if not ready or process.stands:
                return
            handle = ready.popleft()
            if handle.callback is None:
                continue
            self.now += STEP
            self.steps += 1
            if process.build != builds.RUNNING:
                builds.run(process.build)
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as exc:  # noqa: BLE001 - as asyncio's
                self.call_exception_handler({"message": "a callback raised", "exception": exc})
            if process.left is not None:
                process.left -= 1
                if process.left < 0:
                    process.left = None
                    process.struck()

    def _write_to_self(self) -> None:
        """Do nothing: no other thread has to wake the loop."""

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no sockets."""


def _close(coroutine: Any) -> None:
    """Close a coroutine, even if it awaits something while it unwinds."""
    for _ in range(100):
        try:
            coroutine.close()
        except RuntimeError:  # it has awaited something
            continue
        except BaseException:  # noqa: BLE001, S110 - nobody waits for it
            pass
        return


@contextmanager
def within(process: Process | None) -> Iterator[None]:
    """Let what is begun here belong to a process."""
    token = PROCESS.set(process)
    try:
        yield
    finally:
        PROCESS.reset(token)


def _now() -> float:
    loop = events._get_running_loop()
    return loop.now if isinstance(loop, Loop) else 0.0


def wall() -> float:
    """Return what the wall clock of the process that runs says, s since 1970."""
    process = PROCESS.get()
    return BEGIN + _now() + (process.ahead if process else 0.0)


class _Datetime(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.fromtimestamp(wall(), tz or UTC)


class _Time(ModuleType):
    """The module `time` with other clocks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def _with_defaults(each: Any) -> Iterator[FunctionType]:
    """Yield the functions of a module's value that have defaults: itself, or methods."""
    for function in (each, *(vars(each).values() if isinstance(each, type) else ())):
        if isinstance(function, FunctionType) and (function.__defaults__ or function.__kwdefaults__):
            yield function


@contextmanager
def virtual_clocks() -> Iterator[None]:
    """Let all modules of the product, and of what it runs on, read the clocks of the loop that runs."""
    module = _Time("time")
    module.__dict__.update(monotonic=_now, perf_counter=_now, time=wall)
    pairs = ((time.monotonic, _now), (time.perf_counter, _now), (time.time, wall), (time, module))
    clocks: dict[int, Any] = {id(real): other for real, other in (*pairs, (datetime, _Datetime))}
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    defaults: list[tuple[FunctionType, Any, Any]] = []
    for name, each in list(sys.modules.items()):
        if name.partition(".")[0] not in ("agents", "cli", "replay", "state", "streams", "faust", "mode", "aiokafka"):
            continue
        for key, value in list(vars(each).items()):
            if (other := clocks.get(id(value))) is not None:
                replaced.append((vars(each), key, value))
                vars(each)[key] = other
            for function in _with_defaults(value):
                given, named = function.__defaults__ or (), function.__kwdefaults__ or {}
                if any(id(one) in clocks for one in (*given, *named.values())):
                    defaults.append((function, function.__defaults__, function.__kwdefaults__))
                    function.__defaults__ = tuple(clocks.get(id(one), one) for one in given)
                    function.__kwdefaults__ = {key: clocks.get(id(one), one) for key, one in named.items()}
    try:
        yield
    finally:
        for names, key, value in replaced:
            names[key] = value
        for function, positional, keywords in defaults:
            function.__defaults__, function.__kwdefaults__ = positional, keywords
