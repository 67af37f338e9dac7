"""A transaction that nobody ends holds back what lies behind it, and is named: lag does not see it."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from streams.kafka import transactions
from streams.kafka.transactions import HeldBack
from tests.e2e.world import MakeWorld, wait_for
from tests.events import forecast


def test_a_hanging_transaction_is_counted_and_its_producer_named(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "HANGING", 0.0)
    one = world(partitions=1)
    topic, place = one.topic("forecasts"), TopicPartition(one.topic("forecasts"), 0)
    ours, theirs = ([forecast(f"{name}{i}", 0.5, i) for i in range(20)] for name in "ab")
    one.send(ours)

    async def hang(worker_sees: Callable[[], None]) -> None:
        owner = AIOKafkaProducer(
            bootstrap_servers=one.bootstrap, transactional_id=f"pay-{one.name}", transaction_timeout_ms=600_000
        )
        async with owner, owner.transaction():
            await owner.send_and_wait(topic, forecast("open", 0.5, 30).value, partition=0)
            await asyncio.to_thread(one.send, theirs)
            await asyncio.to_thread(worker_sees)
            held = HeldBack(["kafka:9092"])
            await held.look({place: (20, 41)}, owner.client)
            (said,) = held.said
            assert said.startswith(f"{topic}/0 cannot be read beyond offset 20: ")
            assert f"a transaction of transactional id 'pay-{one.name}', producer " in said
            assert said.endswith(
                f"kafka-transactions.sh --bootstrap-server kafka:9092 abort --topic {topic} --partition 0 "
                "--start-offset 20"
            )
            await held.look({place: (20, 42)}, owner.client)
            assert [record.message for record in caplog.records if "cannot be read" in record.message] == [said]
            await held.look({place: (42, 42)}, owner.client)
            assert not held.said

    with one.worker() as worker:
        wait_for("it to serve", worker.ready)

        def seen() -> None:
            wait_for("the gauge", lambda: worker.metric("held_back_records", topic="forecasts") == 21)
            assert worker.metric("lag_records", topic="forecasts") == 0, "nobody waits for what cannot be had"
            wait_for("time to pass", lambda: worker.metric("held_back_seconds", topic="forecasts") > 0)

        asyncio.run(hang(seen))
        wait_for("what lay behind", lambda: one.applied()["forecasts_issued"] == 41)
        wait_for("the gauge to go", lambda: worker.metric("held_back_records") == 0)
