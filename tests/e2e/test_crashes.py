"""Death between every two steps: the end is the same."""

import shutil

from tests.e2e.world import MakeWorld, wait_for
from tests.events import mixed

KILLED = -9


def test_kill_9_between_every_two_steps_ends_in_the_same_state(world: MakeWorld) -> None:
    w = world(partitions=2, TRUEUP_BATCH_RECORDS="40", TRUEUP_INSTANCE_ID="one", TRUEUP_CHECKPOINT_SECONDS="0.05")
    made = mixed(1000)
    parts = [made.sent[at : at + 10] for at in range(0, len(made.sent), 10)]
    for step in (1, 2, 3, 4, 5, 6, 3, 5):
        with w.worker("--kill", str(step), "3" if step < 5 else "2") as worker:
            wait_for("a worker that serves", lambda: worker.process.poll() is not None or worker.ready())
            while worker.process.poll() is None:
                w.send(parts.pop(0))
            assert worker.process.wait() == KILLED, worker.printed[-4000:]
        shutil.rmtree(w.directory / "data")
    with w.worker() as worker:
        wait_for("a worker that serves", worker.ready)
        for part in parts:
            w.send(part)
        w.wait_until_applied()
        assert worker.stop() == 0
    applied, fates = w.applied(), made.fates
    assert applied["forecasts_issued"] == fates["forecasts_issued"]
    joined = fates["outcomes_resolved"] + fates["early_joined"]
    # An outcome may come before its forecast, as both are sent while the worker reads.
    assert applied["outcomes_resolved"] + applied["early_joined"] == joined
    w.judge()
