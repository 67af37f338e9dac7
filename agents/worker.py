"""The worker process. It checks, starts, serves, and ends with a status that says why."""

import asyncio
import fcntl
import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, NoReturn, cast

from agents import __version__, compiled
from agents.applying import Probe
from agents.readers import STOPS, Readers, ReadersError
from agents.server import Ask
from agents.status.pages import Pages
from agents.status.readings import Readings
from agents.topology import FULL, ROOM, Topology, build
from agents.tracing import Spans
from streams.config import output_ids
from streams.config.settings import Settings, SettingsError
from streams.faust.stores import DamagedStoreError
from streams.kafka import backlog, owners, topics
from streams.metrics.mirror import ChangeSource, Mirror

log = logging.getLogger("trueup")

#: Exit statuses of sysexits.h: EX_CONFIG for configuration errors, EX_SOFTWARE for failures while running.
MISCONFIGURED, FAILED = 78, 70
#: How long a start waits for unreachable brokers, s (as long as a cluster takes to replace one); and the pause between
#: two attempts, s.
START_SECONDS, START_PAUSE = 20.0, 0.5
#: Pause between two looks for due checkpoints, s.
CHECKPOINT_PAUSE = 0.1
#: Least free disk space at a start, bytes: four write buffers of RocksDB.
LEAST_ROOM = 64 << 20
#: Pause between two looks at the worker, s: has it crashed, is it ready, has it something to report?
LOOK_SECONDS = 0.25
#: How long a stop may take, s. Supervisors kill later than this, so the log can still say what the stop waits for.
STOP_SECONDS = 45.0


def abort(status: int = FAILED) -> NoReturn:
    """Flush the logs, then end the process as kill -9 would."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class Stage(NamedTuple):
    """A stage to run: a worker, or a router, which has the same transport, kind of state and order of effects."""

    #: Wires the stage; see `agents.topology.build`.
    build: Callable[..., Topology]
    #: Makes the stage's pages from what its gauges hold. None: there are no pages, and the gauges hold no streams.
    pages: Callable[[Settings, Mirror], Ask] | None = None
    #: Labels of those outputs of the stage that have schemas.
    writes: tuple[str, ...] = ()


WORKER: Final = Stage(
    build, lambda settings, mirror: Pages(Readings(settings, mirror, __version__)), ("calibrated", "resolved")
)


def run(settings: Settings, *, probe: Probe = lambda _: None, stage: Stage = WORKER) -> int:
    """Run a worker, or another stage, until SIGTERM or SIGINT; return its exit status.

    The status is 0 after a clean stop: the batches in flight were finished and their offsets committed. `MISCONFIGURED`
    if the topics, the metrics address, the credentials or the schemas of outputs are wrong. `FAILED` if the brokers
    cannot be reached for `START_SECONDS`, because a restart may reach them; a schema registry is waited for. `FAILED`
    also if a send or the state fails: the process then ends at once, and what was not acknowledged is done again after
    the restart.
    """
    return stand(settings, _checked, lambda readers: _serve(settings, probe, stage, readers), stage)


def stand(
    settings: Settings,
    checked: Callable[[Settings], Coroutine[Any, Any, list[str]]],
    serve: Callable[[Readers], Coroutine[Any, Any, int]],
    stage: Stage | None = None,
) -> int:
    """Check, listen and serve; return the exit status. If something prevents this, log it.

    ``checked``: returns what is wrong with the topics, or their owners.
    ``serve``: returns when it is stopped.
    ``stage``: a stage with a state in the data directory; None: there are no state and no pages.
    """
    try:
        problems = asyncio.run(checked(settings))
    except Exception as exc:  # noqa: BLE001 - any reason the brokers cannot be asked
        log.error("%s", str(exc) or type(exc).__name__)  # noqa: TRY400 - a message, not a fault
        return MISCONFIGURED if isinstance(exc, topics.TopicsError) and exc.lasting else FAILED
    for problem in problems:
        log.error(problem)
    if problems:
        return MISCONFIGURED
    pages = stage and stage.pages
    try:
        readers = Readers(settings, pages and settings.policies, pages)
    except ValueError as exc:
        log.error("%s", exc)  # noqa: TRY400 - a message, not a fault
        return MISCONFIGURED
    except OSError as exc:
        log.error("cannot listen on %s:%d: %s", settings.metrics_host, settings.metrics_port, exc.strerror)  # noqa: TRY400 - a message, not a fault
        return MISCONFIGURED
    try:
        with readers, held(settings.state_dir) if stage else nullcontext():
            return asyncio.run(serve(readers))
    except (HeldError, SettingsError, ReadersError) as exc:
        log.error("%s", exc)  # noqa: TRY400 - a message, not a fault
        return FAILED if isinstance(exc, (ReadersError, FullError)) else MISCONFIGURED


async def _checked(settings: Settings) -> list[str]:
    """Return what is wrong with the topics or their owners. Retry for a while if brokers are unreachable."""
    deadline = monotonic() + START_SECONDS
    while True:
        try:
            return await topics.check(settings) or await owners.claim(settings)
        except Exception as exc:
            lasting = isinstance(exc, topics.TopicsError) and exc.lasting
            if lasting or monotonic() >= deadline:
                raise
            log.warning("the brokers cannot be reached yet: %s", str(exc) or type(exc).__name__)
        await asyncio.sleep(START_PAUSE)


def collect_rarely() -> None:
    """Make the garbage collector run rarely, and let it ignore all objects that exist now.

    A batch makes thousands of short-lived tuples and no cycles: at the default threshold the collector walks them
    again and again, for a fifth of the throughput (measured: 48,600 events/s with it, 59,400 without).
    """
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 100)


def stop_asked() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set, and SIGHUP, which a closed terminal sends unless it is ignored.

    `STOP_SECONDS` later the process ends in any case.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def ask() -> None:
        if not stop.is_set():
            loop.call_later(STOP_SECONDS, _give_up)
        stop.set()

    for signum in STOPS:
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # `nohup` ignores it
            loop.add_signal_handler(signum, ask)
    return stop


def _give_up() -> None:
    waiting = sorted({_where(task) for task in asyncio.all_tasks()})
    log.critical(
        "not stopped within %g s: it ends as kill -9 would, which loses nothing. It waited in: %s",
        STOP_SECONDS,
        "; ".join(waiting),
    )
    abort()


def _where(task: "asyncio.Task[object]") -> str:
    """Return the chain of calls in which a task waits."""
    calls, call = [], cast("Any", task.get_coro())
    while hasattr(call, "cr_frame"):
        line = f":{call.cr_frame.f_lineno}" if call.cr_frame is not None else ""
        calls.append(f"{call.__qualname__}{line}")
        call = call.cr_await
    return " > ".join(calls)


async def _serve(settings: Settings, probe: Probe, stage: Stage, readers: Readers) -> int:
    collect_rarely()
    topology = stage.build(settings, abort=abort, probe=probe)
    spans = topology.processor.spans = Spans.wanted(settings, os.environ)
    readers.measure(topology.gauges.registry)
    topology.failed_logins = lambda: readers.failed_logins
    gauges = topology.gauges if stage.pages else None
    readers.answer(ChangeSource(topology.gauges.exposition, gauges, lambda: topology.standing))
    tell(settings, readers.port, page=stage.pages is not None)
    stop = stop_asked()
    reporting = asyncio.create_task(
        readers.report(
            lambda: topology.unready,
            lambda: topology.healthy,
            lambda exc: None if topology.stopping else topology.failed(exc),
        )
    )
    watching = asyncio.create_task(topology.app.contact.watch())
    known = await output_ids.awaited(settings, stage.writes, topology.wait, stop)
    if known is not None:
        topology.behind = True
        await backlog.awaited(settings, stop)
        topology.behind = False
        if not stop.is_set():
            await _work(topology, known, stop)
    for task in (reporting, watching):
        task.cancel()
    if spans is not None:
        await asyncio.to_thread(spans.close)
    log.info("stopped")
    return 0


async def _work(topology: Topology, settings: Settings, stop: asyncio.Event) -> None:
    """Serve until ``stop``; ``settings`` have the ids of the schemas of outputs."""
    if settings.schema_ids:
        topology.processor.registered(settings)
    if topology.publisher is not None:
        topology.publisher.start()
    running = asyncio.create_task(topology.app.start())
    writing = asyncio.create_task(_checkpoints(topology))
    told, notices, aside = "", topology.processor.notices, 0
    notices.happened(f"{settings.app_id} started, version {__version__}")
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await stop.wait()
        if crash := topology.app.crash or (running.exception() if running.done() else None):
            topology.failed(crash)
        if (now := sum(topology.app.set_aside().values())) != aside:
            aside = now
            notices.happened(f"{settings.app_id} set rows on its disk aside: see TrueupDiskDamaged")
        here = f"partitions {', '.join(map(str, sorted(topology.claims)))}"
        notices.stands(f"{settings.app_id} " + (f"not ready: {why}" if (why := topology.unready) else f"ready: {here}"))
        topology.processor.tell()
        if line := topology.progress.look(topology.app.unrestored(), monotonic()):
            log.info(line)
        said = f"not ready: {why}" if why else "ready"
        if told != said and (told or not why):
            told = said
            log.info(said)
    topology.stopping = True
    log.info("stopping: finishing the batches in flight, committing offsets")
    if topology.publisher is not None:
        await asyncio.to_thread(topology.publisher.stop)
    with topology.processor.pace.awaited():
        await writing  # if cut off, it would leave a partition without its last checkpoint
    await topology.app.stop()
    if crash := topology.app.crash:
        topology.failed(crash)


async def _checkpoints(topology: Topology) -> None:
    """Write checkpoints while turns go on."""
    while not topology.stopping:
        await asyncio.sleep(CHECKPOINT_PAUSE)
        try:
            await topology.processor.checkpoint()
        except DamagedStoreError as exc:
            topology.app.consumer.repair(exc)
        except Exception as exc:  # noqa: BLE001 - after any error rows are not written
            topology.failed(exc)


def tell(settings: Settings, port: int, *, page: bool = False) -> None:
    """Log which engine runs, and the addresses of page and metrics. Warn if anybody can read them."""
    log.info("engine: %s", "compiled" if compiled.runs() else f"interpreted: {compiled.missing(os.environ)}")
    scheme = "https" if settings.access.certfile else "http"
    place = f"{scheme}://{settings.metrics_host}:{port}/"
    if page:
        log.info("page on %s", place)
    log.info("metrics on %smetrics", place)
    for exposed in settings.exposed:
        log.warning("%s", exposed)
    if page and not settings.policies.coin:  # only the worker draws, and only the worker has a page
        log.warning(
            "TRUEUP_COIN_KEY is not set: anybody who knows an event's id can predict its draw; "
            "see docs/how-to/security.md"
        )


class HeldError(RuntimeError):
    """The directory cannot be locked; the message says why."""


class FullError(HeldError):
    """The disk is full. The process may start again once there is room."""


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Lock a directory while the context lasts, or until the process ends in any way. Make the directory if necessary.

    One worker uses a state directory at a time. RocksDB locks each partition's database, so a second worker would fail
    when a partition moves to it, long after its start. This lock stops it at its start.

    With a full disk a worker would again and again join its group, take partitions from workers that can serve them,
    and end.

    Raises HeldError if another process has locked it, or it cannot be made or locked; FullError without `LEAST_ROOM`.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise HeldError(f"cannot make the data directory {directory}: {exc.strerror}") from exc
    try:  # never remove the file: one process could lock the removed file while another locks a new one
        file = (directory / "worker").open("ab")
    except OSError as exc:
        raise HeldError(f"cannot write in the data directory {directory}: {exc.strerror}") from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise HeldError(
                f"another worker uses the data directory {directory}: give each a TRUEUP_DATA_DIR of its own"
            ) from exc
        except OSError as exc:
            raise HeldError(f"cannot lock the data directory {directory}: {exc.strerror}") from exc
        if (free := shutil.disk_usage(directory).free) < LEAST_ROOM:
            raise FullError(f"{FULL} in {directory}: {free >> 20} of {LEAST_ROOM >> 20} MiB that a start needs{ROOM}")
        yield
