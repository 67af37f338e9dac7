"""Forecasts of classes and of numbers through the whole service."""

import random
from pathlib import Path

import orjson

from tests.e2e.world import MakeWorld
from tests.events import Sent, forecast, outcome

STREAMS = """
[streams.numbers]
calibrator = "quantile"
options = { levels = [0.1, 0.5, 0.9] }

[streams.classes]
calibrator = "multiclass"
options = { classes = 3, each = "platt+minimax" }
"""


GIVEN: dict[str, dict[str, object]] = {
    "numbers": {"normal": {"mean": 0.0, "std": 1.0}},
    "classes": {"probs": [0.2, 0.3, 0.5]},
    "s": {},
}


def made(n: int, seed: int = 1) -> list[Sent]:
    """Return forecasts of three kinds whose outcomes follow, some early, some unfit, in time order."""
    rng = random.Random(seed)
    timed: list[Sent] = []
    for i in range(n):
        kind = ("numbers", "classes", "s")[i % 3]
        given: dict[str, object] = GIVEN[kind]
        y = {"numbers": rng.gauss(1.0, 2.0), "classes": rng.randrange(3), "s": rng.randrange(2)}[kind]
        ts = 1_000_000 + 100 * i
        asked = forecast(f"e{i}", 0.5, ts, kind)
        if given:
            asked = asked._replace(value=orjson.dumps({"event_id": f"e{i}", "stream": kind, **given}))
        when = ts + rng.randrange(-300, 3000)
        timed += [asked, outcome(f"e{i}", y, when)]
        if i % 20 == 0:
            timed.append(outcome(f"e{i}", 7.5, ts + rng.randrange(-300, 300)))
    return sorted(timed, key=lambda sent: sent.ts)


def test_classes_and_numbers_are_served_joined_and_replayed(world: MakeWorld, tmp_path: Path) -> None:
    streams = tmp_path / "streams.toml"
    streams.write_text(STREAMS)
    w = world(partitions=2, TRUEUP_STREAMS=str(streams), TRUEUP_BATCH_RECORDS="100")
    w.send(made(2400))
    w.killed("--kill", "4", "4")
    with w.worker() as worker:
        w.wait_until_applied()
        assert worker.metric("resolved_vectors") > 500
        raw, calibrated = (worker.metric("coverage_error", kind=kind) for kind in ("raw", "calibrated"))
        assert calibrated < raw
        assert worker.metric("alarm_log10", kind="raw", stream="numbers") >= 3, "its forecasts are off"
        assert worker.metric("loss_difference", loss="pinball") < 0
        assert worker.stop() == 0
    w.judge()
    assert {name for answer in w.said("calibrated") for name in answer} >= {"p", "probs", "quantiles"}
    assert {letter["reason"] for letter in w.said("dead-letters")} == {"label", "parked_label"}
