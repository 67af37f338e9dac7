"""A group moves to other numbers of partitions: no event is lost or learnt twice, and no sum changes."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from cli import show
from replay.audit import auditor
from state import kinds
from state.events import Output, Resolved
from state.fence import FATES
from state.scoring import windows
from streams.config.settings import Settings
from streams.kafka import topics
from streams.records.decoding import Decoder
from streams.records.encoding import encode
from streams.records.refused import named
from tests.e2e.test_intake import Hour, expected
from tests.e2e.test_intake import made as made_sources
from tests.e2e.world import ROOT, World, identity, wait_for
from tests.events import Sent, mixed
from tests.forks import ended
from tests.night import by_night
from tests.state.histories import Worker

MakeWorld = Callable[..., World]
DOOMED = ROOT / "tests/e2e/doomed_rescale.py"


def changes(old: World, new: World) -> list[str]:
    """Return the settings of a world that are not those of another, as the command takes them."""
    return [
        f"{name}={value}"
        for name, value in new.environment.items()
        if name != "TRUEUP_APP_ID" and old.environment.get(name) != value
    ]


def rescale(
    old: World, new: World, *more: str, doomed: tuple[int, int] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command, or one that is killed when a step was passed so many times."""
    width = str(new.partitions)
    if doomed is None:
        return old.command("state", "rescale", "--partitions", width, "--to", new.name, *more, *changes(old, new))
    arguments = [*map(str, doomed), width, new.name, *changes(old, new)]
    return ended(DOOMED, arguments, {**os.environ, **old.environment, "PYTHONPATH": str(ROOT)})


def moved(old: World, new: World, *more: str) -> None:
    """Run the command, and take its rows for what the new world begins with."""
    ended = rescale(old, new, *more)
    assert ended.returncode == 0, ended.stderr
    assert f"rows of {old.name} are in {new.partitions} partitions of {new.name}" in ended.stdout
    new.begun = new.state()


def sums(w: World) -> dict[str, Any]:
    """Return the counts and scores of a group over all partitions."""
    found = asyncio.run(show.read(w.settings))
    fates = [sum(fence.fates[i] for fence in found.fences.values()) for i in range(len(FATES))]
    waits = [sum(getattr(fence, name) for fence in found.fences.values()) for name in ("pending", "waiting", "early")]
    by_stream = {stream: found.of(kinds.SCORES, stream) for stream in found.streams}
    scores = {stream: windows.overall(list(each.values())).encode() for stream, each in by_stream.items() if each}
    by_age = {stream: found.of(kinds.AGES, stream).values() for stream in found.streams}
    ages = {stream: [sum(each.n(y) for each in found) for y in (0, 1)] for stream, found in by_age.items() if found}
    return {"fates": fates, "waits": waits, "scores": scores, "ages": ages}


def serve(w: World, records: list[Sent]) -> None:
    """Let a worker apply records, and stop."""
    w.send(records)
    w.sent += len(records)
    with w.worker() as worker:
        wait_for("the worker to serve", worker.ready)
        w.wait_until_applied(w.sent)
        assert worker.stop() == 0


def in_one(records: list[Sent], settings: Settings) -> set[str]:
    """Return what one partition would resolve of all records: events with the revision of each label."""
    engine = Worker(settings.policies)
    decoder = Decoder(settings.policies, settings.limits)
    outputs: list[Output] = []
    for n, record in enumerate(records):
        decode = decoder.outcome if record.topic == "outcomes" else decoder.forecast
        outputs += engine.fold(*named([decode(n, record.key, record.value, record.ts)])).outputs
    made = [encode(each, settings, 0) for each in outputs if isinstance(each, Resolved)]
    return {identity("resolved", value) for _, _, value in made}


def names(w: World, label: str) -> Counter[str]:
    """Return what a topic holds, by what names a record's event."""
    return Counter(identity(label, record.value or b"") for record in w.read(label))


def test_two_become_five_and_three_and_nothing_is_lost(world: MakeWorld) -> None:
    made = mixed(900, seed=7)
    third = len(made.sent) // 3
    again = [each for each in made.sent[:third] if b'"p"' in each.value and each.value.startswith(b'{"event_id":"7-')]
    worlds = [world(partitions=n, TRUEUP_DEFAULT_CALIBRATOR="platt+minimax") for n in (2, 5, 3)]
    two, five, three = worlds
    serve(two, made.sent[:third])
    before = sums(two)
    moved(two, five)
    assert sums(five) == before
    serve(five, made.sent[third : 2 * third])
    five.judge()
    before = sums(five)
    moved(five, three)
    assert sums(three) == before
    serve(three, [*made.sent[2 * third :], *again])
    three.judge()

    resolved = sum((names(each, "resolved") for each in worlds), Counter())
    assert set(resolved) == in_one(made.sent, two.settings)
    assert set(resolved.values()) == {1}
    # What came once more is answered as it was, to the last digit, three numbers of partitions later.
    first = {identity("calibrated", each.value or b""): each.value for each in two.read("calibrated")}
    repeated = [each for each in three.read("calibrated") if identity("calibrated", each.value or b"") in first]
    assert len(repeated) >= len(again) / 2
    assert all(first[identity("calibrated", each.value or b"")] == each.value for each in repeated)


def test_it_is_killed_at_every_step_and_run_again(world: MakeWorld) -> None:
    made = mixed(300, seed=8)
    half = len(made.sent) // 2
    old, new = world(partitions=2), world(partitions=3)
    serve(old, made.sent[:half])
    before = sums(old)
    every = (1, 1), (1, 3), (2, 1), (2, 3), (3, 1), (4, 1), (4, 1), (4, 1)
    for doomed in every if by_night() else ((3, 1),):
        assert rescale(old, new, doomed=doomed).returncode == -signal.SIGKILL, doomed
        if doomed == (2, 3):
            with new.worker() as refused:
                assert refused.process.wait(90) == 70
                assert "CorruptFrame" in refused.printed
            wait_for(
                "the session of the worker to end", lambda: "members" not in rescale(old, new, doomed=(1, 1)).stderr
            )
    ended = rescale(old, new)
    assert ended.returncode == 0, ended.stderr
    assert ("already: nothing was written" in ended.stdout) == by_night()
    new.begun = new.state()
    assert sums(new) == before
    serve(new, made.sent[half:])
    new.judge()
    assert set(names(old, "resolved") + names(new, "resolved")) == in_one(made.sent, old.settings)
    assert "already: nothing was written" in rescale(old, new).stdout
    new.judge()


def test_what_is_not_ready_is_refused_and_nothing_is_written(world: MakeWorld) -> None:
    made = mixed(60, seed=9)
    old, new = world(partitions=2), world(partitions=3)
    old.send(made.sent)
    with old.worker() as worker:
        wait_for("the worker to serve", worker.ready)
        assert f"group {old.name} has 1 members: stop them first" in rescale(old, new).stderr
        old.wait_until_applied(len(made.sent))
        assert worker.stop() == 0
    assert "its stream would be in" in rescale(old, new, "--keys", "stream").stderr
    old.send(made.sent[:5])
    refused = rescale(old, new)
    assert refused.returncode == 78
    assert "records are not applied yet: " in refused.stderr
    answers = len(old.read("calibrated"))
    with old.worker(TRUEUP_CHECKPOINT_SECONDS="60") as worker:
        wait_for("answers", lambda: len(old.read("calibrated")) > answers)
        worker.kill()
    while "members: stop them" in (refused := rescale(old, new)).stderr:
        time.sleep(1)
    assert re.search(r"[\d,]+ records of partition \d of .* are in its journal and not yet in its rows", refused.stderr)
    assert f"{old.name} was killed, not stopped. Start its workers once more" in refused.stderr
    assert new.read("changelog") == []
    old.environment["TRUEUP_OUTCOMES"] = old.settings.outcomes
    narrow = world(partitions=2)
    narrow.partitions = 3
    refused = rescale(old, narrow)
    assert refused.returncode == 78
    assert f"TRUEUP_APP_ID={narrow.name}" in refused.stderr
    assert "topics create --partitions 3" in refused.stderr


def test_topics_that_were_not_made_as_asked_are_named(world: MakeWorld) -> None:
    there = world(partitions=2)
    asked = {"partitions": 3, "replication": 3, "retention_ms": 86_400_000}
    command = ["topics", "create", "--partitions", "3", "--replication", "3", "--retention", "1d"]
    made = there.command(*command)
    assert made.returncode == 1
    assert "all topics are as they must be" not in made.stdout
    problems = asyncio.run(topics.check(there.settings, as_worker=False, **asked))
    names = ", ".join(topic.name for topic in topics.wanted(there.settings))
    (partitions,) = (each for each in problems if "2 partitions and were left so, 3 were asked for" in each)
    (replicas,) = (each for each in problems if "1 replicas and were left so, 3 were asked for" in each)
    assert partitions.startswith(f"topics {names} have 2")
    assert replicas.startswith(f"topics {names} have 1")
    assert len([each for each in problems if "and was left so, 86400000 was asked for" in each]) == 6
    assert asyncio.run(topics.check(there.settings, as_worker=False, partitions=2, replication=1)) == []


def test_intake_router_and_worker_move_together(world: MakeWorld, tmp_path: Path) -> None:
    hour = Hour(world, tmp_path, "moving")
    old = hour.world
    sent = made_sources(600, seed=5)
    half = len(sent) // 2
    hour.send(sent[:half])
    with hour.stages("intake", "router", "worker"):
        hour.wait()
        for stage in hour.running:
            assert stage.stop() == 0
    before = sums(old)
    new = world(partitions=3, **{name: old.environment[name] for name in ("TRUEUP_STREAMS", "TRUEUP_BATCH_RECORDS")})
    hour.send(sent[half:])  # sources go on
    for doomed in ((2, 4), (3, 1), (4, 2), (4, 3)):
        assert rescale(old, new, doomed=doomed).returncode == -signal.SIGKILL, doomed
    moved(old, new)
    assert sums(new) == before
    hour.world = new
    with hour.stages("intake", "router", "worker"):
        hour.wait()
    new.judge()
    # Intake went on where it had stopped: each source record was sent once.
    origins = Counter(
        (name.removeprefix(w.name), *orjson.loads(record.value or b"")["origin"])
        for w in (old, new)
        for name in (w.settings.routes, w.settings.labels)
        for record in hour.read(name, w.partitions)
    )
    assert set(origins.values()) == {1}
    last: dict[tuple[str, str], tuple[int, float]] = {}
    for w in (old, new):
        for record in w.read("resolved"):
            said = orjson.loads(record.value or b"")
            where = said["stream"], said["event_id"]
            last[where] = max(last.get(where, (-1, 0.0)), (said["revision"], said["y"]))
    assert {where: y for where, (_, y) in last.items()} == expected(sent)
    # One stream still has one calibrator.
    calibrators = {
        (p, key[5:]) for p, rows in new.state().items() for key in rows if key[:1] == kinds.CALIBRATOR.letter
    }
    assert len({stream for _, stream in calibrators}) == len(calibrators) == 2
    # The answers follow from the sources, through the topics of both groups.
    assert auditor.run(new.settings, json_output=True, sources=True) == auditor.AGREE
