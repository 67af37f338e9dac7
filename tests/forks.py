"""Programs that run in processes of their own, forked from one that has imported what they import.

What trueup imports takes a second or two of a processor, a fork a hundredth of one. The process that forks runs the
engine that an operator's would, which is the compiled one where that was made. So do those that it forks.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FORKS: Final = multiprocessing.get_context("forkserver")
#: `agents` first: it chooses the engine, and `tests`, which would choose the sources, comes too late to. Pytest is what
#: each process imports as the main module of the one that asked for it.
FORKS.set_forkserver_preload(
    ["agents.intake", "agents.router", "agents.worker", "cli.main", "cli.rescale", "cli.show", "replay.run", "pytest"]
)

#: A script, or a function that returns the exit status.
Program = Path | Callable[[], int]


class Forked:
    """A program that runs in a process of its own, used as a `subprocess.Popen`.

    ``program, arguments``: what runs, and what follows its name in ``sys.argv``.
    ``output, errors``: files to which it appends what it prints; without ``errors`` those are in ``output``.
    ``daemon``: whether it is killed with this process; then it may not start processes by `multiprocessing` itself.
    """

    def __init__(
        self,
        program: Program,
        arguments: Sequence[str],
        environment: dict[str, str],
        output: Path,
        errors: Path | None = None,
        *,
        daemon: bool = True,
    ) -> None:
        args = program, list(arguments), environment, output, errors or output
        self._process = FORKS.Process(target=_become, args=args, daemon=daemon)
        self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit status, or the negative number of the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once there is one."""
        self._process.join(timeout)
        if (status := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return status

    def send_signal(self, signum: int) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """Kill it with SIGKILL, if it runs."""
        self.send_signal(signal.SIGKILL)


def ended(
    program: Program, arguments: Sequence[str], environment: dict[str, str], timeout: float = 180.0
) -> subprocess.CompletedProcess[str]:
    """Run a program, as `subprocess.run` does, and return what it printed and its exit status."""
    with TemporaryDirectory() as directory:
        output, errors = Path(directory, "output"), Path(directory, "errors")
        forked = Forked(program, arguments, environment, output, errors, daemon=False)
        try:
            status = forked.wait(timeout)
        finally:
            forked.kill()
        return subprocess.CompletedProcess(list(arguments), status, output.read_text(), errors.read_text())


def _become(program: Program, arguments: list[str], environment: dict[str, str], output: Path, errors: Path) -> None:
    """Run a program in this process."""
    for fd, path in ((1, output), (2, errors)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), fd)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    if isinstance(program, Path):
        sys.argv = [str(program), *arguments]
        runpy.run_path(str(program), run_name="__main__")
    else:
        sys.argv = ["trueup", *arguments]
        sys.exit(program())
