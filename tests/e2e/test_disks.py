"""Disks that were kept for too long, belong to something else or know more than the changelog: on a real broker."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streams.kafka import remarks, topics
from tests.e2e.world import World, wait_for
from tests.events import mixed

MakeWorld = Callable[..., World]

OUTPUTS = ("calibrated", "resolved", "dead-letters")


async def changed(bootstrap: str, topic: str, **configs: str) -> None:
    """Change a topic's configuration."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=named)])
    finally:
        await admin.close()


def worked(w: World, seed: int) -> int:
    """Let a worker apply some records and stop; return how many."""
    made = mixed(300, seed=seed, start=1_000_000 * seed)
    w.send(made.sent)
    with w.worker() as worker:
        w.wait_until_applied(w.sent + len(made.sent))
        assert worker.stop() == 0
    w.sent += len(made.sent)
    return len(made.sent)


def aside(w: World, what: str) -> list[Path]:
    return list(w.directory.rglob(f"*.{what}"))


@pytest.fixture
def w(world: MakeWorld) -> World:
    made = world(partitions=1)
    worked(made, 1)
    return made


def test_a_disk_is_kept_from_start_to_start(w: World) -> None:
    worked(w, 2)
    assert not [each for what in ("foreign", "ahead", "old", "damaged") for each in aside(w, what)]
    w.judge()


@pytest.mark.parametrize("how", ["flipped", "halved"])
def test_damaged_tables_of_every_partition_end_no_worker(world: MakeWorld, how: str) -> None:
    """One read finds one of them: without a look at the others each would end, or stop, the worker for itself."""
    w = world(partitions=3, TRUEUP_MEMORY_BYTES=str(3 << 20), TRUEUP_CHECKPOINT_SECONDS="0")
    made = mixed(3000, seed=1)
    w.send(made.sent)
    with w.worker() as worker:
        w.wait_until_applied(len(made.sent))
        assert worker.stop() == 0
    for path in w.directory.rglob("*.sst"):
        damage(path, how)
    w.send(made.sent)  # asks for every row
    with w.worker() as worker:
        w.wait_until_applied(2 * len(made.sent))
        assert worker.metric("set_aside_total", what="damaged") == 3
        assert worker.stop() == 0
        assert "cannot go on" not in worker.printed
    assert len(aside(w, "damaged")) == 3
    w.judge()


def damage(path: Path, how: str) -> None:
    """Cut a table to half, or flip a bit in each of its blocks but the last ones, which say where the others are."""
    content = bytearray(path.read_bytes())
    if how == "halved":
        content = content[: len(content) // 2]
    for at in range(500, len(content) * 3 // 4, 4000):
        content[at] ^= 1
    path.write_bytes(content)


def test_check_notes_how_state_and_records_may_be_lost_and_topics_are_made_to_keep_deletions(world: MakeWorld) -> None:
    w = world(partitions=1)
    broker, changelog = w.settings.brokers[0], w.settings.changelog
    most = str(w.settings.checkpoint_bytes + topics.BATCH_OVERHEAD)
    labels = (*OUTPUTS, "forecasts", "outcomes", "journal", "changelog", "configurations")

    def noted() -> list[str]:
        return [each.split(" for ")[0].split(":")[0] for each in asyncio.run(remarks.of([w.settings]))]

    assert noted() == ["min.insync.replicas is below 2"], "of one replica; deletions are kept for seven days"
    for label in labels:
        policy = "compact" if label in ("changelog", "configurations") else "delete"
        configs = {"cleanup_policy": policy, "min_insync_replicas": "2"}
        if label in ("forecasts", "outcomes"):
            configs["message_timestamp_after_max_ms"] = str(w.settings.limits.ahead_ms)
        if label == "changelog":
            configs["max_message_bytes"] = most
        asyncio.run(changed(broker, w.topic(label), **configs))
    short = f"topic {changelog} has delete.retention.ms=86400000"
    wait_for("the brokers to know of the change", lambda: noted() == [short], 20)
    kept = str(topics.DELETE_RETENTION_MS)
    configs = {
        "cleanup_policy": "compact",
        "delete_retention_ms": kept,
        "min_insync_replicas": "2",
        "max_message_bytes": most,
    }
    asyncio.run(changed(broker, changelog, **configs))
    wait_for("the brokers to know of the change", lambda: noted() == [], 20)
    asyncio.run(changed(broker, changelog, **configs, unclean_leader_election_enable="true"))
    wait_for("the brokers to know of the change", lambda: noted() == ["unclean.leader.election.enable=true"], 20)
    assert asyncio.run(topics.check(w.settings)) == []
    brief = {"min_insync_replicas": "2", "retention_ms": "600000"}
    ahead = {"message_timestamp_after_max_ms": str(w.settings.limits.ahead_ms)}
    asyncio.run(changed(broker, w.topic("forecasts"), cleanup_policy="delete", **brief, **ahead))
    said = f"topic {w.topic('forecasts')} has retention.ms=600000"
    wait_for("the brokers to know of the change", lambda: said in noted(), 20)
    asyncio.run(changed(broker, w.topic("resolved"), cleanup_policy="compact", **brief))
    said = f"topic {w.topic('resolved')} has cleanup.policy=compact, it must be delete"
    wait_for("the brokers to know of the change", lambda: said in "".join(asyncio.run(topics.check(w.settings))), 20)
    asyncio.run(changed(broker, changelog, **configs | {"max_message_bytes": "2000000"}))
    said = f"it must be at least {most}: kafka-configs.sh changes that, or lower TRUEUP_CHECKPOINT_BYTES"
    wait_for("the brokers to know of the change", lambda: said in "".join(asyncio.run(topics.check(w.settings))), 20)
