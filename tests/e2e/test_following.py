"""Every record followed from its source, on topics that real stages wrote: killed on the way, and then altered."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from replay.audit import auditor, event_path
from tests.e2e.test_crashes import KILLED
from tests.e2e.test_intake import Hour, made
from tests.e2e.test_rescale import moved
from tests.e2e.world import Read, World
from tests.night import by_night

MakeWorld = Callable[..., World]


def audited(
    hour: Hour, capsys: pytest.CaptureFixture[str], checkpoint: Path | None = None
) -> tuple[int, dict[str, Any]]:
    """Audit a world from its sources on, and return the exit status and what the last line says."""
    capsys.readouterr()
    status = auditor.run(hour.world.settings, json_output=True, sources=True, checkpoint=checkpoint)
    return status, orjson.loads(capsys.readouterr().out.splitlines()[-1])


def test_every_record_is_followed_from_its_source_to_its_answer(
    world: MakeWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hour = Hour(world, tmp_path, "followed")
    w = hour.world
    sent = made(1500, seed=3)
    parts = [sent[n * len(sent) // 4 : (n + 1) * len(sent) // 4] for n in range(4)]
    with hour.stages("worker"):
        for step, part in zip((1, 2, 3), parts, strict=False):
            hour.send(part)
            if step != 2 and not by_night():  # one kill of each, of intake when it has sent and not committed
                continue
            with w.worker("--stage", "intake", "--kill", str(step), "1") as intake:
                assert intake.process.wait(90) == KILLED, intake.printed[-2000:]
            with w.worker("--stage", "router", "--kill", str(step + 1), "1") as router:
                assert router.process.wait(90) == KILLED, router.printed[-2000:]
        hour.send(parts[-1])
        with w.worker("--stage", "intake"), w.worker("--stage", "router"):
            hour.wait()
    status, account = audited(hour, capsys)
    assert (status, account["differences"], account["unable"]) == (auditor.AGREE, [], [])
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
    assert event_path.run(w.settings, "3-9", json_output=True) == event_path.FOUND
    printed = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["verdict"] == "answered, and its label is learnt"
    steps = [step["stage"] for step in printed["steps"]]
    assert set(steps) == {"source", "forecasts", "routes", "calibrated", "labels", "outcomes", "resolved"}
    assert steps[:2] == ["source", "forecasts"]
    sources = [step for step in printed["steps"] if step["stage"] == "source"]
    assert [orjson.loads(step["said"]).get("status") for step in sources] == [None, "lost", "won"]
    assert all("(not there)" not in step["note"] for step in sources)
    assert event_path.run(w.settings, "nobody", json_output=False) == event_path.NOTHING

    # A label is sent once more, and says something else now.
    label = w.read("labels")[20]
    assert label.value is not None
    said = orjson.loads(label.value)
    forged = orjson.dumps(said | {"y": 1.0 - said["y"]})
    append(w, w.settings.labels, label.partition, label.key, forged, label.timestamp)
    status, account = audited(hour, capsys)
    assert status == auditor.DIFFER
    doubled = next(each for each in account["differences"] if each["topic"] == "labels")
    assert (doubled["partition"], doubled["event_id"]) == (label.partition, said["event_id"])
    assert doubled["offset"] == max(each.offset for each in w.read("labels", label.partition))
    assert "doubled with other content" in doubled["what"]
    assert doubled["fields"] == {"y": [1.0 - said["y"], said["y"]]}


def test_sources_are_followed_through_two_moves(
    world: MakeWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hour = Hour(world, tmp_path, "moved")
    two = hour.world
    three, four = (beside(world, two, n) for n in (3, 4))
    sent = made(600, seed=7)
    third = len(sent) // 3
    daily = tmp_path / "daily"
    for n, (old, new) in enumerate(((None, two), (two, three), (three, four))):
        part = sent[n * third :] if n == 2 else sent[n * third : (n + 1) * third]
        hour.send(part[: third // 2])
        if old is not None:
            moved(old, new)  # the sources have gone on
        hour.world = new
        with hour.stages("router", "worker"):
            others = hour.running
            if n == 1:
                with new.worker("--stage", "intake", "--kill", "2", "1") as killed:
                    assert killed.process.wait(90) == KILLED, killed.printed[-2000:]
            hour.send(part[third // 2 :])
            with hour.stages("intake"):
                hour.wait()
                for stage in (*hour.running, *others):
                    assert stage.stop() == 0
        if n == 0:
            assert audited(hour, capsys, daily)[0] == auditor.AGREE
    assert auditor.run(four.settings, json_output=True, sources=True) == auditor.AGREE
    printed = capsys.readouterr()
    account = orjson.loads(printed.out.splitlines()[-1])
    assert (account["differences"], account["unable"]) == ([], [])
    followed = account["followed"]
    earlier = followed["earlier_groups"]
    assert list(earlier) == [two.name, three.name]
    for w in (two, three):
        own = earlier[w.name]
        told = f"{own['sources']['records']:,} records and {own['router']['outcomes']:,} outcomes before {w.name} was"
        assert told in printed.err
        assert own["router"]["outcomes"] + own["router"]["copies"] == len(w.read("outcomes"))
    source, router = followed["sources"], followed["router"]
    records = [earlier[w.name]["sources"]["records"] for w in (two, three)]
    assert (records[0], source["records"]) == (third, len(sent))
    assert third <= records[1] < len(sent) - third
    assert source["sent"] + source["dead"] + source["passed"] == len(sent)
    assert (source["waiting"], source["gone"], source["unread"]) == (0, 0, 0)
    outcomes = sum(len(w.read("outcomes")) for w in (two, three, four))
    assert router["outcomes"] + router["copies"] == outcomes
    assert router["waiting"] == 0
    assert sum(followed["routed"][each] for each in ("routes_opened", "routes_added")) == source["routes"]

    # An event that was forecast before a move and judged behind it has one path.
    before = {orjson.loads(each.value or b"")["event_id"] for each in two.read("forecasts")}
    behind = next(said for said in map(_said, three.read("labels")) if said["event_id"] in before)
    assert event_path.run(four.settings, behind["event_id"], json_output=True) == event_path.FOUND
    path = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert path["verdict"] == "answered, and its label is learnt"
    assert all("(not there)" not in step["note"] for step in path["steps"])

    # By the checkpoint of the first group, and then without the groups before.
    assert audited(hour, capsys, daily)[0] == auditor.AGREE
    asked(four, lambda admin: admin.delete_topics([two.settings.routes, three.settings.forecasts]))
    status, account = audited(hour, capsys, daily)
    assert (status, account["followed"]["earlier_groups"]) == (auditor.AGREE, {})
    status, account = audited(hour, capsys)
    assert status == auditor.UNCHECKED
    assert f"there is no topic {three.settings.forecasts}" in account["unable"][0]
    assert "with --sources and --checkpoint has ended with 0" in account["unable"][0]


def beside(world: MakeWorld, old: World, partitions: int) -> World:
    """Return a world of other partitions for the same sources."""
    names = ("TRUEUP_STREAMS", "TRUEUP_BATCH_RECORDS")
    return world(partitions=partitions, **{name: old.environment[name] for name in names})


def _said(record: Read) -> dict[str, Any]:
    said: dict[str, Any] = orjson.loads(record.value or b"")
    return said


def asked(w: World, ask: Callable[[Any], Awaitable[Any]]) -> None:
    """Ask the brokers for something."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=w.bootstrap)
        await admin.start()
        try:
            await ask(admin)
        finally:
            await admin.close()

    asyncio.run(run())


def append(w: World, topic: str, partition: int, key: bytes | None, value: bytes, ts: int) -> None:
    """Append a record to a partition."""

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=w.bootstrap) as producer:
            await producer.send_and_wait(topic, value, key=key, partition=partition, timestamp_ms=ts)

    asyncio.run(run())
