"""When partitions are claimed: before their end is read, and never after they may have moved."""

import asyncio
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaError
from faust.tables.recovery import RebalanceAgain

from agents.topology import Topology
from state import kinds
from streams.faust.changelog import RENEW_SECONDS, FencedError
from streams.faust.transport import BatchConsumer
from streams.kafka.producer_ids import ProducerIdentity
from tests.streams.brokers import C0, Brokers, Run
from tests.streams.fakes import Producer


@pytest.fixture
def producer(topology: Topology) -> Producer:
    return cast("Producer", topology.app.faust.producer)


def claims(producer: Producer) -> list[int]:
    return sorted(sent.partition for sent in producer.sent if [row.key for row in sent.rows] == [kinds.CLAIM.key()])


async def test_partitions_are_not_given_up_while_they_are_claimed(
    topology: Topology, consumer: BatchConsumer, brokers: Brokers, producer: Producer
) -> None:
    brokers.assigned = {C0}
    answer = asyncio.Event()
    identify = producer.identify

    async def late(transactional_id: str, held: ProducerIdentity) -> ProducerIdentity:
        await answer.wait()
        return await identify(transactional_id, held)

    producer.identify = late  # type: ignore[method-assign]
    consumer._ours = True
    recovery = asyncio.create_task(cast("Any", consumer.highwaters(C0)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    recovery.cancel()  # as Faust does when another rebalance begins
    revoked = asyncio.create_task(consumer.on_partitions_revoked(set()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not revoked.done()
    answer.set()
    await revoked
    assert claims(producer) == [0]
    with pytest.raises(RebalanceAgain):
        await consumer.highwaters(C0)
    assert topology.failure is None


def test_a_claim_that_fails_ends_the_process(
    run: Run, topology: Topology, consumer: BatchConsumer, producer: Producer
) -> None:
    producer.failure = KafkaError("refused")
    consumer._ours = True
    with pytest.raises(KafkaError):
        run(consumer.highwaters(C0))
    assert topology.failure is producer.failure


def test_claims_that_grew_old_are_confirmed_and_the_store_knows_the_offset(
    run: Run, topology: Topology, producer: Producer
) -> None:
    table = topology.table
    run(topology.table.claim(0))
    table.changelog.activate(0)
    for partition in range(1, 16):
        table.changelog.release(partition)
    run(topology.renew())
    assert claims(producer) == [0]
    table.changelog._writers[0].since -= RENEW_SECONDS
    run(topology.renew())
    assert claims(producer) == [0, 0]
    table.changelog._writers[0].since -= RENEW_SECONDS
    run(table.commit(0, {b"a": b"1"}))
    claim, *noted = (kind.key() for kind in (kinds.CLAIM, kinds.INPUTS, kinds.WIDTHS))
    assert [row.key for row in producer.rows(C0.topic)] == [claim, *noted, claim, claim, b"a"]
    assert table.store.offset(0) == 5


def test_a_changelog_whose_policy_loses_rows_is_told_while_the_worker_runs(
    run: Run, topology: Topology, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    run(topology.table.claim(0))
    topology.table.changelog.activate(0)
    for policy in ("compact", "delete"):
        producer.described = producer.described._replace(policy=policy)
        run(topology.renew())
        topology.processor.tell()
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith(f"minutes in which {C0.topic} has had cleanup.policy=delete: 1. It loses rows")


def test_a_worker_that_slept_for_long_asks_before_it_appends(run: Run, topology: Topology, producer: Producer) -> None:
    table = topology.table
    run(topology.table.claim(0))
    table.changelog.activate(0)
    table.changelog._writers[0].since -= RENEW_SECONDS
    run(
        producer.identify(f"{C0.topic}-0", ProducerIdentity(-1, -1))
    )  # another worker; its claim has been forgotten by the log
    producer.newest.clear()
    with pytest.raises(FencedError):
        run(table.commit(0, {b"stale": b"1"}))
    assert [row.key for row in producer.rows(C0.topic)] == [kinds.CLAIM.key()]
