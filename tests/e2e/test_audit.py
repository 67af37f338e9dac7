"""The audit on topics that real workers wrote: all agree whatever happened to them, and what was altered is named."""

from contextlib import ExitStack

import orjson

from replay.audit import auditor
from tests.e2e.world import MakeWorld, wait_for
from tests.events import Sent, mixed


def test_all_agree_after_kills_and_rebalances_and_an_altered_record_is_named(world: MakeWorld) -> None:
    w = world(partitions=3, TRUEUP_BATCH_RECORDS="60")
    parts = [mixed(700, seed=seed, start=1_000_000 + seed * 250_000).sent for seed in range(1, 5)]
    w.send(parts[0])
    w.killed("--kill", "4", "4", TRUEUP_INSTANCE_ID="one")
    with ExitStack() as running:
        one = running.enter_context(w.worker(TRUEUP_INSTANCE_ID="one"))
        wait_for("the first worker", one.ready)
        w.send(parts[1])
        two = running.enter_context(w.worker(TRUEUP_INSTANCE_ID="two", TRUEUP_DATA_DIR=str(w.directory / "two")))
        wait_for("the second worker", two.ready)
        w.send(parts[2])
        one.kill()
        w.send(parts[3])
        w.wait_until_applied()
        assert two.stop() == 0
    checked, applied = w.agree()["checked"], w.applied()
    assert checked["forecasts"] + checked["outcomes"] == w.sent
    assert checked["calibrated"] == applied["forecasts_issued"] + applied["forecasts_duplicate"]
    assert checked["resolved"] == applied["outcomes_resolved"] + applied["early_joined"] + applied["outcomes_revised"]
    assert checked["dead_letters"] == applied["forecasts_dead"] + applied["outcomes_dead"]
    outputs = sum(len(w.read(label)) for label in ("calibrated", "resolved", "dead-letters"))
    assert checked["calibrated"] + checked["resolved"] + checked["dead_letters"] + checked["copies"] == outputs
    assert (checked["waiting"], checked["unsettled"]) == (0, 0)
    assert w.agree("--disk")["checked"] == checked

    record = w.read("calibrated")[100]
    served = orjson.loads(record.value or b"")
    w.send([Sent("calibrated", record.key or b"", orjson.dumps(served | {"p": 0.123456}), record.timestamp)])
    status, account = w.audit()
    (difference,) = account["differences"]
    assert status == auditor.DIFFER
    assert (difference["partition"], difference["event_id"]) == (record.partition, served["event_id"])
    assert difference["fields"] == {"p": [0.123456, served["p"]]}
    assert difference["offset"] == max(r.offset for r in w.read("calibrated") if r.partition == record.partition)


def test_an_audit_of_a_group_that_there_is_not_names_a_topic_that_is_missing(world: MakeWorld) -> None:
    w = world(partitions=1)
    ended = w.command("audit", "--json", TRUEUP_FORECASTS="nobodys")
    assert ended.returncode == auditor.UNCHECKED
    assert orjson.loads(ended.stdout.splitlines()[-1])["unable"] == ["there is no topic nobodys"]
