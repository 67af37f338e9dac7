"""Damaged disks, and topics that would lose state or records, or take records of the future: on a real broker."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import time

import pytest
from aiokafka.errors import InvalidTimestampError

from streams.kafka import remarks, topics
from tests.e2e.world import MakeWorld, wait_for
from tests.events import forecast, mixed


def test_damaged_tables_of_every_partition_end_no_worker(world: MakeWorld) -> None:
    """One read finds one of them: without a look at the others each would end, or stop, the worker for itself."""
    w = world(partitions=3, TRUEUP_MEMORY_BYTES=str(3 << 20), TRUEUP_CHECKPOINT_SECONDS="0")
    made = mixed(3000, seed=1)
    w.serve(made.sent)
    for path in w.directory.rglob("*.sst"):
        damage(path)
    w.send(made.sent)  # asks for every row
    with w.worker() as worker:
        w.wait_until_applied()
        assert worker.metric("set_aside_total", what="damaged") == 3
        assert worker.stop() == 0
        assert "cannot go on" not in worker.printed
    assert len(list(w.directory.rglob("*.damaged"))) == 3
    w.judge()


def damage(path: Path) -> None:
    """Flip a bit in each of a table's blocks but the last ones, which say where the others are."""
    content = bytearray(path.read_bytes())
    for at in range(500, len(content) * 3 // 4, 4000):
        content[at] ^= 1
    path.write_bytes(content)


def test_check_notes_how_state_and_records_may_be_lost_and_topics_are_made_to_keep_deletions(world: MakeWorld) -> None:
    w = world(partitions=1)
    changelog, ahead = w.settings.changelog, str(w.settings.limits.ahead_ms)
    most = str(w.settings.checkpoint_bytes + topics.BATCH_OVERHEAD)

    def noted() -> list[str]:
        return [each.split(" for ")[0].split(":")[0] for each in asyncio.run(remarks.of([w.settings]))]

    def wrong() -> list[str]:
        return asyncio.run(topics.check(w.settings))

    def known(said: Callable[[], list[str]], wanted: str) -> None:
        wait_for("the brokers to know of the change", lambda: wanted in "\n".join(said()), 20)

    with pytest.raises(InvalidTimestampError):
        w.send([forecast("of the future", 0.5, int(time() * 1000) + 900_000)])
    assert noted() == ["min.insync.replicas is below 2"], "of one replica; deletions are kept for seven days"
    synced = {"min_insync_replicas": "2"}
    for label in ("calibrated", "resolved", "dead-letters", "journal"):
        w.configure(label, cleanup_policy="delete", **synced)
    for label in ("forecasts", "outcomes"):
        w.configure(label, cleanup_policy="delete", message_timestamp_after_max_ms=ahead, **synced)
    w.configure("configurations", cleanup_policy="compact", **synced)
    kept = synced | {"cleanup_policy": "compact", "max_message_bytes": most}
    w.configure("changelog", **kept)
    short = f"topic {changelog} has delete.retention.ms=86400000"
    wait_for("the brokers to know of the change", lambda: noted() == [short], 20)
    kept |= {"delete_retention_ms": str(topics.DELETE_RETENTION_MS)}
    w.configure("changelog", **kept)
    wait_for("the brokers to know of the change", lambda: noted() == [], 20)
    w.configure("changelog", **kept, unclean_leader_election_enable="true")
    known(noted, "unclean.leader.election.enable=true")
    assert wrong() == []
    w.configure("forecasts", cleanup_policy="delete", message_timestamp_after_max_ms=ahead, retention_ms="600000")
    known(noted, f"topic {w.topic('forecasts')} has retention.ms=600000")
    w.configure("resolved", cleanup_policy="compact")
    known(wrong, f"topic {w.topic('resolved')} has cleanup.policy=compact, it must be delete")
    w.configure("changelog", **kept | {"max_message_bytes": "2000000"})
    known(wrong, f"it must be at least {most}: kafka-configs.sh changes that, or lower TRUEUP_CHECKPOINT_BYTES")
    w.configure("forecasts", cleanup_policy="delete")
    known(wrong, f"topic {w.topic('forecasts')} has message.timestamp.after.max.ms={2**63 - 1}")
    w.configure("forecasts", message_timestamp_type="LogAppendTime")
    wait_for("the brokers to know of the change", lambda: "after.max.ms" not in "\n".join(wrong()), 20)
