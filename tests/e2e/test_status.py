"""The status page of a worker that serves, and what it says while nothing is there yet."""

from collections.abc import Callable

import orjson

from tests.e2e.world import World, wait_for
from tests.events import mixed

MakeWorld = Callable[..., World]


def test_a_worker_shows_its_streams_to_people_and_programs(world: MakeWorld) -> None:
    w = world(partitions=2)
    made = mixed(1000)
    with w.worker(TRUEUP_METRICS_USERNAME="ops", TRUEUP_METRICS_PASSWORD="secret") as worker:  # noqa: S106 - of a test
        wait_for("the worker", worker.ready)
        assert worker.get("/")[0] == 401
        assert worker.get("/metrics")[0] == 401
    with w.worker() as worker:
        wait_for("the worker", worker.ready)
        status, text = worker.get("/")
        assert status == 200
        assert "no stream yet" in text
        w.send(made.sent)
        w.wait_until_applied(len(made.sent))
        listed = orjson.loads(worker.get("/api/streams")[1])
        learnt = made.fates["outcomes_resolved"] + made.fates["early_joined"]
        assert sum(each["resolved"] for each in listed["streams"]) == learnt
        assert listed["worker"]["ready"]
        assert listed["worker"]["pending"] == worker.metric("pending_events")
        assert [each["partition"] for each in listed["worker"]["partitions"]] == [0, 1]
        for each in listed["streams"]:
            one = orjson.loads(worker.get(f"/api/streams/{each['stream']}")[1])
            assert one["maps"]
            assert all(0 <= p <= 1 for found in one["maps"] for p in found["calibrated"])
            for kind in ("raw", "calibrated"):
                measured = worker.metric("brier", stream=each["stream"], kind=kind)
                assert abs(one[kind]["brier"] - measured) < 1e-12
        text = worker.get("/")[1]
        assert all(each["stream"] in text for each in listed["streams"])
        assert worker.stop() == 0
        assert "Traceback" not in worker.printed
