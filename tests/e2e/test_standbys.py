"""Copies of a partition's state on another worker, on a real broker: kept, taken over, and never trusted blindly."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.world import MakeWorld, Worker, World, wait_for
from tests.events import mixed

PARTITIONS = 2


@contextmanager
def running(w: World, name: str, *accident: str) -> Iterator[Worker]:
    with w.worker(*accident, TRUEUP_DATA_DIR=str(w.directory / name)) as worker:
        yield worker


def applied(w: World, seed: int, events: int = 300) -> None:
    """Send records, and wait until they are applied."""
    w.send(mixed(events, seed=seed, start=1_000_000 * seed).sent)
    w.wait_until_applied()


def served(worker: Worker) -> float:
    return worker.metric("held_partitions") if worker.ready() else 0.0


def shared(one: Worker, two: Worker) -> None:
    """Wait until both serve, and each has a whole copy of what the other serves."""
    wait_for("both to serve", lambda: served(one) == served(two) == PARTITIONS / 2)
    wait_for("the copies", lambda: whole(one) and whole(two))


def whole(worker: Worker) -> bool:
    """Whether its copies are up to date, as it says."""
    _, text = worker.get("/metrics")
    lags = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("trueup_standby_lag_records{")]
    return len(lags) == PARTITIONS / 2 and not any(lags)


def test_a_partition_moves_to_its_copy_without_reading_the_changelog_from_its_beginning(world: MakeWorld) -> None:
    w = world(partitions=PARTITIONS, TRUEUP_STANDBYS="1", TRUEUP_CHECKPOINT_SECONDS="0")
    with running(w, "one") as one, running(w, "two") as two:
        shared(one, two)
        applied(w, 1, 2000)
        wait_for("the copies", lambda: whole(one) and whole(two))
        kept = len({(each.partition, each.key) for each in w.read("changelog")})
        before = two.metric("recovery_restored_rows_total")
        one.kill()
        wait_for("the other to serve all", lambda: served(two) == PARTITIONS)
        restored = two.metric("recovery_restored_rows_total") - before
        assert restored < 20 < kept / 20, "claims, and nothing of what it had"
        assert two.metric("standby_rows_total") > kept / 4
        assert two.metric("standby_partitions") == 0, "nobody is left whose partitions it could copy"
        applied(w, 2)
        with running(w, "three") as three:  # with an empty disk
            shared(two, three)
            assert three.metric("recovery_restored_rows_total") < 20 < three.metric("standby_rows_total")
            applied(w, 3)
            assert (two.stop(), three.stop()) == (0, 0)
    assert not [each for what in ("foreign", "ahead", "old", "damaged") for each in w.directory.rglob(f"*.{what}")]
    w.judge()
