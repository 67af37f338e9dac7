"""Plays histories: no sockets, no threads, virtual clocks, disks in memory."""

import asyncio
import gc
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import aiokafka.client
import faust.utils.venusian
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.producer import message_accumulator
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from faust.types.settings.base import SettingsRegistry
from mode.services import Service
from mode.threads import ServiceThread
from mode.utils.logging import CompositeLogger
from mode.utils.times import want_seconds

from agents import intake, worker
from streams.faust import application, client, fetching, standbys
from streams.records.decoding import Decoder
from streams.records.making import Reader
from streams.records.refused import Refused
from streams.records.routing import RouteDecoder
from tests.simulation import builds
from tests.simulation.commands import on_the_loop
from tests.simulation.loop import PROCESS, virtual_clocks, wall
from tests.simulation.plan import POISON, Plan
from tests.simulation.world import World

#: Where directories cost least.
SHARED: Final = Path("/dev/shm")  # noqa: S108 - a directory of its own is made there

#: Tasks of services that look at the clock and do nothing that a history shows.
IDLE: Final = ("_sampler", "_thread_keepalive", "_commit_livelock_detector")


class _Lines(logging.Handler):
    """Notes what the product logs."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line."""
        process = PROCESS.get()
        if process is not None and process.alive:
            self.world.log(f"{process.name}: {record.getMessage()}")


class _Batch(DefaultRecordBatchBuilder):  # type: ignore[misc]  # aiokafka ships no type hints
    """A record batch whose records are stamped by the virtual clock; aiokafka's reads its own in C."""

    def append(self, offset: int, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Any) -> Any:
        """Append a record, and return what is known of it; None if it does not fit."""
        return super().append(offset, int(wall() * 1000) if timestamp is None else timestamp, key, value, headers)


class _Thread:
    """Stands for the thread in which copies are kept: a task of the same process."""

    def __init__(self, target: Any, **_: object) -> None:
        self._copies: standbys.Standbys = target.__self__

    def start(self) -> None:
        """Begin to keep copies."""
        self._copies._task = asyncio.get_running_loop().create_task(self._copies._run())

    def join(self) -> None:
        """Return at once: the task has been cancelled, and its databases are closed."""


def _poisoned(events: Any) -> Any:
    """Let a worker or a router die of each record with the key `POISON`."""

    def decoded(self: Any, records: Iterable[tuple[int, Any]]) -> Any:
        taken = list(records)
        for _, record in taken:
            _show(record)
        return events(self, taken)

    return decoded


def _poisoned_sources(canonical: Any) -> Any:
    """Let an intake die of such a record."""

    def read(self: Reader, record: Any, *rest: Any) -> Any:
        _show(record)
        return canonical(self, record, *rest)

    return read


def _show(record: Any) -> None:
    if record.key == POISON and not isinstance(record.value, Refused):
        raise TypeError("a defect that this record shows")


async def _slept(self: Service, n: Any) -> None:
    """Sleep as a service does, without a task of its own for each time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(want_seconds(n)):
            await self._stopped.wait()


async def _nothing(_: object) -> None:
    """Do nothing: what this stands for keeps threads awake, and there are none."""


def _needed(tasks: Any) -> Any:
    """Leave out the tasks of services that look at the clock and do nothing else."""
    return lambda self: [each for each in tasks(self) if each.fun.__name__ not in IDLE]


def _patient(init: Any) -> Any:
    """Let a fetcher wait until something happens; it looks for that, too, now and then."""
    return lambda self, *positional, **named: init(self, *positional, **named | {"fetcher_timeout": 1.0})


#: What becomes of the product while it is simulated: no sockets, no threads, and fewer looks at what has not changed.
@contextmanager
def simulated() -> Iterator[None]:
    """Take the product's clocks and threads away, for any number of histories."""
    names = ("faust", "mode", "aiokafka", "asyncio")
    loggers = [logging.getLogger(name) for name in names]
    levels = [each.level for each in loggers]
    with ExitStack() as stack:
        stack.enter_context(virtual_clocks())
        stack.enter_context(patch.object(fetching.LoopConsumer, "on_crash", lambda *_: None))
        stack.enter_context(patch.object(application, "CONCURRENCY", 4))
        stack.enter_context(patch.object(CompositeLogger, "log", lambda *_, **__: None))
        stack.enter_context(patch.object(fetching, "FETCH_WAIT_MS", 500))
        stack.enter_context(patch.object(intake, "FETCH_WAIT_MS", 500))
        stack.enter_context(patch.object(intake, "WAIT_MS", 500))
        stack.enter_context(patch.object(worker, "LOOK_SECONDS", 1.0))
        stack.enter_context(patch.object(worker, "CHECKPOINT_PAUSE", 0.25))
        stack.enter_context(patch.object(Fetcher, "__init__", _patient(Fetcher.__init__)))
        stack.enter_context(patch.object(Service, "sleep", _slept))
        stack.enter_context(patch.object(Service, "_get_tasks", _needed(Service._get_tasks)))
        stack.enter_context(patch.object(ServiceThread, "_keepalive2", _nothing))
        stack.enter_context(patch.object(faust.utils.venusian, "attach", lambda *_, **__: None))
        stack.enter_context(patch.object(SettingsRegistry, "__getattribute__", object.__getattribute__))
        stack.enter_context(patch.object(standbys, "threading", SimpleNamespace(Thread=_Thread)))
        stack.enter_context(patch.object(message_accumulator, "DefaultRecordBatchBuilder", _Batch))
        stack.enter_context(on_the_loop())
        stack.enter_context(patch.object(Decoder, "events", _poisoned(Decoder.events)))
        stack.enter_context(patch.object(RouteDecoder, "events", _poisoned(RouteDecoder.events)))
        stack.enter_context(patch.object(Reader, "canonical", _poisoned_sources(Reader.canonical)))
        stack.enter_context(patch.object(asyncio, "new_event_loop", asyncio.get_running_loop))
        for each in loggers:
            each.setLevel(logging.CRITICAL + 1)
        stack.enter_context(patch.object(sys, "unraisablehook", lambda _: None))  # of coroutines that died amid a wait
        stack.enter_context(patch.object(gc, "collect", lambda *_: 0))  # Faust calls it at each rebalance
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)


def play(plan: Plan, judge: Callable[[World], None] = lambda _: None) -> World:
    """Play a history within `simulated`, and judge it."""
    directory = Path(tempfile.mkdtemp(prefix="trueup-simulation-", dir=SHARED if SHARED.is_dir() else None))
    log = logging.getLogger("trueup")
    before = log.level, log.propagate
    handler = None
    try:
        world = World(plan, directory)
        handler = _Lines(world)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
        with (
            patch.object(aiokafka.client, "create_conn", world.network.connect),
            patch.object(client, "create_conn", world.network.connect),
            world.disks.mounted(),
        ):
            world.run()
        builds.run(builds.BUILDS[0])
        judge(world)
        return world
    finally:
        if handler is not None:
            log.removeHandler(handler)
        log.level, log.propagate = before
        shutil.rmtree(directory, ignore_errors=True)
