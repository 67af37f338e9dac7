"""Docker Engine with storage of its own, or the one that runs here, and a stand-in for the Python image.

A daemon that is started here has no rules of a firewall: containers reach each other by their names, and this machine
reaches their ports, which is all that a trial needs.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

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


#: How long a daemon may take to answer, s.
START_SECONDS: Final = 60.0
#: The daemon without a firewall.
DAEMON: Final = ("dockerd", "--iptables=false", "--ip6tables=false")


class EngineError(RuntimeError):
    """A command failed; the message has what it printed last."""


def absent(*tools: str) -> list[str]:
    """Return which of these programs, and of those that make the stand-in, are missing."""
    wanted = [*tools, *(() if FILE.exists() else ("debootstrap",))]
    return [tool for tool in wanted if shutil.which(tool, path=path()) is None]


def executed(
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


def _make() -> None:
    """Make the file of the stand-in."""
    FILE.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="trueup-images-") as directory:
        system, whole = Path(directory) / "system", FILE.with_suffix(".part")
        executed(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", str(system)], {})
        shutil.rmtree(system / "var/cache/apt/archives")
        executed(["tar", "-C", str(system), "-cf", str(whole), "."], {})
        whole.rename(FILE)


def missing() -> str | None:
    """Return why there can be no trial on this machine; None if there can."""
    if lacks := absent("docker"):
        return f"there is no {', '.join(lacks)}"
    if executed(["docker", "compose", "version"], {}, check=False).returncode:
        return "docker has no command 'compose': install its plugin, version 2.24 or newer"
    if _answers({}) or (not absent("dockerd") and not os.geteuid()):
        return None
    return "no Docker Engine runs here, and none can be started: it needs dockerd, and root"


class Docker:
    """Docker's command line with one daemon; see `opened`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # The classic builder: BuildKit is a plugin that not every engine has.
        self._environment = {"DOCKER_BUILDKIT": "0", **environment}

    def run(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a command of docker and return what it printed; raises `EngineError` as `executed`."""
        return executed(["docker", *arguments], self._environment, check=check)

    def stand_in(self, tag: str) -> None:
        """Make an image like Python's out of Debian's packages, which trusts whom this machine trusts."""
        if self.run("image", "inspect", tag, check=False).returncode == 0:
            return  # what is built on it is cached as long as it stays
        if not FILE.exists():
            _make()
        self.run("import", str(FILE), f"{tag}-bare")
        with TemporaryDirectory(prefix="trueup-images-") as directory:
            context = Path(directory)
            (context / "pip.conf").write_text(PIP)
            (context / "ca-certificates.crt").touch()
            if AUTHORITIES.exists():
                shutil.copy(AUTHORITIES, context)
            (context / "Dockerfile").write_text(
                f"FROM {tag}-bare\nCOPY pip.conf /etc/pip.conf\nCOPY ca-certificates.crt {AUTHORITIES}\n"
            )
            self.run("build", "--quiet", f"--tag={tag}", directory)


@contextmanager
def opened() -> Iterator[Docker]:
    """Yield docker: with the daemon that runs here, else with one that is started, and is gone with its storage."""
    if _answers({}):
        yield Docker({})
        return
    with TemporaryDirectory(prefix="trueup-docker-", ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        environment = {"DOCKER_HOST": f"unix://{place / 'socket'}"}
        options = (f"--data-root={place / 'data'}", f"--exec-root={place / 'exec'}", f"--pidfile={place / 'pid'}")
        with (place / "log").open("wb") as log:
            daemon = subprocess.Popen(
                [*DAEMON, *options, f"--host={environment['DOCKER_HOST']}"],
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": path()},
            )
        try:
            _wait(daemon, environment, place / "log")
            yield Docker(environment)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()
            executed(["umount", str(place / "exec/netns/default")], {}, check=False)  # the daemon leaves it


def _wait(daemon: "subprocess.Popen[bytes]", environment: Mapping[str, str], log: Path) -> None:
    began = time.monotonic()
    while not _answers(environment):
        if daemon.poll() is not None or time.monotonic() > began + START_SECONDS:
            raise EngineError(f"dockerd does not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.2)


def _answers(environment: Mapping[str, str]) -> bool:
    return executed(["docker", "version"], environment, check=False).returncode == 0
