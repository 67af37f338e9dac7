"""Docker Engine with storage of its own, or the one that runs here.

A daemon that is started here has no rules of a firewall: containers reach each other by their names, and this machine
reaches their ports, which is all that a trial needs.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.images import base
from tests.images.base import EngineError

#: How long a daemon may take to answer, s.
START_SECONDS: Final = 60.0
#: The daemon without a firewall.
DAEMON: Final = ("dockerd", "--iptables=false", "--ip6tables=false")


def missing() -> str | None:
    """Return why there can be no trial on this machine; None if there can."""
    if absent := base.absent("docker"):
        return f"there is no {', '.join(absent)}"
    if base.run(["docker", "compose", "version"], {}, check=False).returncode:
        return "docker has no command 'compose': install its plugin, version 2.24 or newer"
    if _answers({}) or (not base.absent("dockerd") and not os.geteuid()):
        return None
    return "no Docker Engine runs here, and none can be started: it needs dockerd, and root"


class Docker:
    """Docker's command line with one daemon; see `opened`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # The classic builder: BuildKit is a plugin that not every engine has.
        self._environment = {"DOCKER_BUILDKIT": "0", **environment}

    def run(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a command of docker and return what it printed; raises `EngineError` as `base.run`."""
        return base.run(["docker", *arguments], self._environment, check=check)

    def stand_in(self, tag: str) -> None:
        """Make an image like Python's out of Debian's packages, which trusts whom this machine trusts."""
        if self.run("image", "inspect", tag, check=False).returncode == 0:
            return  # what is built on it is cached as long as it stays
        base.make(lambda command: base.run(command, {}))
        self.run("import", str(base.FILE), f"{tag}-bare")
        with TemporaryDirectory(prefix="trueup-images-") as directory:
            context = Path(directory)
            (context / "pip.conf").write_text(base.PIP)
            (context / "ca-certificates.crt").touch()
            if base.AUTHORITIES.exists():
                shutil.copy(base.AUTHORITIES, context)
            (context / "Dockerfile").write_text(
                f"FROM {tag}-bare\nCOPY pip.conf /etc/pip.conf\nCOPY ca-certificates.crt {base.AUTHORITIES}\n"
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
                env={**os.environ, "PATH": base.path()},
            )
        try:
            _wait(daemon, environment, place / "log")
            yield Docker(environment)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()
            base.run(["umount", str(place / "exec/netns/default")], {}, check=False)  # the daemon leaves it


def _wait(daemon: "subprocess.Popen[bytes]", environment: Mapping[str, str], log: Path) -> None:
    began = time.monotonic()
    while not _answers(environment):
        if daemon.poll() is not None or time.monotonic() > began + START_SECONDS:
            raise EngineError(f"dockerd does not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.2)


def _answers(environment: Mapping[str, str]) -> bool:
    return base.run(["docker", "version"], environment, check=False).returncode == 0
