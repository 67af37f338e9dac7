"""A group moves to other numbers of partitions: no event is lost or learnt twice, and no sum changes."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections import Counter
from typing import Any

from cli import show
from state import kinds
from state.events import Output
from state.fence import FATES
from state.scoring import windows
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.refused import named
from tests.e2e.world import ROOT, MakeWorld, World, identity, wait_for
from tests.events import Sent, mixed
from tests.forks import ended
from tests.state.histories import Worker

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


def in_one(records: list[Sent], settings: Settings) -> set[str]:
    """Return what one partition would resolve of all records: events with the revision of each label."""
    engine = Worker(settings.policies)
    decoder = Decoder(settings.policies, settings.limits)
    outputs: list[Output] = []
    for n, record in enumerate(records):
        decode = decoder.outcome if record.topic == "outcomes" else decoder.forecast
        outputs += engine.fold(*named([decode(n, record.key, record.value, record.ts)])).outputs
    made = encoded(outputs, settings, 0)["resolved"]
    return {identity("resolved", value) for _, value, *_ in made}


def names(w: World, label: str) -> Counter[str]:
    """Return what a topic holds, by what names a record's event."""
    return Counter(identity(label, record.value or b"") for record in w.read(label))


def test_what_is_not_ready_is_not_moved_and_a_move_that_is_killed_in_the_midst_is_run_again(world: MakeWorld) -> None:
    made = mixed(300, seed=8)
    half = len(made.sent) // 2
    old, new = world(partitions=2), world(partitions=3)
    what_is_not_ready_is_refused_and_nothing_is_written(world, old, new, made.sent[:half])
    before = sums(old)
    assert rescale(old, new, doomed=(2, 3)).returncode == -signal.SIGKILL
    new.refused(70, "CorruptFrame")  # its rows are not whole
    wait_for("the session of the worker to end", lambda: "members" not in rescale(old, new, doomed=(1, 1)).stderr)
    ended = rescale(old, new)
    assert ended.returncode == 0, ended.stderr
    assert f"rows of {old.name} are in {new.partitions} partitions of {new.name}" in ended.stdout
    new.begun = new.state()
    assert sums(new) == before
    new.serve(made.sent[half:])
    new.judge()
    assert set(names(old, "resolved") + names(new, "resolved")) == in_one(made.sent, old.settings)
    assert "already: nothing was written" in rescale(old, new).stdout
    new.judge()
    assert all(f"'trueup state rescale' made of {old.name}" in each for each in new.agree()["loaded"].values())


def what_is_not_ready_is_refused_and_nothing_is_written(
    world: MakeWorld, old: World, new: World, sent: list[Sent]
) -> None:
    """Serve all of it on the old one meanwhile."""
    few = len(sent) // 2
    old.send(sent[:few])
    with old.worker() as worker:
        wait_for("the worker to serve", worker.ready)
        assert f"group {old.name} has 1 members: stop them first" in rescale(old, new).stderr
        old.wait_until_applied()
        assert worker.stop() == 0
    assert "its stream would be in" in rescale(old, new, "--keys", "stream").stderr
    old.send(sent[few:])
    refused = rescale(old, new)
    assert refused.returncode == 78
    assert "records are not applied yet: " in refused.stderr
    answers = len(old.read("calibrated"))
    with old.worker(TRUEUP_CHECKPOINT_SECONDS="60") as worker:
        wait_for("answers", lambda: len(old.read("calibrated")) > answers)
        old.wait_until_committed()
        worker.kill()
    while "members: stop them" in (refused := rescale(old, new)).stderr:
        time.sleep(1)
    assert re.search(r"[\d,]+ records of partition \d of .* are in its journal and not yet in its rows", refused.stderr)
    assert f"{old.name} was killed, not stopped. Start its workers once more" in refused.stderr
    assert new.read("changelog") == []
    narrow = world(partitions=2)
    narrow.partitions = 3
    refused = rescale(old, narrow)
    assert refused.returncode == 78
    assert f"TRUEUP_APP_ID={narrow.name}" in refused.stderr
    assert "topics create --partitions 3" in refused.stderr
    old.serve()
