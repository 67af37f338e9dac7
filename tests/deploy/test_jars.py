"""deploy/maven/jars: the jars that run here are those of the locks, and no plugin of Maven's is fetched or run.

The real Maven runs, with a home of its own, on a repository of files that the tests tamper with.
"""

import hashlib
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "maven" / "jars"
#: What is fetched here, and the lock of it.
PROJECTS = {
    "deploy/kafka": "kafka.txt",
    "deploy/registry": "registry.txt",
    "deploy/clients/java": "clients.txt",
    "tests/bench/rivals/kafka_streams": "streams.txt",
}
MAVEN = "{http://maven.apache.org/POM/4.0.0}"
#: The coordinates of a dependency, or of a project, in a pom.
COORDINATES = "<groupId>test</groupId><artifactId>{}</artifactId><version>1</version>"

every_project = pytest.mark.parametrize("project", PROJECTS)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Site:
    """A project that needs the jar ``outer``, which needs ``inner``, and the repository that has both."""

    place: Path

    @property
    def lock(self) -> Path:
        return self.place / "lock.txt"

    @property
    def lib(self) -> Path:
        return self.place / "lib"

    @property
    def cache(self) -> Path:
        return self.place / "home" / ".m2" / "repository"

    def publish(self, name: str, content: bytes, *needs: str) -> None:
        """Put a jar into the repository, with the checksums that Maven itself compares."""
        self._put(f"{name}-1.jar", name, content)
        self._put(f"{name}-1.pom", name, self._pom(name, needs))

    def project(self, *needs: str) -> None:
        """Write the project; it uses this repository only."""
        url = f"<id>central</id><url>{(self.place / 'repository').as_uri()}</url>"
        where = (
            f"<repositories><repository>{url}</repository></repositories>"
            f"<pluginRepositories><pluginRepository>{url}</pluginRepository></pluginRepositories>"
        )
        (self.place / "pom.xml").write_bytes(self._pom("project", needs, where))

    def locked(self, **jars: bytes) -> None:
        """Write a lock of these jars."""
        lines = [f"{sha256(content)}  test:{name}:jar:1\n" for name, content in jars.items()]
        self.lock.write_text("# a lock\n" + "".join(lines))

    def run(self, *arguments: Path) -> "subprocess.CompletedProcess[str]":
        """Run the script on the project."""
        environment = {**os.environ, "MAVEN_OPTS": f"-Duser.home={self.place / 'home'}"}
        command = [SCRIPT, self.place / "pom.xml", self.lock, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    def fetch(self) -> "subprocess.CompletedProcess[str]":
        """Fetch what the lock lists."""
        return self.run(self.lib)

    def refused(self, jar: str) -> bool:
        """Fetch; return whether that failed, named this jar and left no jars."""
        done = self.fetch()
        return done.returncode != 0 and jar in done.stdout + done.stderr and not self.lib.exists()

    @staticmethod
    def _pom(name: str, needs: tuple[str, ...], more: str = "") -> bytes:
        needed = "".join(f"<dependency>{COORDINATES.format(each)}</dependency>" for each in needs)
        return (
            f"<project><modelVersion>4.0.0</modelVersion>{COORDINATES.format(name)}<packaging>pom</packaging>"
            f"{more}<dependencies>{needed}</dependencies></project>"
        ).encode()

    def _put(self, file: str, name: str, content: bytes) -> None:
        path = self.place / "repository" / "test" / name / "1" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.with_name(f"{file}.sha1").write_text(hashlib.sha1(content, usedforsecurity=False).hexdigest())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.publish("outer", b"outer", "inner")
    made.publish("inner", b"inner")
    made.project("outer")
    return made


def test_a_jar_that_the_repository_exchanged_is_refused(site: Site) -> None:
    site.locked(outer=b"outer", inner=b"inner")
    site.publish("inner", b"something else")
    assert site.refused("test:inner:jar:1")


def test_a_jar_that_was_exchanged_in_the_cache_is_refused(site: Site) -> None:
    site.locked(outer=b"outer", inner=b"inner")
    assert site.fetch().returncode == 0
    for path in site.lib.iterdir():
        path.unlink()
    site.lib.rmdir()
    (site.cache / "test" / "outer" / "1" / "outer-1.jar").write_bytes(b"something else")
    assert site.refused("test:outer:jar:1")


def test_a_jar_that_is_not_to_be_had_fails(site: Site) -> None:
    site.locked(outer=b"outer", absent=b"absent")
    assert site.refused("test:absent:jar:1")


@every_project
def test_a_lock_has_the_versions_that_its_project_names(project: str) -> None:
    lock = (ROOT / "requirements" / PROJECTS[project]).read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[0-9a-f]{64}  \S+:\S+:(jar|tar\.gz:all):\S+", line) for line in lock)
    locked = {line.split()[1] for line in lock}
    named = {
        ":".join(
            [
                *(each.findtext(f"{MAVEN}{word}", "") for word in ("groupId", "artifactId")),
                each.findtext(f"{MAVEN}type", "jar"),
                *filter(None, [each.findtext(f"{MAVEN}classifier")]),
                each.findtext(f"{MAVEN}version", ""),
            ]
        )
        for each in ET.parse(ROOT / project / "pom.xml").iter(f"{MAVEN}dependency")  # noqa: S314 - of this repository
    }
    assert named
    assert named <= locked


@every_project
def test_a_project_has_no_plugin_and_no_extension(project: str) -> None:
    root = ET.parse(ROOT / project / "pom.xml").getroot()  # noqa: S314 - of this repository
    assert root.findtext(f"{MAVEN}packaging") == "pom"  # any other has plugins of its own
    assert [each.tag for each in root.iter() if each.tag in {f"{MAVEN}build", f"{MAVEN}parent"}] == []


def test_every_project_is_known_and_nothing_else_calls_maven() -> None:
    known = subprocess.run(["git", "ls-files", "*pom.xml"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607 - where it is, it is on the path
    assert {str(Path(line).parent) for line in known.stdout.splitlines()} == PROJECTS.keys()
    for path in (ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / ".ci" / "packages"):
        assert not re.search(r"\bmvn\b", path.read_text()), path
