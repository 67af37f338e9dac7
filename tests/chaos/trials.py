"""What each fault does that is tried on workers of its own: a promise is kept or broken, and the campaign goes on."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import unpack_from
from typing import Any

import orjson
from aiokafka.errors import KafkaError, PolicyViolationError

from streams.kafka import topics
from tests.chaos.faults import Drawing, kind
from tests.chaos.stage import PATIENCE, BrokenPromiseError, Stage
from tests.e2e.world import ROOT, Worker, World, buried, wait_for
from tests.events import Sent, forecast, mixed, outcome

#: 9999-01-01, ms since 1970.
FAR = 253_370_764_800_000
#: Records that come after a far one.
BEHIND = 1000
_numbers = itertools.count()


@contextmanager
def _apart(stage: Stage) -> Iterator[tuple[World, Worker]]:
    """Run one worker on topics of its own.

    Its session outlasts what happens to it. The brokers wait as long for a worker that died while it joined.
    """
    directory = stage.world.directory / f"apart-{next(_numbers)}"
    directory.mkdir()
    settings = {"TRUEUP_SESSION_SECONDS": "60"}
    world = World(stage.cluster.bootstrap, directory, 1, replication=stage.cluster.replication, **settings)
    with world.worker() as worker:
        wait_for("the worker apart to serve", worker.ready, PATIENCE)
        yield world, worker


@kind("poisoned time")
def poison_time(stage: Stage) -> None:
    """In another application: one record dated 9999, while forecasts wait for their outcomes."""
    with _apart(stage) as (world, _):
        # As on brokers that came before the setting, or where somebody took it back.
        stage.cluster.configure(world.settings.forecasts, message_timestamp_after_max_ms=str(2**63 - 1))
        stage.cluster.configure(world.settings.outcomes, message_timestamp_after_max_ms=str(2**63 - 1))
        now = time.time_ns() // 1_000_000
        early = [forecast(f"a-{i}", i / 50, now + i) for i in range(50)]
        world.send(early)
        world.wait_until_applied(50)
        taken = 100 + BEHIND
        for record in (forecast("far", 0.5, FAR), outcome("far", 1, FAR)):
            try:
                world.send([record])
                taken += 1
            except KafkaError:  # the brokers keep a bound of their own
                continue
        # Rows that have expired live on for a while.
        world.send([forecast(f"b-{i}", i / BEHIND, now + 100) for i in range(BEHIND)])
        world.send([outcome(f"a-{i}", i % 2, now + 200 + i) for i in range(50)])
        world.wait_until_applied(taken)
        applied = world.applied()
        expired = applied["expired_forecasts"] + applied["expired_outcomes"]
        if expired or applied["outcomes_resolved"] < 50:
            raise BrokenPromiseError(
                f"one record dated 9999: {expired} rows expired, {applied['outcomes_resolved']} of 50 outcomes resolved"
            )


@kind("retention overtakes a worker")
def overtake(stage: Stage) -> None:
    """In another application: retention deletes inputs that a stopped worker has not read; then it goes on."""
    with _apart(stage) as (world, worker):
        made = mixed(500, seed=1)
        world.send(made.sent)
        world.wait_until_applied(len(made.sent))
        worker.process.send_signal(signal.SIGSTOP)
        world.send(mixed(20_000, seed=2, start=10_000_000).sent)
        ends = {label: len(world.read(label)) for label in ("forecasts", "outcomes")}
        for label, end in ends.items():
            stage.cluster.delete_records(world.topic(label), {0: end - 100})
        worker.process.send_signal(signal.SIGCONT)
        try:
            status = worker.process.wait(PATIENCE / 4)
        except subprocess.TimeoutExpired:
            answered = sum(world.applied().values())
            raise BrokenPromiseError(
                f"{sum(ends.values()) - answered} records were deleted unread, and the worker goes on without a word"
            ) from None
        if status != 70:
            raise BrokenPromiseError(f"records were deleted unread, and the worker ended with {status} instead of 70")
        if "DataLossError" not in worker.printed:
            raise BrokenPromiseError("records were deleted unread, and the worker ended without saying so")


@kind("changelog cut")
def cut_changelog(stage: Stage) -> None:
    """In another application: the changelog of a stopped worker loses its beginning, and the disk is lost."""
    with _stopped(stage) as world:
        stage.cluster.configure(world.settings.changelog, cleanup_policy="delete")
        wait_for("the brokers to delete", lambda: _cut(stage, world), PATIENCE)
        stage.cluster.configure(world.settings.changelog, cleanup_policy="compact")
        shutil.rmtree(world.directory / "data")
        _refused(world, "has lost what stood before offset")
        world.send(_forecasts("outage", EACH))
        _succeeded(stage, world, ["replay", "--write-state", f"{world.name}-heir"])
        _goes_on(world, {"outage": EACH, **{str(n): EACH for n in range(SERVED)}})


@kind("changelog made anew")
def remake_changelog(stage: Stage) -> None:
    """In another application: the changelog of a stopped worker is made anew, and retention trims the inputs."""
    with _stopped(stage) as world:
        stage.cluster.ask(lambda admin: admin.delete_topics([world.settings.changelog]))
        wait_for("the changelog to be made anew", lambda: _made(stage, world), PATIENCE)
        stage.cluster.delete_records(world.topic("forecasts"), {0: SERVED * EACH})
        _refused(world, "and its state is gone")
        _succeeded(stage, world)
        _goes_on(world, {str(n): EACH for n in range(SERVED)})


def _stopped_or_not(drawing: Drawing) -> list[dict[str, Any]]:
    return [{"seconds": drawing.few, "runs": runs} for runs in (False, True)]


@kind("input cut and written anew", brokers=(1,), outage=None, each=_stopped_or_not)
def rewrite_input(stage: Stage, seconds: float, *, runs: bool) -> None:
    """In another application: the broker loses the end of an input, whose offsets other records get.

    Its worker is stopped, or runs on and stands still meanwhile.
    """
    said = "is not the record that was applied before"
    with _apart(stage) as (world, worker):
        _serve(world)
        if runs:
            worker.process.send_signal(signal.SIGSTOP)
        else:
            worker.stop()
        (broker,) = stage.cluster.brokers
        broker.kill()
        shorten(broker.directory / "data" / f"{world.topic('forecasts')}-0")
        time.sleep(seconds)
        stage.cluster.start()
        world.send(_forecasts("other", 2 * EACH))
        if runs:
            worker.process.send_signal(signal.SIGCONT)
            _ended(worker, said)
        _refused(world, said)
        _succeeded(stage, world)
        # The new id answers all that the input has once more; the records that it lost were answered once.
        _goes_on(world, {"other": 2 * EACH, str(SERVED - 1): EACH, **{str(n): 2 * EACH for n in range(SERVED - 1)}})


#: How many times a worker is sent forecasts before it is stopped, and how many each time.
SERVED, EACH = 5, 100


def _forecasts(name: str, n: int) -> list[Sent]:
    now = time.time_ns() // 1_000_000
    return [forecast(f"{name}-{i}", i / n, now + i) for i in range(n)]


@contextmanager
def _stopped(stage: Stage) -> Iterator[World]:
    """Let a worker apart answer some forecasts, and stop it."""
    with _apart(stage) as (world, worker):
        _serve(world)
        worker.stop()
        yield world


def _serve(world: World) -> None:
    for n in range(SERVED):
        world.send(_forecasts(str(n), EACH))
    world.wait_until_applied(SERVED * EACH)


def _cut(stage: Stage, world: World) -> bool:
    """Delete the beginning of a changelog; False while the brokers do not know that they may."""
    try:
        stage.cluster.delete_records(world.settings.changelog, {0: 3})
    except PolicyViolationError:
        return False
    return True


def _made(stage: Stage, world: World) -> bool:
    """Make what a worker lacks of topics; False while the brokers still delete one."""
    try:
        return bool(asyncio.run(topics.create(world.settings, partitions=1, replication=stage.cluster.replication)))
    except topics.TopicsError:
        return False


def shorten(directory: Path) -> None:
    """Take the last batch from the only segment of a partition, as a power loss does."""
    (log,) = directory.glob("*.log")
    data, at, last = log.read_bytes(), 0, 0
    while at < len(data) and (length := unpack_from(">i", data, at + 8)[0]):
        last, at = at, at + 12 + length
    os.truncate(log, last)
    for index in directory.glob("*.*index"):
        index.unlink()


def _refused(world: World, said: str) -> None:
    """Start the worker again: it must end and say why, however often it is started."""
    for _ in range(2):
        # Who could not leave the group holds the partition until its session ends, which is long.
        asyncio.run(buried(world.bootstrap, world.name))
        with world.worker() as worker:
            _ended(worker, said)


def _ended(worker: Worker, said: str) -> None:
    """Wait for a worker to end and say why."""
    began = time.monotonic()
    try:
        status = worker.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise BrokenPromiseError(f"the worker goes on without a word, instead of: {said}") from None
    if status != 70 or said not in worker.printed:
        raise BrokenPromiseError(f"the worker ended with {status} and does not say: {said}")
    print(f"    worker: {said!r} after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def _succeeded(stage: Stage, world: World, *commands: list[str]) -> None:
    """Give a worker's topics to another application id, as the documentation says, after commands of the old one."""
    asyncio.run(buried(world.bootstrap, world.name))  # its session is long
    old, copies = world.environment, str(stage.cluster.replication)
    world.environment = {**old, "TRUEUP_APP_ID": f"{world.name}-heir"}
    _operate(world.environment, "topics", "create", "--partitions", "1", "--replication", copies)
    for command in commands:
        _operate(old, *command)
    _operate(world.environment, "topics", "take")


def _operate(settings: Mapping[str, str], *command: str) -> None:
    environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-m", "cli.main", *command]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BrokenPromiseError(f"trueup {' '.join(command)} ended with {done.returncode}: {done.stderr[-300:]}")


def _goes_on(world: World, answered: dict[str, int]) -> None:
    """Serve under the new id; what is sent now is answered, and all before as often as it is to be."""
    wanted = Counter(answered | {"new": EACH})
    world.send(_forecasts("new", EACH))

    def found() -> Counter[str]:
        return Counter(orjson.loads(each.value or b"")["event_id"].split("-")[0] for each in world.read("calibrated"))

    with world.worker() as worker:
        wait_for("the worker under another id to answer", lambda: worker.ready() and found() >= wanted, PATIENCE)
        worker.stop()
    if found() != wanted:
        raise BrokenPromiseError(f"answers by batch are {dict(found())}, to be {dict(wanted)}")


@kind("doubled instance id", deaths=2)
def double_ids(stage: Stage) -> None:
    """Two more workers start at a time under one instance id; who serves in the end is killed."""
    name = f"twin-{next(_numbers)}"
    twins = [stage.fleet.guest(TRUEUP_INSTANCE_ID=name) for _ in range(2)]

    def healthy() -> int:
        return sum(twin.running and twin.worker.get("/healthz")[0] == 200 for twin in twins)

    try:
        wait_for("a twin to start", lambda: any(twin.worker.port() is not None for twin in twins), PATIENCE)
        wait_for("a twin to serve or to end", lambda: any(t.ready() or not t.running for t in twins), PATIENCE)
        try:
            wait_for("one of two workers with one instance id to end", lambda: healthy() < 2, PATIENCE / 4)
        except AssertionError:
            raise BrokenPromiseError("two workers with one instance id are both healthy") from None
    finally:
        for twin in twins:
            twin.worker.kill()
