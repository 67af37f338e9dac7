"""Plays a scene of the contract, on the model and on a real broker."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import aiokafka.client
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient

from tests.simulation.kafka import Kafka
from tests.simulation.loop import Loop
from tests.simulation.network import Network

#: Plays a scene: with a client, the name of a topic of two partitions, and a name that nobody else has.
Scene = Callable[[AIOKafkaClient, str, str], Coroutine[Any, Any, None]]
Play = Callable[[Scene], None]


async def _with_client(scene: Scene, bootstrap: str, topic: str) -> None:
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        await client.add_topic(topic)
        while not client.cluster.partitions_for_topic(topic):  # brokers hear of a new topic a little later
            await asyncio.sleep(0.05)
            await client.force_metadata_update()
        await scene(client, topic, f"name-{uuid.uuid4()}")
    finally:
        await client.close()


@pytest.fixture(params=["model", "broker"])
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    """Yield what plays a scene on the model, or on a real broker."""
    if request.param == "broker":
        bootstrap, topic = request.getfixturevalue("kafka"), f"contract-{uuid.uuid4()}-state-changelog"

        async def real(scene: Scene) -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            await admin.create_topics([NewTopic(topic, 2, 1)])
            await admin.close()
            async with asyncio.timeout(60):
                await _with_client(scene, bootstrap, topic)

        yield lambda scene: asyncio.run(real(scene))
        return
    loop = Loop("contract")
    kafka = Kafka(loop, {"contract-state-changelog": 2})
    network = Network(loop, kafka, "contract", lambda _: None)
    with ExitStack() as stack:
        stack.enter_context(patch.object(aiokafka.client, "create_conn", network.connect))
        yield lambda scene: loop.run_until_complete(_with_client(scene, "kafka:9092", "contract-state-changelog"))
    loop.bury()
