"""A worker under pressure holds what its settings allow and answers everything."""

import shutil
import time
from collections.abc import Iterator

from tests.e2e.world import MakeWorld, Worker, wait_for
from tests.events import forecast, outcome


def watched(worker: Worker, *names: str) -> Iterator[dict[str, float]]:
    """Yield the sums of some metrics again and again."""
    while True:
        yield {name: worker.metric(name) for name in names}
        time.sleep(0.05)


def test_a_worker_that_is_overrun_stops_fetching_and_holds_its_share(world: MakeWorld) -> None:
    w = world(partitions=1, TRUEUP_MEMORY_BYTES=str(48 << 20), TRUEUP_BATCH_RECORDS="20", TRUEUP_PATIENCE_SECONDS="0")
    n, share, fetch = 1200, 2 << 20, 1 << 20
    w.send(forecast(f"e{i}", 0.5, 1000 + i, padding="x" * 10_000) for i in range(n))
    paused, most = False, 0.0
    with w.worker("--slow-batches", "0.05") as worker:
        for found in watched(worker, "fetch_paused", "buffered_bytes", "records_total"):
            paused = paused or found["fetch_paused"] == 1
            most = max(most, found["buffered_bytes"])
            if found["records_total"] == n:
                break
        assert worker.stop() == 0
    assert paused
    assert share <= most < share + fetch + 20_000, "a fetch is buffered whole"
    assert w.applied()["forecasts_issued"] == n
    w.judge()


def test_a_worker_killed_while_it_restores_goes_on_where_it_was_and_loses_no_row(world: MakeWorld) -> None:
    # With an instance id nobody waits for a session to end; without compression one fetch does not bring it all.
    w = world(partitions=1, TRUEUP_INSTANCE_ID="one", TRUEUP_COMPRESSION="none", TRUEUP_BATCH_BYTES="100000")
    n = 8000
    w.serve(forecast(f"e{i}", 0.5, 1000 + i) for i in range(n))
    shutil.rmtree(w.directory / "data")
    for _ in range(2):
        w.killed("--kill-restoring", "2000", TRUEUP_MEMORY_BYTES=str(3 << 20))
    w.send(outcome(f"e{i}", 1, 100_000 + i) for i in range(n))
    with w.worker() as worker:
        wait_for("the worker", worker.ready)
        w.wait_until_applied()
        assert worker.metric("recovery_restored_rows_total") > 0
        assert "restored " in worker.printed
    assert w.applied()["outcomes_resolved"] == n, "every forecast was found"
    w.judge()
