"""The status page of a worker that serves, and what it says while nothing is there yet."""

import os
import signal
from pathlib import Path

import orjson

from agents.worker import FAILED
from tests.e2e.world import MakeWorld, wait_for
from tests.events import mixed


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
        assert "No stream yet" in text
        w.send(made.sent)
        w.wait_until_applied()
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

        def shown() -> bool:
            text = worker.get("/")[1]
            return all(each["stream"] in text for each in listed["streams"])

        wait_for("the page, which may be kept for a while, to name the streams", shown)
        assert worker.stop() == 0
        assert "Traceback" not in worker.printed


def test_a_worker_whose_readers_are_killed_ends_and_the_next_goes_on_at_the_same_port(world: MakeWorld) -> None:
    w = world(partitions=1)
    w.send(mixed(300).sent)
    with w.worker() as worker:
        w.wait_until_applied()
        pid, port = worker.process.pid, worker.port()
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert Path(f"/proc/{child}/comm").read_text() == "trueup-readers\n"
        os.kill(int(child), signal.SIGKILL)
        assert worker.process.wait(30) == FAILED
        assert "the process that serves metrics and probes has ended" in worker.printed
    with w.worker(TRUEUP_METRICS_PORT=str(port)) as worker:
        wait_for("the worker", worker.ready)
        worker.kill()
    with w.worker(TRUEUP_METRICS_PORT=str(port)) as worker:  # the readers of the one that was killed let go of it
        wait_for("the worker", worker.ready)
        assert worker.stop() == 0
    w.judge()
