"""Fixtures of the end-to-end tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.world import World


@pytest.fixture
def world(kafka: str, tmp_path: Path) -> Callable[..., World]:
    """Return a maker of worlds on the session's broker."""

    def make(partitions: int = 2, replication: int = 1, **settings: str) -> World:
        return World(kafka, tmp_path, partitions, replication=replication, **settings)

    return make
