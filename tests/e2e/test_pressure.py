"""A worker under pressure holds what its settings allow and answers everything."""

import time
from collections.abc import Iterator

from tests.e2e.world import MakeWorld, Worker
from tests.events import forecast


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
