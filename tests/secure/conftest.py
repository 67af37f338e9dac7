"""One secured broker for a run of pytest, which the tests of this directory share."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from streams.config.settings import Settings
from streams.kafka.permissions import Grant, needed
from tests.e2e.world import World
from tests.secure import certificates, fortress
from tests.secure.fortress import OPERATOR, WORKER, Fortress
from tests.secure.realm import Realm, missing

MakeWorld = Callable[..., World]


@pytest.fixture(scope="session")
def stronghold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    """Yield where the listeners of a running broker are."""
    directory = tmp_path_factory.mktemp("fortress")
    realm = None if missing() else Realm(directory / "realm", (OPERATOR, WORKER))
    broker, made = fortress.build(certificates.issue(directory), directory / "broker", realm)
    with realm.running() if realm else nullcontext(), broker:
        yield made


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """Collect what a test has left, here: aiokafka leaves the sockets of refused TLS connections to the collector.

    Set up first, so torn down last: by then nothing holds the exceptions, which hold the connections.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def world(stronghold: Fortress, tmp_path: Path) -> MakeWorld:
    """Return a maker of worlds whose tests use the open listener; their workers are granted what they need."""

    def make(partitions: int = 1, *, granted: bool = True, **settings: str) -> World:
        made = World(stronghold.open, tmp_path, partitions, replication=1, **settings)
        if granted:
            grant_all(stronghold, made.settings)
        return made

    return make


def grant_all(stronghold: Fortress, settings: Settings) -> None:
    """Grant the worker's user exactly what the program says it needs."""
    for grant, operation in single(settings):
        stronghold.grant(grant.kind, grant.name, operation, prefixed=grant.prefixed)


def single(settings: Settings) -> list[tuple[Grant, str]]:
    """Return each grant with each of its operations."""
    return [(grant, operation) for grant in needed(settings) for operation in grant.operations]
