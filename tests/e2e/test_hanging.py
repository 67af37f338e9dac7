"""Transactions: one that was taken back is not answered, and one that nobody ends is not waited for, and is named."""

import asyncio
from functools import partial

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from streams.kafka import transactions
from streams.kafka.transactions import HeldBack
from tests.e2e.world import MakeWorld, Worker, World, wait_for
from tests.events import Sent, forecast, outcome


def test_what_was_taken_back_is_not_answered_and_a_hanging_transaction_is_counted_and_its_producer_named(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "HANGING", 0.0)
    w = world(partitions=1, TRUEUP_PATIENCE_SECONDS="3600")
    w.send([forecast("kept", 0.3, 1000)])
    with w.worker() as worker:
        asyncio.run(transact(w, worker, caplog))
        wait_for("what lay behind", lambda: w.applied()["forecasts_issued"] == 23)
        wait_for("the gauge to go", lambda: worker.metric("held_back_records") == 0)
        assert worker.stop() == 0
    first, *_ = answered = [each["event_id"] for each in w.said("calibrated")]
    assert (first, set(answered)) == ("kept", {"kept", "confirmed", "open", *(f"b{i}" for i in range(20))})
    applied = w.applied()
    assert (applied["outcomes_resolved"], applied["outcomes_early"]) == (1, 0)
    w.agree()


async def transact(w: World, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    """Take records back, confirm one, and leave two open for a while."""

    async def sent(by: AIOKafkaProducer, *records: Sent) -> None:
        for each in records:
            await by.send_and_wait(w.topic(each.topic), each.value, key=each.key)

    def producer(name: str) -> AIOKafkaProducer:
        own = {"transactional_id": f"{name}-{w.name}", "transaction_timeout_ms": 600_000}
        return AIOKafkaProducer(bootstrap_servers=w.bootstrap, **own)

    async with producer("pay") as ours, producer("label") as theirs:
        await ours.begin_transaction()
        await sent(ours, forecast("back", 0.3, 2000), outcome("kept", 0, 2001))
        await ours.abort_transaction()
        async with ours.transaction():
            await sent(ours, forecast("confirmed", 0.3, 3000))
        async with theirs.transaction():
            await sent(theirs, outcome("confirmed", 1, 4000))
            await asyncio.to_thread(wait_for, "both answers", lambda: len(w.read("calibrated")) == 2)
            assert await asyncio.to_thread(w.read, "resolved") == []
            assert worker.metric("lag_records") == 0
        await asyncio.to_thread(wait_for, "the outcome", lambda: len(w.read("resolved")) == 1)
        async with ours.transaction():
            await sent(ours, forecast("open", 0.5, 5000))
            await asyncio.to_thread(w.send, [forecast(f"b{i}", 0.5, 5001 + i) for i in range(20)])
            await asyncio.to_thread(held_back, worker)
            await named(w, ours, caplog)


def held_back(worker: Worker) -> None:
    of_forecasts = partial(worker.metric, topic="forecasts")
    wait_for("the gauge", lambda: of_forecasts("held_back_records") == 21)
    assert of_forecasts("lag_records") == 0, "nobody waits for what cannot be had"
    wait_for("time to pass", lambda: of_forecasts("held_back_seconds") > 0)


async def named(w: World, producer: AIOKafkaProducer, caplog: pytest.LogCaptureFixture) -> None:
    held, topic = HeldBack(["kafka:9092"]), w.topic("forecasts")
    place, *_, last = TopicPartition(topic, 0), *await asyncio.to_thread(w.read, "forecasts")
    begin, end = last.offset - 20, last.offset + 1
    await held.look({place: (begin, end)}, producer.client)
    (said,) = held.said
    assert said.startswith(f"{topic}/0 cannot be read beyond offset {begin}: ")
    assert f"a transaction of transactional id 'pay-{w.name}', producer " in said
    abort = f"abort --topic {topic} --partition 0 --start-offset {begin}"
    assert said.endswith(f"kafka-transactions.sh --bootstrap-server kafka:9092 {abort}")
    await held.look({place: (begin, end + 1)}, producer.client)
    assert [record.message for record in caplog.records if "cannot be read" in record.message] == [said]
    await held.look({place: (end + 1, end + 1)}, producer.client)
    assert not held.said
