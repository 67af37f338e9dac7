"""Servers on this machine: finds java and a free port, and ends a server with the process that started it."""

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final, Self

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 180.0  # an idle machine with two cores takes at most 9; with a dozen busy processes more than 60
STOP_SECONDS: Final = 15.0  # the same idle machine takes 1


def java() -> str | None:
    """Return the java of JAVA_HOME, or of the PATH if that is not set; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


class Server:
    """A server process: started on entering the context or by `start`, stopped on leaving it or by `stop`.

    Notes
    -----
    On Linux the kernel kills the server when the thread that called `start` ends, even after ``kill -9`` of that
    thread's process. So call it from a thread that lives as long as the server is needed.
    """

    #: Name of the server in messages; and the error that it raises if it cannot run.
    said: ClassVar[str]
    error: ClassVar[type[RuntimeError]]

    def __init__(self, log: Path) -> None:
        #: The file with the output of all starts.
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Start the process."""
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """The exit status; None while the process exists."""
        return None if self._process is None else self._process.poll()

    def stop(self, patience: float = STOP_SECONDS) -> None:
        """Stop the process with SIGTERM; after this many seconds, with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)  # a paused process would not receive the next signal
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
            self.kill()

    def kill(self) -> None:
        """Kill the process with SIGKILL. `start` starts the same server again, with its data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def _launch(
        self, command: Sequence[str], directory: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=environment,
                process_group=0,  # Ctrl-C in a terminal must not reach the server, because its clients disconnect first
                preexec_fn=_dies_with_parent(),
            )

    def _await(self, answers: Callable[[], bool]) -> None:
        """Return when the server answers. Stop it if it does not."""
        deadline = time.monotonic() + START_SECONDS
        try:
            while not answers():
                if not self.alive:
                    said = f"{self.said} ended with {self.status} while starting; its log ends:\n{self.tail()}"
                    raise self.error(said)
                if time.monotonic() > deadline:
                    raise self.error(
                        f"{self.said} was not ready within {START_SECONDS:.0f} s; its log ends:\n{self.tail()}"
                    )
                time.sleep(0.05)
        except BaseException:
            self.stop()
            raise


class JavaServer(Server):
    """A server in a JVM.

    ``data_dir``: directory of its data and its log, which is kept over restarts. `None`: a temporary directory that
    `stop` removes.
    """

    #: Name of the server in files.
    name: ClassVar[str]

    def __init__(self, data_dir: Path | None) -> None:
        self._temporary: TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = TemporaryDirectory(prefix=f"trueup-{self.name}-")
            data_dir = Path(self._temporary.name)
        #: The directory.
        self.directory = data_dir.resolve()
        super().__init__(self.directory / f"{self.name}.log")

    def stop(self, patience: float = STOP_SECONDS) -> None:
        """Stop the JVM like any server. Remove a temporary directory."""
        super().stop(patience)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _executable(self) -> str:
        found, home = java(), os.environ.get("JAVA_HOME")
        if found is None:
            raise self.error(f"no java {f'in JAVA_HOME={home}' if home else 'on the PATH'}: install Java 17 or newer")
        return found

    def _java(self, executable: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start java. Its output goes to the log, its temporary files into the directory."""
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        options = ["-XX:+UseSerialGC", "-XX:-UsePerfData", f"-Djava.io.tmpdir={self.directory / 'tmp'}"]
        return self._launch([executable, *options, *arguments], self.directory)


def free_port(*others: int | None) -> int:
    """Return a free port below those of outgoing connections, so that no client takes it while its server is down."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server((HOST, port)):
            if port not in others:
                return port


def _dies_with_parent() -> Callable[[], None] | None:
    """Return what a child process runs before java, so that the kernel kills it when its parent ends. Linux only."""
    if sys.platform != "linux":
        return None
    prctl, parent, set_parent_death_signal = ctypes.CDLL(None).prctl, os.getpid(), 1

    def run() -> None:
        prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call of prctl
            os._exit(1)

    return run
