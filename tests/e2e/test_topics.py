"""Topics that are missing, are not as asked, would lose state or records, or take records of the future."""

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from time import time

import pytest
from aiokafka.errors import InvalidTimestampError

from agents.worker import MISCONFIGURED
from streams.kafka import remarks, topics
from tests.e2e.world import MakeWorld, World, wait_for
from tests.events import forecast

SOURCE = """
[sources.scores]
topic = "{topic}"
role = "forecast"
event_id = "txn.id"
stream = {{ constant = "cards" }}
p = "risk"
"""


def test_check_notes_how_state_and_records_may_be_lost_and_topics_are_made_to_keep_deletions(
    world: MakeWorld, tmp_path: Path
) -> None:
    source = f"nowhere-{uuid.uuid4().hex[:8]}"
    (tmp_path / "streams.toml").write_text(SOURCE.format(topic=source))
    w = world(partitions=1, TRUEUP_STREAMS=str(tmp_path / "streams.toml"))
    a_source_topic_that_does_not_exist_is_named_and_never_made(w, source)
    topics_that_were_not_made_as_asked_are_named(w)
    what_may_lose_state_or_records_is_noted(w)


def a_source_topic_that_does_not_exist_is_named_and_never_made(w: World, topic: str) -> None:
    tried = w.command("streams", "try", "scores")
    assert (tried.returncode, tried.stderr) == (MISCONFIGURED, f"trueup: there is no topic {topic}\n")
    for _ in range(2):
        made = w.done("topics", "create", "--partitions", "1")
        assert f"note: source topic {topic} of sources.scores does not exist" in made
    checked = w.command("topics", "check")
    assert checked.returncode == 1
    (line,) = checked.stderr.splitlines()
    assert line.startswith(f"source topic {topic} of sources.scores does not exist")
    assert "those who write to it make it, not 'trueup topics create'" in line
    w.make({topic: 1})
    checked = w.command("topics", "check")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "all topics are as they should be" in checked.stdout


def topics_that_were_not_made_as_asked_are_named(w: World) -> None:
    asked = {"partitions": 3, "replication": 3, "retention_ms": 86_400_000}
    made = w.command("topics", "create", "--partitions", "3", "--replication", "3", "--retention", "1d")
    assert made.returncode == 1
    assert "all topics are as they should be" not in made.stdout
    problems = asyncio.run(topics.check(w.settings, as_worker=False, **asked))
    names = ", ".join(sorted(topic.name for topic in topics.wanted(w.settings)))
    (partitions,) = (each for each in problems if "1 partitions and were left so, 3 were asked for" in each)
    (replicas,) = (each for each in problems if "1 replicas and were left so, 3 were asked for" in each)
    assert partitions.startswith(f"topics {names} have 1")
    assert replicas.startswith(f"topics {names} have 1")
    assert len([each for each in problems if "and was left so, 86400000 was asked for" in each]) == 6
    assert asyncio.run(topics.check(w.settings, as_worker=False, partitions=1, replication=1)) == []


def what_may_lose_state_or_records_is_noted(w: World) -> None:
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
