"""Claims on brokers that forget within seconds what they keep for days by default."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from agents.topology import build
from lab import broker as brokers
from lab.broker import Broker
from streams.config.settings import Settings
from streams.faust.changelog import Changelog, FencedError
from streams.faust.producing import FaustProducer
from streams.kafka import topics

FORGET_MS = 3000
FORGETFUL = f"""
transactional.id.expiration.ms={FORGET_MS}
transaction.remove.expired.transaction.cleanup.interval.ms=500
producer.id.expiration.ms={FORGET_MS}
producer.id.expiration.check.interval.ms=500
"""
KEPT, LEFT = 0, 1


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Yield settings of a worker on such a broker, with its topics made."""
    kafka = tmp_path / "kafka"
    kafka.mkdir()
    (kafka / "lib").symlink_to((brokers.KAFKA / "lib").resolve())
    (kafka / "server.properties").write_text((brokers.KAFKA / "server.properties").read_text() + FORGETFUL)
    monkeypatch.setattr(brokers, "KAFKA", kafka)
    with Broker() as broker:
        settings = Settings(brokers=(broker.bootstrap,), data_dir=tmp_path)
        asyncio.run(topics.create(settings, partitions=2))
        yield settings


@asynccontextmanager
async def workers(settings: Settings) -> AsyncIterator[tuple[Changelog, Changelog]]:
    """Yield the changelogs of a zombie and its heir, each of which has claimed both partitions in its turn."""
    made = []
    producers = []
    for name in ("zombie", "heir"):
        topology = build(settings, abort=lambda: None)
        producer = cast("FaustProducer", topology.app.faust.producer_transport.create_producer())
        kafka = producer._producer = producer._new_producer()  # the service around it needs a running application
        producers.append(kafka)
        await kafka.start()
        made.append(Changelog(lambda: settings.changelog, lambda producer=producer: producer, name))  # type: ignore[misc]
    for changelog in made:
        for partition in (KEPT, LEFT):
            await changelog.claim(partition)
            changelog.activate(partition)
            await changelog.append({partition: {b"a": b"1"}})
    yield made[0], made[1]
    await asyncio.gather(*(kafka.stop() for kafka in producers))


def test_a_claim_that_is_confirmed_is_not_forgotten_and_one_that_is_not_no_longer_protects(forgetful: Settings) -> None:
    async def scenario() -> None:
        async with workers(forgetful) as (zombie, heir):
            end = time.monotonic() + 3 * FORGET_MS / 1000
            while time.monotonic() < end:
                await heir.confirm(KEPT)
                await asyncio.sleep(0.25)
            with pytest.raises(FencedError, match="another worker"):
                await zombie.append({KEPT: {b"stale": b"1"}})
            with pytest.raises(FencedError, match="another worker"):
                await zombie.confirm(KEPT)
            await heir.append({KEPT: {b"b": b"1"}})
            # Why a worker that slept for long asks before it appends: nothing else would keep it out.
            with pytest.raises(FencedError, match="forgotten"):
                await zombie.confirm(LEFT)
            await zombie.append({LEFT: {b"stale": b"1"}})

    asyncio.run(scenario())
