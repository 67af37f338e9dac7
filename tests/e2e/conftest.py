"""Fixtures of the end-to-end tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.audit import auditor
from tests.e2e.world import World


@pytest.fixture
def world(kafka: str, tmp_path: Path) -> Callable[..., World]:
    """Return a maker of worlds on the session's broker."""

    def make(partitions: int = 2, replication: int = 1, **settings: str) -> World:
        return World(kafka, tmp_path, partitions, replication=replication, **settings)

    return make


@pytest.fixture
def audited(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Audit a world and return the exit status and what the last line says."""

    def run(world: World, **options: Any) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        status = auditor.run(world.settings, json_output=True, **options)
        return status, orjson.loads(capsys.readouterr().out.splitlines()[-1])

    return run
