"""A record that ends every worker which reads it: it is named, and an operator can go on without it."""

import base64
import json
import shutil

from agents.worker import FAILED
from streams.records import skips
from tests.e2e.world import MakeWorld, wait_for
from tests.events import Sent, forecast, outcome

POISON = "--poison", "bad"


def test_a_worker_that_dies_of_a_record_names_it_and_goes_on_without_it(world: MakeWorld) -> None:
    w = world(partitions=1)
    bad = Sent("forecasts", b"bad", b"{}", 1002)
    w.send([forecast("a", 0.3, 1000), outcome("a", 1, 1001), bad, forecast("b", 0.4, 1003), outcome("b", 0, 1004)])
    place = f"{w.topic('forecasts')}/0@1"
    for times in (1, 2, 3):
        with w.worker(*POISON) as worker:
            assert worker.process.wait(60) == FAILED
            assert f"{place} cannot be read or folded" in worker.printed
            assert (f"trueup state skip {place} --reason" in worker.printed) == (times == 3)
    skipped = w.done("state", "skip", place, "--reason", "a defect, ticket 7")
    assert f"{place} is left out from now on: a defect, ticket 7" in skipped
    for _ in range(2):  # as well from an empty disk
        with w.worker(*POISON) as worker:
            wait_for("the worker", worker.ready)
            w.wait_until_applied()
            assert f"leaving out {place}: a defect, ticket 7" in worker.printed
            assert worker.stop() == 0
        shutil.rmtree(w.directory / "data")
    letters = w.said("dead-letters")
    assert {(each["topic"], each["offset"], each["reason"]) for each in letters} == {
        (w.topic("forecasts"), 1, "skipped")
    }
    said = json.loads(base64.b64decode(letters[0]["value"]))
    assert (said["offsets"], said["refused"]) == ([1, 1], "skipped at 1: a defect, ticket 7")
    assert len(w.read("calibrated")) == 2
    w.skips = {w.topic("forecasts"): {1: skips.why(1, "a defect, ticket 7")}}
    w.judge()
    assert w.agree()["skipped"] == [f"{place}: a defect, ticket 7"]
