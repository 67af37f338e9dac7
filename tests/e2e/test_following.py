"""Every record followed from its source, on topics that real stages wrote: killed on the way, and then altered."""

import asyncio
from pathlib import Path

import orjson
from aiokafka import AIOKafkaProducer

from replay.audit import auditor, event_path
from tests.e2e.test_intake import Hour, made
from tests.e2e.test_rescale import rescale
from tests.e2e.world import MakeWorld, World


def test_every_record_is_followed_from_its_source_to_its_answer(world: MakeWorld, tmp_path: Path) -> None:
    hour = Hour(world, tmp_path, "followed")
    w = hour.world
    sent = made(1500, seed=3)
    with hour.stages("worker"):
        hour.send(sent[: len(sent) // 2])
        w.killed("--stage", "intake", "--kill", "2", "1")  # when it has sent and not committed
        w.killed("--stage", "router", "--kill", "3", "1")
        hour.send(sent[len(sent) // 2 :])
        with w.worker("--stage", "intake"), w.worker("--stage", "router"):
            hour.wait()
    account = w.agree("--sources")
    source, router = account["followed"]["sources"], account["followed"]["router"]
    assert source["records"] == len(sent)
    assert source["dead"] == sum(each.value.count(b"much") for each in sent)
    assert source["passed"] == sum(b'"open"' in each.value for each in sent)
    assert source["sent"] + source["dead"] + source["passed"] == len(sent)
    assert (source["waiting"], source["gone"], source["unread"]) == (0, 0, 0)
    written = sum(len(w.read(label)) for label in ("forecasts", "routes", "labels"))
    counted = source["forecasts"] + source["routes"] + source["labels"]
    assert source["copies"] > 0, "intake has sent what it had not committed again"
    assert counted + source["copies"] >= written
    assert router["outcomes"] + router["copies"] == len(w.read("outcomes"))
    assert router["waiting"] == 0

    # The path of one event, which was charged back and won back.
    printed = orjson.loads(w.done("audit", "--event", "3-9", "--json").splitlines()[-1])
    assert printed["verdict"] == "answered, and its label is learnt"
    steps = [step["stage"] for step in printed["steps"]]
    assert set(steps) == {"source", "forecasts", "routes", "calibrated", "labels", "outcomes", "resolved"}
    assert steps[:2] == ["source", "forecasts"]
    sources = [step for step in printed["steps"] if step["stage"] == "source"]
    assert [orjson.loads(step["said"]).get("status") for step in sources] == [None, "lost", "won"]
    assert all("(not there)" not in step["note"] for step in sources)
    assert w.command("audit", "--event", "nobody").returncode == event_path.NOTHING

    # A label is sent once more, and says something else now.
    label = w.read("labels")[20]
    assert label.value is not None
    said = orjson.loads(label.value)
    forged = orjson.dumps(said | {"y": 1.0 - said["y"]})
    append(w, w.settings.labels, label.partition, label.key, forged, label.timestamp)
    status, account = w.audit("--sources")
    assert status == auditor.DIFFER
    doubled = next(each for each in account["differences"] if each["topic"] == "labels")
    assert (doubled["partition"], doubled["event_id"]) == (label.partition, said["event_id"])
    assert doubled["offset"] == max(each.offset for each in w.read("labels", label.partition))
    assert "doubled with other content" in doubled["what"]
    assert doubled["fields"] == {"y": [1.0 - said["y"], said["y"]]}


def append(w: World, topic: str, partition: int, key: bytes | None, value: bytes, ts: int) -> None:
    """Append a record to a partition."""

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=w.bootstrap) as producer:
            await producer.send_and_wait(topic, value, key=key, partition=partition, timestamp_ms=ts)

    asyncio.run(run())


def test_a_group_that_was_moved_is_followed_from_the_move_on(world: MakeWorld, tmp_path: Path) -> None:
    hour = Hour(world, tmp_path, "moved")
    old, sent = hour.world, made(600, seed=5)
    half = len(sent) // 2
    with hour.stages("intake", "router", "worker"):
        hour.send(sent[:half])
        hour.wait()
        assert [each.stop() for each in hour.running] == [0, 0, 0]
    new = world(partitions=3, TRUEUP_STREAMS=old.environment["TRUEUP_STREAMS"], TRUEUP_BATCH_RECORDS="200")
    moved = rescale(old, new)
    assert moved.returncode == 0, moved.stderr
    hour.world = new
    with hour.stages("intake", "router", "worker"):
        hour.send(sent[half:])
        hour.wait()
        assert [each.stop() for each in hour.running] == [0, 0, 0]
    account = new.agree("--sources", "--checkpoint", str(tmp_path))
    assert account["followed"]["sources"]["records"] == len(sent) - half
    assert account["followed"]["sources"]["copies"] == 0
    assert f"'trueup state rescale' made of {old.name}" in account["loaded"]["2"]
    assert new.agree("--sources", "--checkpoint", str(tmp_path))["followed"]["sources"]["records"] == 0
