"""The audit on topics that real workers wrote: all agree whatever happened to them, and what was altered is named."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import orjson

from replay.audit import auditor
from state.policies import Policies
from state.policy import Policy
from streams.config.settings import Settings
from tests.e2e.test_crashes import KILLED
from tests.e2e.world import World, wait_for
from tests.events import Sent, forecast, mixed
from tests.night import by_night

MakeWorld = Callable[..., World]
Audited = Callable[..., tuple[int, dict[str, Any]]]


def test_all_agree_after_kills_and_rebalances_and_an_altered_record_is_named(
    world: MakeWorld, audited: Audited
) -> None:
    w = world(partitions=3, TRUEUP_BATCH_RECORDS="60")
    parts = [mixed(700, seed=seed, start=1_000_000 + seed * 250_000) for seed in range(1, 5)]
    sent = 0

    def send() -> None:
        nonlocal sent
        made = parts.pop(0)
        w.send(made.sent)
        sent += len(made.sent)

    send()
    for step in (3, 4, 5) if by_night() else (4,):
        with w.worker("--kill", str(step), "4" if step < 5 else "2", TRUEUP_INSTANCE_ID="one") as worker:
            assert worker.process.wait(90) == KILLED, worker.printed[-4000:]
    with ExitStack() as running:
        one = running.enter_context(w.worker(TRUEUP_INSTANCE_ID="one"))
        wait_for("the first worker", one.ready)
        send()
        two = running.enter_context(w.worker(TRUEUP_INSTANCE_ID="two", TRUEUP_DATA_DIR=str(w.directory / "two")))
        wait_for("the second worker", two.ready)
        send()
        one.kill()
        send()
        w.wait_until_applied(sent)
        assert two.stop() == 0
    status, account = audited(w)
    assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
    checked, applied = account["checked"], w.applied()
    assert checked["forecasts"] + checked["outcomes"] == sent
    assert checked["calibrated"] == applied["forecasts_issued"] + applied["forecasts_duplicate"]
    assert checked["resolved"] == applied["outcomes_resolved"] + applied["early_joined"] + applied["outcomes_revised"]
    assert checked["dead_letters"] == applied["forecasts_dead"] + applied["outcomes_dead"]
    outputs = sum(len(w.read(label)) for label in ("calibrated", "resolved", "dead-letters"))
    assert checked["calibrated"] + checked["resolved"] + checked["dead_letters"] + checked["copies"] == outputs
    assert (checked["waiting"], checked["unsettled"]) == (0, 0)
    assert audited(w, disk=True)[1]["checked"] == checked

    record = w.read("calibrated")[100]
    assert record.value is not None
    assert record.key is not None
    served = orjson.loads(record.value)
    w.send([Sent("calibrated", record.key, orjson.dumps(served | {"p": 0.123456}), record.timestamp)])
    status, account = audited(w)
    (difference,) = account["differences"]
    assert status == auditor.DIFFER
    assert (difference["partition"], difference["event_id"]) == (record.partition, served["event_id"])
    assert difference["fields"] == {"p": [0.123456, served["p"]]}
    assert difference["offset"] == max(r.offset for r in w.read("calibrated") if r.partition == record.partition)


def test_topics_that_cannot_be_audited_say_why(world: MakeWorld, audited: Audited) -> None:
    w = world(partitions=1)
    w.send([forecast(f"e{i}", 0.5, i) for i in range(9)])
    with w.worker() as worker:
        w.wait_until_applied(9)
        assert worker.stop() == 0
    changed = replace(w.settings, policies=Policies([("*", Policy("identity"))]))
    assert auditor.run(changed, json_output=False) == auditor.AGREE, "under what was in force"
    assert (
        auditor.run(Settings.from_env(w.environment | {"TRUEUP_RESOLVED": f"{w.name}-nowhere"}), json_output=False)
        == auditor.UNCHECKED
    )
    _delete_before(w, "forecasts", 4)
    status, account = audited(w)
    assert status == auditor.UNCHECKED
    assert "forecasts/0 begins at offset 4" in account["unable"][0]


def _delete_before(w: World, label: str, offset: int) -> None:
    """Delete the first records of a topic, as retention does."""
    import asyncio  # noqa: PLC0415 - only here

    from aiokafka import TopicPartition  # noqa: PLC0415
    from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete  # noqa: PLC0415

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=w.settings.brokers[0])
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(w.topic(label), 0): RecordsToDelete(before_offset=offset)})
        finally:
            await admin.close()

    asyncio.run(run())
