"""The process for readers: it serves metrics, probes and pages, so that no reader slows the worker down.

The worker forks it before anything else starts, and it ends with the worker. When a reader comes, this process asks the
worker over a pair of sockets for what changed (`streams.metrics.mirror`). Probes do not ask the worker. Instead, a few
times a second the worker writes its health into memory that both share, so a worker that hangs or is stopped is
reported as unhealthy. A router and an intake have such a process, too: *the parent* is the process that forked it.
"""

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from mmap import mmap
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from struct import Struct
from time import monotonic, sleep
from typing import Final, NoReturn, Self
from zlib import crc32

from prometheus_client import CollectorRegistry, ProcessCollector

from agents.server import Ask, Server
from state.policies import Policies
from streams.config.settings import Settings
from streams.metrics.catalogue import READERS
from streams.metrics.mirror import PATIENCE, ChangedRows, ChangeSource, Mirror, Overview

log = logging.getLogger("trueup")

#: Time in which the loop of a live process ticks, s. Restoring a large state ticks; a hang does not.
ALIVE_SECONDS: Final = 30.0
#: The nice value of this process. If the parent wants the same processor, the parent gets most of it.
NICE: Final = 5
#: How long a start waits for its address, s. The readers of a killed worker may still hold it.
LEFT_SECONDS: Final = 2.0
#: Time between two reports of the parent's health, s.
TELL_SECONDS: Final = 0.25


#: Signals that tell a process to stop.
STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Linux: the option for a signal that a process gets when its parent ends. See prctl(2).
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)


def end_with_parent(signum: signal.Signals) -> None:
    """Let this process get a signal when its parent ends, in whatever way. Only Linux can do this."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signum)


class ReadersError(RuntimeError):
    """The process of the readers cannot be started, or has ended; the message says why."""


class Vitals:
    """The health of a process, in memory that it shares with the processes that it forks.

    If one process reads while another writes, the checksum is wrong, and the reader reads again.
    """

    _HEAD: Final = Struct("<IH")
    _WELL: Final = Struct("<d?")

    def __init__(self) -> None:
        self._shared = mmap(-1, 4096)
        self.tell("it is starting")

    def tell(self, unready: str, *, healthy: bool = True) -> None:
        """Write that the process is alive now, whether it is well, and why it is not ready (empty if it is ready)."""
        said = self._WELL.pack(monotonic(), healthy) + unready.encode()[:1000]
        self._shared[: self._HEAD.size + len(said)] = self._HEAD.pack(crc32(said), len(said)) + said

    def _read(self) -> tuple[float, bool, str]:
        """Return when the process last wrote (s of `time.monotonic`), whether it was well, and why it was not ready."""
        while True:
            checksum, size = self._HEAD.unpack_from(self._shared)
            said = self._shared[self._HEAD.size : self._HEAD.size + size]
            if crc32(said) == checksum:
                return *self._WELL.unpack_from(said), said[self._WELL.size :].decode(errors="replace")
            sleep(0.001)

    def healthy(self) -> bool:
        """Whether the process was well and alive within the last `ALIVE_SECONDS`."""
        alive, well, _ = self._read()
        return well and monotonic() - alive < ALIVE_SECONDS

    def unready(self) -> str:
        """Why the process is not ready; empty if it is ready."""
        alive, _, why = self._read()
        return why or ("" if monotonic() - alive < ALIVE_SECONDS else "it does not answer")


class _Channel:
    """Asks the parent. Only one thread at a time may use it."""

    def __init__(self, connection: Connection, failed_logins: Callable[[], int]) -> None:
        self._connection, self._failed_logins = connection, failed_logins
        #: Whether an answer is missing or incomplete.
        self._asked = False

    def __call__(self, whole: bool) -> Iterator[ChangedRows | Overview]:  # noqa: FBT001 - see `streams.metrics.mirror.Ask`
        """Yield the parent's answers; TimeoutError if the parent is silent for `PATIENCE`."""
        if self._asked:
            for _ in self._answer():  # an answer to an earlier question whose reader is gone
                pass
        self._asked = True
        self._connection.send((whole, self._failed_logins()))
        yield from self._answer()

    def _answer(self) -> Iterator[ChangedRows | Overview]:
        while self._asked:
            if not self._connection.poll(PATIENCE):
                raise TimeoutError
            each = self._connection.recv()
            self._asked = isinstance(each, ChangedRows)
            if each is None:  # the parent's log has the error
                raise TimeoutError
            yield each


class Readers:
    """The parent's view of the process for readers: a context that forks it on entry and ends it on exit.

    Raises OSError if the address cannot be taken.
    Raises ValueError if the certificate cannot be loaded.

    ``settings``: where to listen, and who may read.
    ``policies``: policies of the streams with series; None: there are none.
    ``pages``: makes the pages; None: there are none.
    """

    def __init__(
        self,
        settings: Settings,
        policies: Policies | None = None,
        pages: Callable[[Settings, Mirror], Ask] | None = None,
    ) -> None:
        #: Number of requests with a wrong name or password, when last asked.
        self.failed_logins = 0
        #: The health of the parent.
        self.vitals = Vitals()

        self._pid = 0
        self._connection, self._asks = Pipe()
        #: A pipe to which nobody writes: reading it ends when the parent has ended.
        self._end, self._life = os.pipe()
        mirror = Mirror(_Channel(self._asks, lambda: self._server.failed_logins), policies, settings.application)
        self._server = _listening(settings, self.vitals, mirror, pages and pages(settings, mirror))

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def __enter__(self) -> Self:
        """Fork, on the main thread. Raises `ReadersError` if the system allows no more processes."""
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a supervisor may have let this process ignore it
        try:
            self._pid = os.fork()
            if not self._pid:
                self._serve()
        except OSError as exc:
            os.close(self._life)
            raise ReadersError(f"the process that serves metrics and probes cannot be started: {exc.strerror}") from exc
        finally:
            self._asks.close()
            os.close(self._end)
            self._server.close()
        return self

    def _serve(self) -> NoReturn:
        status = 1
        try:
            gc.freeze()  # closing a database of the parent would wait for threads that this process does not have
            end_with_parent(signal.SIGKILL)  # even while it is stopped and cannot read the pipe
            for each in STOPS:  # a terminal sends them to all processes; the parent ends this one
                signal.signal(each, signal.SIG_IGN)
            self._connection.close()
            os.close(self._life)
            os.nice(NICE)
            with suppress(OSError):
                Path("/proc/self/comm").write_text("trueup-readers")
            self._server.start()
            os.read(self._end, 1)
            status = 0
        except BaseException:
            log.exception("cannot serve metrics and probes")
        finally:
            os._exit(status)

    def measure(self, registry: CollectorRegistry) -> None:
        """Add processor time, memory and open files of both processes to a registry."""
        ProcessCollector(registry=registry)
        ProcessCollector(READERS, lambda: self._pid, registry=registry)

    def answer(self, source: ChangeSource) -> None:
        """Answer the process's questions from now on, in a thread."""
        threading.Thread(target=self._answer, args=(source,), name="readers", daemon=True).start()

    def _answer(self, source: ChangeSource) -> None:
        with suppress(EOFError, OSError):
            while True:
                whole, self.failed_logins = self._connection.recv()
                for each in _said(source, whole):
                    self._connection.send(each)

    async def report(
        self, unready: Callable[[], str], healthy: Callable[[], bool], failed: Callable[[Exception], object]
    ) -> None:
        """Write the parent's health a few times a second, until cancelled.

        ``unready, healthy``: return the arguments of `Vitals.tell`.
        ``failed``: called once if the process has ended.
        """
        try:
            while True:
                self.tell(unready(), healthy=healthy())
                await asyncio.sleep(TELL_SECONDS)
        except Exception as exc:  # noqa: BLE001 - any error, else probes would repeat the last report
            failed(exc)

    def tell(self, unready: str, *, healthy: bool = True) -> None:
        """Write the parent's health, see `Vitals.tell`; raise `ReadersError` if the process has ended."""
        self.vitals.tell(unready, healthy=healthy)
        if self._pid:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._pid = 0
                how = os.waitstatus_to_exitcode(status)
                said = f"with status {how}" if how >= 0 else f"by signal {-how}"
                raise ReadersError(f"the process that serves metrics and probes has ended {said}")

    def __exit__(self, *_: object) -> None:
        """End the process."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
        os.close(self._life)


def _said(source: ChangeSource, whole: bool) -> Iterator[ChangedRows | Overview | None]:  # noqa: FBT001 - see `streams.metrics.mirror.Ask`
    """Yield the answers of a source; on an error, log it and yield None."""
    try:
        yield from source(whole)
    except Exception:
        log.exception("cannot read the metrics")
        yield None


def _listening(settings: Settings, vitals: Vitals, mirror: Mirror, pages: Ask | None) -> Server:
    until = monotonic() + LEFT_SECONDS
    while True:
        try:
            return Server(
                settings.metrics_host,
                settings.metrics_port,
                mirror.exposition,
                vitals.healthy,
                vitals.unready,
                pages,
                settings.access,
            )
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE or monotonic() >= until:
                raise
        sleep(0.05)
