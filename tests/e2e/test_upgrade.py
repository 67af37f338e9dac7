"""Workers of two builds in one group: neither goes on with what the other has answered after its last checkpoint."""

from contextlib import AbstractContextManager

import pytest

from state.fence import FATES, INPUT_FATES
from state.formats import ARITHMETIC
from streams.config import in_force
from tests.e2e.world import MakeWorld, Worker, wait_for
from tests.events import mixed

ANOTHER = "--arithmetic", str(ARITHMETIC + 1)


def test_a_build_is_rolled_out_over_another_that_is_killed_on_the_way(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(TRUEUP_CHECKPOINT_SECONDS="60")  # what is answered stays in the journal until a worker stops
    parts = [mixed(60, seed=seed, start=1_000_000 * seed).sent for seed in (1, 2, 3)]

    def running(name: str, *accident: str) -> AbstractContextManager[Worker]:
        return w.worker(*accident, TRUEUP_DATA_DIR=str(w.directory / name))

    with running("a") as old, running("b", *ANOTHER) as new:
        wait_for("both to serve", lambda: old.ready() and new.ready() and new.metric("held_partitions") == 1)
        w.send(parts[0])
        w.wait_until_committed()
        old.kill()
        new.kill()  # a host is lost that ran both
    with running("b", *ANOTHER) as new:
        wait_for("what the other answered to wait", lambda: "waits for a worker" in new.get("/readyz")[1])
        assert "A worker of that build takes it up" in new.printed
        w.send(parts[1])
        with running("a") as old:
            wait_for("each to serve its own", lambda: old.ready() and new.ready())
            w.wait_until_committed()
            assert (old.metric("held_partitions"), new.metric("held_partitions")) == (1, 1)
            assert old.stop() == 0
        wait_for("the new build to go on", lambda: new.ready() and new.metric("held_partitions") == w.partitions)
        w.send(parts[2])
        w.wait_until_committed()
        assert new.stop() == 0
    monkeypatch.setattr(in_force, "ARITHMETIC", ARITHMETIC + 1)
    w.reconfigure()
    w.judge()
    assert sum(w.applied()[fate] for fate in FATES[:INPUT_FATES]) == w.sent
