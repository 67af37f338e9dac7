"""Replay beside a live worker on a real broker: the same bytes, and state that a worker goes on from."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from replay.configuration import configurations
from replay.engine_output import HEADER
from replay.run import Request, replay
from replay.sources.topics import Range, reread, resolved
from streams.config.settings import SettingsError
from streams.kafka.topics import TopicsError
from tests.e2e.test_hostile import send_at_once
from tests.e2e.test_intake import read
from tests.e2e.world import MakeWorld, Read, World, wait_for
from tests.events import forecast, mixed, outcome

MADE = mixed(800, seed=7)
#: In the midst of the history, ms.
MIDDLE = 1_000_000 + 40_000


def asked(world: World, wanted: Range | None = None) -> Request:
    source = resolved(world.settings, world.environment, wanted or Range())
    return Request(source, configurations(world.settings, [], []), processes=2)


def answers(records: Iterable[Read]) -> dict[str, set[bytes]]:
    found: dict[str, set[bytes]] = {}
    for record in records:
        assert record.value is not None
        found.setdefault(orjson.loads(record.value)["event_id"], set()).add(record.value)
    return found


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def successor(world: MakeWorld, live: World) -> World:
    """Return a world that reads another's inputs and has everything else of its own."""
    inputs = {f"TRUEUP_{label.upper()}": live.topic(label) for label in ("forecasts", "outcomes")}
    return world(TRUEUP_DATA_DIR=str(live.directory / "heir"), **inputs)


def test_replay_gives_a_live_workers_records_and_state_byte_for_byte_and_a_worker_goes_on_where_it_ended(
    world: MakeWorld, tmp_path: Path
) -> None:
    live = world()
    live.serve(MADE.sent)
    everything_is_the_same_and_is_written_only_where_nothing_is(live, successor(world, live), tmp_path)
    a_worker_goes_on_where_it_ended(live, successor(world, live), tmp_path)


def everything_is_the_same_and_is_written_only_where_nothing_is(live: World, heir: World, directory: Path) -> None:
    side = f"{live.name}-side"
    live.make({side: 2})
    request = replace(
        asked(live),
        output=directory / "out.jsonl",
        write_state=heir.name,
        letters=directory / "dead.jsonl",
        to_topic=side,
    )
    result, _ = replay(request, live.environment)
    assert heir.state() == live.state()
    assert answers(Read(0, 0, None, line, 0) for line in lines(directory / "out.jsonl")) == answers(
        live.read("calibrated")
    )
    letters = {
        (each["topic"], each["partition"], each["offset"]): each
        for each in map(orjson.loads, lines(directory / "dead.jsonl"))
    }
    found = live.said("dead-letters")
    assert letters == {(each["topic"], each["partition"], each["offset"]): each for each in found}
    fates = result.contenders[0].fates
    assert {name: n for name, n in fates.items() if name in MADE.fates} == MADE.fates
    assert result.records == len(MADE.sent)
    beside = read(live.bootstrap, side, 2)
    assert sorted(each.value or b"" for each in beside) == sorted(lines(directory / "out.jsonl"))
    assert {dict(each.headers)[HEADER] for each in beside} == {result.run.encode()}
    # Where there is a state, or no topic for one, none is written; nor beside what a worker has answered.
    alone = replace(request, to_topic=None)
    with pytest.raises(TopicsError, match="has a state already"):
        replay(replace(alone, write_state=live.name), live.environment)
    with pytest.raises(TopicsError, match="there is no topic nobody-state-changelog"):
        replay(replace(alone, write_state="nobody"), live.environment)
    with pytest.raises(SettingsError, match="a replay writes only to a topic of its own"):
        replay(replace(asked(live), to_topic=live.topic("calibrated")), live.environment)
    # Replaying again gives the same file.
    again = replace(alone, output=directory / "again.jsonl", write_state=None, processes=1)
    assert replay(again, live.environment)[0].encode() == result.encode()
    assert (directory / "again.jsonl").read_bytes() == (directory / "out.jsonl").read_bytes()


def a_worker_goes_on_where_it_ended(live: World, heir: World, directory: Path) -> None:
    request = replace(asked(live, Range(to_ms=MIDDLE)), output=directory / "first.jsonl", write_state=heir.name)
    result, _ = replay(request, live.environment)
    assert 0 < result.records < len(MADE.sent)
    heir.sent = live.sent  # to the same inputs
    heir.serve()
    assert heir.state() == live.state()
    first, rest = lines(directory / "first.jsonl"), heir.read("calibrated")
    assert len(first) + len(rest) == len(live.read("calibrated"))
    assert answers([*(Read(0, 0, None, line, 0) for line in first), *rest]) == answers(live.read("calibrated"))
    account = heir.agree()
    checked = account["checked"]
    assert checked["forecasts"] + checked["outcomes"] == len(MADE.sent) - result.records
    assert "'trueup replay --write-state' made of" in account["loaded"]["0"]


def test_replay_reads_what_a_worker_reads(world: MakeWorld, tmp_path: Path) -> None:
    live = world(partitions=1, TRUEUP_UNPACKED_BYTES=str(2 << 20))
    live.send([forecast("a", 0.3, 1000), outcome("a", 1, 1001)])
    asyncio.run(in_transactions(live))
    send_at_once(live, "forecasts", "zstd", [b"{}", bytes(20 << 20), b"{}"])
    live.send([outcome("b", 1, 1999), forecast("b", 0.4, 2000), outcome("a", 0, 2001)])
    live.done("state", "skip", f"{live.topic('outcomes')}/0@1", "--reason", "a defect")
    with live.worker() as worker:
        wait_for("all answers", lambda: (len(live.read("calibrated")), len(live.read("dead-letters"))) == (3, 2))
        assert worker.stop() == 0
    request = replace(
        asked(live), output=tmp_path / "out.jsonl", letters=tmp_path / "dead.jsonl", manifest=tmp_path / "run.json"
    )
    result, _ = replay(request, live.environment)
    assert result.dead == {"forecasts": {"batch": 1}, "outcomes": {"skipped": 1}}
    assert result.contenders[0].fates == live.applied()
    assert answers(Read(0, 0, None, line, 0) for line in lines(tmp_path / "out.jsonl")) == answers(
        live.read("calibrated")
    )
    assert sorted(lines(tmp_path / "dead.jsonl")) == sorted(each.value or b"" for each in live.read("dead-letters"))
    again = reread(tmp_path / "run.json", live.environment)
    assert again.skipped == {live.topic("forecasts"): {}, live.topic("outcomes"): {0: {1: "skipped at 1: a defect"}}}
    assert replay(replace(request, source=again), live.environment)[0].encode() == result.encode()


async def in_transactions(world: World) -> None:
    """Send a forecast in a transaction, and another one that is taken back."""
    producer = AIOKafkaProducer(bootstrap_servers=world.bootstrap, transactional_id=world.name)
    async with producer:
        for name, taken_back in (("kept", False), ("taken-back", True)):
            await producer.begin_transaction()
            record = forecast(name, 0.5, 1002)
            await producer.send_and_wait(world.topic("forecasts"), record.value, key=record.key, timestamp_ms=1002)
            await (producer.abort_transaction() if taken_back else producer.commit_transaction())
