"""Death between every two steps, partitions that move: the end is the same."""

import shutil
from collections.abc import Callable

import pytest

from agents.worker import FAILED, MISCONFIGURED
from tests.e2e.world import World, wait_for
from tests.events import forecast, mixed

MakeWorld = Callable[..., World]
KILLED = -9


@pytest.mark.parametrize("disk", ["same", "empty"])
def test_kill_9_between_every_two_steps_ends_in_the_same_state(world: MakeWorld, disk: str) -> None:
    w = world(partitions=2, TRUEUP_BATCH_RECORDS="40", TRUEUP_INSTANCE_ID="one", TRUEUP_CHECKPOINT_SECONDS="0.05")
    made = mixed(1000)
    parts = [made.sent[at : at + 10] for at in range(0, len(made.sent), 10)]
    for step in (1, 2, 3, 4, 5, 6, 3, 5):
        with w.worker("--kill", str(step), "3" if step < 5 else "2") as worker:
            wait_for("a worker that serves", lambda: worker.process.poll() is not None or worker.ready())
            while worker.process.poll() is None:
                w.send(parts.pop(0))
            assert worker.process.wait() == KILLED, worker.printed[-4000:]
        if disk == "empty":
            shutil.rmtree(w.directory / "data")
    with w.worker() as worker:
        wait_for("a worker that serves", worker.ready)
        for part in parts:
            w.send(part)
        w.wait_until_applied(len(made.sent))
        assert worker.stop() == 0
    applied, fates = w.applied(), made.fates
    assert applied["forecasts_issued"] == fates["forecasts_issued"]
    joined = fates["outcomes_resolved"] + fates["early_joined"]
    # An outcome may come before its forecast, as both are sent while the worker reads.
    assert applied["outcomes_resolved"] + applied["early_joined"] == joined
    w.judge()


def test_a_restart_in_the_middle_continues(world: MakeWorld) -> None:
    w = world()
    first, second = mixed(500, seed=1), mixed(500, seed=2, start=200_000)
    w.send(first.sent)
    with w.worker() as worker:
        wait_for("the first records", lambda: worker.metric("records_total") > 0)
        assert worker.stop() == 0
    w.send(second.sent)
    with w.worker() as worker:
        w.wait_until_applied(len(first.sent) + len(second.sent))
        # A clean stop committed what was done: nothing had to be answered again.
        assert worker.metric("redelivered_records_total") == 0
    w.judge()


def test_a_damaged_row_ends_the_worker_and_an_empty_disk_mends_it(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.send([forecast("a", 0.5, 1000)])
    with w.worker() as worker:
        w.wait_until_applied(1)
        assert worker.stop() == 0
    _damage(w, b"La")
    w.send([forecast("a", 0.5, 1000)])
    with w.worker() as worker:
        assert worker.process.wait(60) == FAILED
        assert "CorruptFrame" in worker.printed
    shutil.rmtree(w.directory / "data")
    with w.worker():
        w.wait_until_applied(2)
    w.judge()


def test_topics_that_do_not_match_are_refused(world: MakeWorld) -> None:
    w = world(partitions=2)
    nowhere = f"{w.name}-nowhere"
    with w.worker(TRUEUP_OUTCOMES=nowhere) as worker:
        assert worker.process.wait(60) == MISCONFIGURED
        assert f"topic {nowhere} does not exist" in worker.printed


def _damage(w: World, key: bytes) -> None:
    """Change a byte of a stored row, as a fault of disk or memory would below RocksDB's own checks."""
    import rocksdict  # noqa: PLC0415 - only here

    (path,) = (w.directory / "data").rglob("state-0.db")
    db = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    row = bytearray(db[key] or b"")
    row[20] ^= 1
    db[key] = bytes(row)
    db.close()
