"""What a worker must not go on from in silence: inputs that are gone, and a group that has no place for it."""

import asyncio
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import PolicyViolationError

from agents.worker import FAILED
from streams.kafka import topics
from tests.e2e.test_disks import changed
from tests.e2e.world import Worker, World, wait_for
from tests.events import forecast

MakeWorld = Callable[..., World]
#: A worker may be stopped for as long as its topic is changed, and keeps its partitions.
PATIENT = {"TRUEUP_SESSION_SECONDS": "120", "TRUEUP_REQUEST_SECONDS": "60"}


def send(w: World, start: int, stop: int) -> None:
    w.send(forecast(f"e{i}", 0.5, 1000 + i) for i in range(start, stop))


def serve(w: World, n: int, start: int = 0) -> None:
    """Let a worker answer records up to one, and stop."""
    send(w, start, n)
    with w.worker() as worker:
        w.wait_until_applied(n)
        assert worker.stop() == 0


def delete_records(w: World, before: int, label: str = "forecasts") -> None:
    """Delete records as retention does."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=w.bootstrap)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(w.topic(label), 0): RecordsToDelete(before)})
        finally:
            await admin.close()

    asyncio.run(run())


def deleted(w: World) -> bool:
    """Delete what the changelog holds now; False while the brokers do not know that they may."""
    try:
        delete_records(w, -1, "changelog")
    except PolicyViolationError:
        return False
    return True


def overtake(w: World, worker: Worker) -> None:
    """Stop the worker at offset 100, append up to 2,000, delete up to 1,500, and let it go on."""
    wait_for("the first records", lambda: worker.metric("records_total") == 100)
    worker.process.send_signal(signal.SIGSTOP)
    send(w, 100, 101)  # answers the request that the worker has left at the broker: it gets none of what follows
    send(w, 101, 2000)
    delete_records(w, 1500)
    worker.process.send_signal(signal.SIGCONT)


def test_a_worker_that_retention_overtakes_while_it_runs_ends(world: MakeWorld) -> None:
    w = world(partitions=1, **PATIENT)
    send(w, 0, 100)
    with w.worker() as worker:
        overtake(w, worker)
        assert worker.process.wait(90) == FAILED
        assert "were deleted unread" in worker.printed


def test_a_topic_that_was_made_anew_and_is_longer_than_the_fence_is_noticed(world: MakeWorld) -> None:
    w = world(partitions=1)
    serve(w, 200)
    asyncio.run(remade(w))
    send(w, 200, 700)
    with w.worker() as worker:
        assert worker.process.wait(90) == FAILED
        assert "was deleted and made anew" in worker.printed
    assert w.applied()["forecasts_issued"] == 200


def test_a_changelog_that_lost_its_beginning_is_not_restored_as_if_whole(world: MakeWorld) -> None:
    w, data = world(partitions=1), Path("data")
    serve(w, 200)
    shutil.copytree(w.directory / data, w.directory / "old")
    serve(w, 300, start=200)
    most = str(w.settings.checkpoint_bytes + topics.BATCH_OVERHEAD)
    for policy in ("delete", "compact"):  # for a while its policy was another
        asyncio.run(changed(w.bootstrap, w.settings.changelog, cleanup_policy=policy, max_message_bytes=most))
        if policy == "delete":
            wait_for("the brokers to delete", lambda: deleted(w))
    with w.worker() as worker:  # its disk has what is gone
        wait_for("the worker", worker.ready)
        assert worker.stop() == 0
    for disk in ("none", "old"):
        shutil.rmtree(w.directory / data)
        if disk == "old":
            shutil.copytree(w.directory / "old", w.directory / data)
        with w.worker() as worker:
            assert worker.process.wait(90) == FAILED
            assert "has lost what stood before offset" in worker.printed
            assert "Restore a snapshot ('trueup state restore')" in worker.printed


def test_offsets_that_somebody_set_ahead_count_for_nothing(world: MakeWorld) -> None:
    w = world(partitions=1)
    serve(w, 100)
    send(w, 100, 200)
    asyncio.run(ahead(w, 200))
    with w.worker() as worker:
        wait_for("the records that were skipped", lambda: worker.metric("records_total") == 100)
        assert worker.stop() == 0
    assert w.applied()["forecasts_issued"] == 200
    w.judge()


async def ahead(w: World, offset: int) -> None:
    """Commit an offset of the forecasts for the group, as a tool does."""
    consumer = AIOKafkaConsumer(bootstrap_servers=w.bootstrap, group_id=w.name, enable_auto_commit=False)
    async with consumer:
        place = TopicPartition(w.topic("forecasts"), 0)
        consumer.assign([place])
        await consumer.commit({place: offset})


async def remade(w: World) -> None:
    """Delete the topic of forecasts and make it again."""
    admin = AIOKafkaAdminClient(bootstrap_servers=w.bootstrap)
    await admin.start()
    try:
        await admin.delete_topics([w.topic("forecasts")])
        while w.topic("forecasts") in await admin.list_topics():  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.1)
    finally:
        await admin.close()
    await topics.create(w.settings, partitions=1)


@pytest.mark.parametrize("name", [{}, {"TRUEUP_INSTANCE_ID": "one"}], ids=["", "static"])
def test_a_worker_for_which_the_group_has_no_place_ends(world: MakeWorld, name: dict[str, str]) -> None:
    w = world(partitions=1, **name)
    send(w, 0, 10)
    with w.worker("--unsynced") as worker:
        assert worker.process.wait(90) == FAILED
        assert "the group has no place for this worker" in worker.printed
