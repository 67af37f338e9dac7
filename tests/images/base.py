"""What every trial of containers needs: a stand-in for the Python image, and a way to run commands."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: The stand-in for the Python image, kept between runs.
FILE: Final = ROOT / ".images/base.tar"
#: What the Python image has and a minimal Debian has not.
PACKAGES: Final = ("python3", "python3-venv", "python3-dev", "python-is-python3", "ca-certificates")
#: Longest time for one command, s; a build takes two minutes.
PATIENCE: Final = 1800.0
#: This machine's authorities, for a build whose registries are reached through one that the base does not know.
AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
#: Settings of pip in such a build.
PIP: Final = f"[global]\ncert = {AUTHORITIES}\ndisable-pip-version-check = true\n"


class EngineError(RuntimeError):
    """A command failed; the message has what it printed last."""


def absent(*tools: str) -> list[str]:
    """Return which of these programs, and of those that make the stand-in, are missing."""
    wanted = [*tools, *(() if FILE.exists() else ("debootstrap",))]
    return [tool for tool in wanted if shutil.which(tool, path=path()) is None]


def make(run: Callable[[list[str]], Any]) -> None:
    """Make the stand-in, unless it is there; ``run`` runs a command."""
    if FILE.exists():
        return
    FILE.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="trueup-images-") as directory:
        system = Path(directory) / "system"
        run(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", str(system)])
        shutil.rmtree(system / "var/cache/apt/archives")
        whole = FILE.with_suffix(".part")
        run(["tar", "-C", str(system), "-cf", str(whole), "."])
        whole.rename(FILE)


def run(
    command: Sequence[str], environment: Mapping[str, str], *, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    """Run a command in the repository and return what it printed.

    Raises EngineError if it failed and that was not expected.
    """
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment, "PATH": path()},
        timeout=PATIENCE,
    )
    if check and done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise EngineError(f"{' '.join(command)}: status {done.returncode}\n{tail}")
    return done


def path() -> str:
    """Return where programs are, those of root included."""
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"
