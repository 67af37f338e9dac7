"""A wired application that is not started, on a loop of its own."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.topology import Topology
from streams.config.settings import Settings
from streams.faust.transport import BatchConsumer
from tests.streams.brokers import Brokers, Run
from tests.streams.fakes import wire


@pytest.fixture
def run() -> Iterator[Run]:
    """Yield what runs coroutines on one loop: Faust's services wait for ever on any but the one they were made on."""
    with asyncio.Runner() as runner:

        async def bounded(coroutine: Coroutine[Any, Any, Any]) -> Any:
            async with asyncio.timeout(10):
                return await coroutine

        yield lambda coroutine: runner.run(bounded(coroutine))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return the settings of `topology`; a test may parametrize them."""
    return Settings(data_dir=tmp_path, latency_ms=0)  # the brokers of these tests count turns


@pytest.fixture
def topology(run: Run, tmp_path: Path, settings: Settings) -> Topology:
    """Yield an application."""

    async def make() -> Topology:
        made = wire(tmp_path, settings=settings)
        made.app.consumer.loop = asyncio.get_running_loop()
        return made

    made: Topology = run(make())
    return made


@pytest.fixture
def consumer(topology: Topology) -> BatchConsumer:
    """Return the consumer of the application."""
    return topology.app.consumer


@pytest.fixture
def brokers(consumer: BatchConsumer) -> Brokers:
    """Return what the consumer believes to be its brokers."""
    made = consumer._thread = Brokers()
    return made
