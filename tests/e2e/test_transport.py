"""The parts of the transport that only real brokers and real disks can show."""

import asyncio
from collections.abc import Callable

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from agents.worker import FAILED
from tests.e2e.world import World, wait_for
from tests.events import forecast

MakeWorld = Callable[..., World]


def test_records_deleted_before_they_were_read_end_the_worker_unless_told_to_go_on(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.send([forecast(f"a{i}", 0.5, 1000 + i) for i in range(10)])
    with w.worker() as worker:
        w.wait_until_applied(10)
        assert worker.stop() == 0
    w.send([forecast(f"b{i}", 0.5, 2000 + i) for i in range(10)])
    delete(w, "forecasts", before=15)
    with w.worker() as worker:
        assert worker.process.wait(60) == FAILED
        assert f"5 records of {w.topic('forecasts')}/0 from offset 10 were deleted unread" in worker.printed
    with w.worker(TRUEUP_DATA_LOSS="continue") as worker:
        wait_for("the records that are left", lambda: w.applied()["forecasts_issued"] == 15)
        assert "were deleted unread" in worker.printed


def delete(w: World, label: str, before: int) -> None:
    """Delete a topic's records below an offset, as retention does."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=w.settings.brokers[0])
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(w.topic(label), 0): RecordsToDelete(before_offset=before)})
        finally:
            await admin.close()

    asyncio.run(run())
