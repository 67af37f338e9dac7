"""Podman with a storage of its own: builds the Dockerfile and runs what it makes, without Docker or a registry.

Everything is below one temporary directory and is gone afterwards. On a machine without systemd and with a low limit
of open files, podman needs to be told so (`CONFIG`). Its containers share the host's network: the broker of the tests
listens on loopback.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.images import base
from tests.images.base import ROOT

CONFIG: Final = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
#: How a container is confined: as docker-compose.yml and the StatefulSet do it.
CONFINED: Final = (
    "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp:size=16m,mode=1777",
    "--pids-limit=200",
)  # fmt: skip


def missing() -> str | None:
    """Return why there can be no trial on this machine; None if there can."""
    if absent := base.absent("podman", "buildah", "runc"):
        return f"there is no {', '.join(absent)}; Debian: apt-get install podman buildah runc debootstrap catatonit"
    return "debootstrap and podman's storage need root" if os.geteuid() else None


class Podman:
    """Podman's command line on one storage; see `opened`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._config = directory / "containers.conf"
        self._config.write_text(CONFIG)
        place = (f"--root={directory / 'storage'}", f"--runroot={directory / 'run'}", "--storage-driver=overlay")
        self._podman, self._buildah = ("podman", *place), ("buildah", *place)

    def run(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a command of podman and return what it printed.

        Raises EngineError if it failed and that was not expected.
        """
        return self._run([*self._podman, *arguments], check=check)

    def stand_in(self, tag: str) -> None:
        """Make an image like Python's out of Debian's packages."""
        base.make(self._run)
        self.run("import", str(base.FILE), tag)

    def build(self, target: str, tag: str, arguments: Mapping[str, str]) -> None:
        """Build a stage of the Dockerfile as it stands."""
        options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        if base.AUTHORITIES.exists():
            settings = self._directory / "pip.conf"
            settings.write_text(base.PIP)
            options += [
                f"--volume={base.AUTHORITIES.parent}:{base.AUTHORITIES.parent}:ro",
                f"--volume={settings}:/etc/pip.conf:ro",
            ]
        place = ["--layers", "--isolation=chroot", "--network=host", "--format=docker", "--file=deploy/Dockerfile"]
        self._run([*self._buildah, "bud", *place, *options, f"--target={target}", f"--tag={tag}", str(ROOT)])

    def play(self, manifests: str) -> None:
        """Start what Kubernetes' manifests say, as far as podman knows them."""
        file = self._directory / "pod.yaml"
        file.write_text(manifests)
        self.run("kube", "play", str(file))

    def close(self) -> None:
        """Remove every pod, container and volume of this storage."""
        self.run("pod", "rm", "--all", "--force", check=False)
        self.run("rm", "--all", "--force", "--time=0", check=False)
        self.run("volume", "prune", "--force", check=False)
        self._run([*self._buildah, "rm", "--all"], check=False)  # of a build that was cut short
        self.run("umount", "--all", "--force", check=False)

    def _run(self, command: list[str], *, check: bool = True) -> "subprocess.CompletedProcess[str]":
        return base.run(command, {"CONTAINERS_CONF": str(self._config)}, check=check)


@contextmanager
def opened() -> Iterator[Podman]:
    """Yield podman on a storage of its own; remove it, and all that runs there."""
    with TemporaryDirectory(prefix="trueup-images-", ignore_cleanup_errors=True) as directory:
        podman = Podman(Path(directory))
        try:
            yield podman
        finally:
            podman.close()
