"""A transaction that nobody ends holds back what lies behind it, which no lag counts."""

import asyncio
from collections.abc import Callable

from aiokafka import AIOKafkaProducer

from tests.e2e.world import World, wait_for
from tests.events import forecast


def test_what_a_hanging_transaction_holds_back_is_counted(world: Callable[..., World]) -> None:
    one = world(partitions=1)
    topic = one.topic("forecasts")
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

    with one.worker() as worker:
        wait_for("it to serve", worker.ready)

        def seen() -> None:
            wait_for("the gauge", lambda: worker.metric("held_back_records", topic="forecasts") == 21)
            assert worker.metric("lag_records", topic="forecasts") == 0, "nobody waits for what cannot be had"
            wait_for("time to pass", lambda: worker.metric("held_back_seconds", topic="forecasts") > 0)

        asyncio.run(hang(seen))
        wait_for("what lay behind", lambda: one.applied()["forecasts_issued"] == 41)
        wait_for("the gauge to go", lambda: worker.metric("held_back_records") == 0)
