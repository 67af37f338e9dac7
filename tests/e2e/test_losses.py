"""What a worker must not go on from in silence: inputs that are gone, and a group that has no place for it."""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import Iterator

from aiokafka.errors import PolicyViolationError

from agents.worker import FAILED
from streams.kafka import topics
from tests.e2e.world import MakeWorld, World, buried, wait_for
from tests.events import Sent, forecast

#: A worker may be stopped for as long as its topic is changed, and keeps its partitions.
PATIENT = {"TRUEUP_SESSION_SECONDS": "120", "TRUEUP_REQUEST_SECONDS": "60"}


def forecasts(start: int, stop: int) -> Iterator[Sent]:
    return (forecast(f"e{i}", 0.5, 1000 + i) for i in range(start, stop))


def test_a_worker_that_retention_overtakes_while_it_runs_ends(world: MakeWorld) -> None:
    w = world(partitions=1, **PATIENT)
    w.send(forecasts(0, 100))
    with w.worker() as worker:
        wait_for("the first records", lambda: worker.metric("records_total") == 100)
        worker.process.send_signal(signal.SIGSTOP)
        w.send(forecasts(100, 101))  # answers the request that the worker has left at the broker: none of what follows
        w.send(forecasts(101, 2000))
        w.delete_records("forecasts", 1500)
        worker.process.send_signal(signal.SIGCONT)
        assert worker.process.wait(90) == FAILED
        assert "were deleted unread" in worker.printed


def test_a_topic_that_was_made_anew_is_noticed_and_is_served_under_another_id(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.serve(forecasts(0, 200))
    asyncio.run(remade(w))
    w.send(forecasts(200, 700))  # more than the fence says
    w.refused(FAILED, "was deleted and recreated")
    assert w.applied()["forecasts_issued"] == 200
    asyncio.run(buried(w.bootstrap, w.name))
    heir = {"TRUEUP_APP_ID": f"{w.name}-heir"}
    w.done("topics", "create", "--partitions", "1", **heir)
    w.done("topics", "take", **heir)
    with w.worker(**heir) as worker:
        wait_for("all answers", lambda: len(w.read("calibrated")) >= 700)
        assert worker.stop() == 0
    assert Counter(each["event_id"] for each in w.said("calibrated")) == Counter(f"e{i}" for i in range(700))


def test_a_changelog_that_lost_its_beginning_is_not_restored_as_if_whole(world: MakeWorld) -> None:
    w = world(partitions=1)
    data, old = w.directory / "data", w.directory / "old"
    w.serve(forecasts(0, 200))
    shutil.copytree(data, old)
    w.serve(forecasts(200, 300))
    most = str(w.settings.checkpoint_bytes + topics.BATCH_OVERHEAD)
    for policy in ("delete", "compact"):  # for a while its policy was another
        w.configure("changelog", cleanup_policy=policy, max_message_bytes=most)
        if policy == "delete":
            wait_for("the brokers to delete", lambda: deleted(w))
    with w.worker() as worker:  # its disk has what is gone
        wait_for("the worker", worker.ready)
        assert worker.stop() == 0
    lost = "has lost what was before offset", "Restore a snapshot ('trueup state restore')"
    shutil.rmtree(data)
    w.refused(FAILED, *lost)
    shutil.rmtree(data)
    shutil.copytree(old, data)
    w.refused(FAILED, *lost)


def deleted(w: World) -> bool:
    """Delete what the changelog holds now; False while the brokers do not know that they may."""
    try:
        w.delete_records("changelog", -1)
    except PolicyViolationError:
        return False
    return True


async def remade(w: World) -> None:
    """Delete the topic of forecasts and make it again."""
    async with topics.admin_client(w.settings) as admin:
        await admin.delete_topics([w.topic("forecasts")])
        while w.topic("forecasts") in await admin.list_topics():  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.1)
    await topics.create(w.settings, partitions=1)


def test_a_worker_for_which_the_group_has_no_place_ends(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.send(forecasts(0, 10))
    with w.worker("--unsynced") as worker:
        assert worker.process.wait(90) == FAILED
        assert "the group has no place for this worker" in worker.printed
