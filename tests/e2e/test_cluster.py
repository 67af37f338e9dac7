"""Three brokers that replicate everything, of which one is away: the workers go on with the others."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.chaos.cluster import Cluster
from tests.e2e.world import Worker, World, wait_for
from tests.events import mixed


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "brokers", ((), (), ())) as cluster:
        yield cluster


def complaints(worker: Worker) -> list[str]:
    """Return what the log says of level WARNING and above."""
    lines = [orjson.loads(line) for line in worker.printed.splitlines() if line.startswith("{")]
    return [line["message"] for line in lines if line["level"] in ("warning", "error", "critical")]


def test_a_worker_goes_on_while_the_leader_of_its_changelog_is_frozen(cluster: Cluster, tmp_path: Path) -> None:
    settings = {"TRUEUP_BATCH_RECORDS": "50", "TRUEUP_REQUEST_SECONDS": "15", "TRUEUP_SESSION_SECONDS": "15"}
    w = World(cluster.bootstrap, tmp_path, partitions=3, replication=3, **settings)
    made = mixed(1500)
    w.send(made.sent)
    with w.worker("--slow-batches", "0.1") as worker:
        wait_for("the first records", lambda: worker.metric("records_total") >= 300)
        frozen = cluster.broker(cluster.places(w.settings.changelog)[0].leader)
        frozen.pause()
        try:
            wait_for("the rest", lambda: worker.ready() and worker.metric("records_total") >= len(made.sent))
            said = complaints(worker)
        finally:
            frozen.resume()
        cluster.heal()
        w.wait_until_applied(len(made.sent))
        assert worker.stop() == 0
    assert any("does not answer" in each for each in said)
    assert len(said) < 60, said
    w.judge()
