"""Plays histories: no sockets, no threads, virtual clocks, disks in memory."""

import asyncio
import gc
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import aiokafka.client
from aiokafka.producer import message_accumulator
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from mode.utils.logging import CompositeLogger

from agents import intake
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

_collect = gc.collect
#: After so many histories what they left is cleared up: that takes longer than a tenth of a history.
CLEARED: Final = 20
_played = count(1)


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


#: What becomes of the product while it is simulated: no sockets, no threads, and fewer fetches that bring nothing.
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
        _collect()
        gc.freeze()  # what is there now is not walked through after each history
        try:
            yield
        finally:
            gc.unfreeze()
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)


def play(plan: Plan, judge: Callable[[World], None] = lambda _: None) -> World:
    """Play a history within `simulated`, and judge it."""
    directory = Path(tempfile.mkdtemp(prefix="trueup-simulation-", dir=SHARED if SHARED.is_dir() else None))
    log = logging.getLogger("trueup")
    before = log.level, log.propagate
    collecting = gc.isenabled()
    gc.disable()
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
        if collecting:
            gc.enable()
        if not next(_played) % CLEARED:
            _collect()
        shutil.rmtree(directory, ignore_errors=True)
