"""One broker for the tests that freeze, kill or lose it: here no other test is on it."""

from collections.abc import Iterator

import pytest

from lab.broker import Broker


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yield a broker that allows sessions of six seconds, as brokers do by default."""
    with Broker(tmp_path_factory.mktemp("kafka"), properties="group.min.session.timeout.ms=6000") as broker:
        yield broker


@pytest.fixture
def broker(started: Broker) -> Broker:
    """Return that broker, running."""
    if not started.alive:
        started.start()
    return started
