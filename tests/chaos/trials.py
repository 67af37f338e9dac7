"""What each fault does that is tried on workers of its own: a promise is kept or broken, and the campaign goes on."""

import itertools
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka.errors import KafkaError

from state.engine import HELD
from tests.chaos import faults
from tests.chaos.stage import PATIENCE, BrokenPromiseError, Stage, strike
from tests.e2e.world import Worker, World, wait_for
from tests.events import forecast, mixed, outcome

#: 9999-01-01, ms since 1970.
FAR = 253_370_764_800_000
#: Records for which a row that has expired lives on, and some more.
BEHIND = HELD + 1000
_numbers = itertools.count()


@contextmanager
def _apart(stage: Stage) -> Iterator[tuple[World, Worker]]:
    """Run one worker on topics of its own; a session is long enough for whatever happens to it."""
    directory = stage.world.directory / f"apart-{next(_numbers)}"
    directory.mkdir()
    settings = {"TRUEUP_SESSION_SECONDS": "120"}
    world = World(stage.cluster.bootstrap, directory, 1, replication=stage.cluster.replication, **settings)
    with world.worker() as worker:
        wait_for("the worker apart to serve", worker.ready, PATIENCE)
        yield world, worker


@strike.register
def _(fault: faults.PoisonedTime, stage: Stage) -> None:  # noqa: ARG001 - nothing is drawn
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


@strike.register
def _(fault: faults.Overtaken, stage: Stage) -> None:  # noqa: ARG001 - as above
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


@strike.register
def _(fault: faults.DoubledIds, stage: Stage) -> None:  # noqa: ARG001 - as above
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
