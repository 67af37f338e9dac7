"""A broker that freezes, dies, or comes back with less than it had."""

import asyncio
import os
import signal
import uuid
from pathlib import Path
from struct import unpack_from

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import TopicPartition

from agents.worker import FAILED, MISCONFIGURED
from lab.broker import Broker
from streams.kafka import topics
from tests.e2e.test_losses import PATIENT, forecasts
from tests.e2e.world import World, wait_for
from tests.events import mixed
from tests.simulation.test_contract import LOADING, told


def test_a_worker_whose_broker_freezes_says_so_and_goes_on_by_itself_as_after_its_death(
    broker: Broker, tmp_path: Path
) -> None:
    # Small batches, so that the broker stops answering while there is still work.
    w = World(broker.bootstrap, tmp_path, TRUEUP_REQUEST_SECONDS="1", TRUEUP_BATCH_RECORDS="5")
    short = "TRUEUP_SESSION_SECONDS=3 is not what the brokers allow: 6 to 1800 s"
    w.refused(MISCONFIGURED, short, TRUEUP_SESSION_SECONDS="3")
    assert asyncio.run(topics.check(w.settings)) == []
    w.send(mixed(1500).sent)
    with w.worker() as worker:
        wait_for("the first records", lambda: worker.metric("records_total") > 0)
        broker.pause()
        said = f"Kafka at {broker.bootstrap} has not answered for 10 s; nothing is lost"
        wait_for("it to be said", lambda: worker.get("/readyz") == (503, f"no: {said}\n"))
        assert worker.get("/healthz")[0] == 200
        assert said in worker.get("/")[1]
        assert worker.printed.count(f'"{said}"') == 1
        broker.resume()
        wait_for("it to go on", worker.ready)
        broker.kill()
        broker.start()
        w.wait_until_applied()
        assert worker.stop() == 0
        assert "answers again" in worker.printed
    w.judge()


def shorten(directory: Path) -> None:
    """Take the last batch from the only segment of a partition, as a power loss does."""
    (log,) = directory.glob("*.log")
    data, at, last = log.read_bytes(), 0, 0
    while at < len(data) and (length := unpack_from(">i", data, at + 8)[0]):
        last, at = at, at + 12 + length
    os.truncate(log, last)
    for index in directory.glob("*.*index"):
        index.unlink()


def test_an_input_that_is_cut_and_written_anew_ends_a_worker_that_runs(broker: Broker, tmp_path: Path) -> None:
    w = World(broker.bootstrap, tmp_path, partitions=1, replication=1, **PATIENT)
    w.send(forecasts(0, 50))
    w.send(forecasts(50, 100))
    with w.worker() as worker:
        w.wait_until_applied()
        worker.process.send_signal(signal.SIGSTOP)
        broker.kill()
        shorten(broker.directory / "data" / f"{w.topic('forecasts')}-0")
        broker.start()
        w.send(forecasts(100, 700))
        worker.process.send_signal(signal.SIGCONT)
        assert worker.process.wait(90) == FAILED
        assert f"{w.topic('forecasts')}/0 offset 50 is not the record that was applied before" in worker.printed
    assert w.applied()["forecasts_issued"] == 100


def test_a_coordinator_that_comes_back_says_that_it_loads_and_not_that_nothing_is_committed(
    broker: Broker, tmp_path: Path
) -> None:
    w, group = World(broker.bootstrap, tmp_path), f"group-{uuid.uuid4()}"
    topic = w.topic("forecasts")

    async def asked() -> None:
        options = {"bootstrap_servers": broker.bootstrap, "group_id": group, "enable_auto_commit": False}
        async with AIOKafkaConsumer(**options) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.commit({TopicPartition(topic, 0): 7})
        broker.kill()
        broker.start()
        client = AIOKafkaClient(bootstrap_servers=broker.bootstrap)
        await client.bootstrap()
        try:
            *before, last = await told(client, group, topic)
        finally:
            await client.close()
        assert last == (0, [(topic, [(0, 7)])])
        assert [each for each in before if each[0] not in LOADING or each[1]] == []

    asyncio.run(asked())
