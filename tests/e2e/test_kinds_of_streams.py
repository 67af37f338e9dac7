"""Streams of classes, of numbers, with weights and with versions of a model, through a whole service and a kill -9."""

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.world import MakeWorld, Worker, World, wait_for
from tests.events import Sent, forecast, outcome

STREAMS = """
[streams.numbers]
calibrator = "quantile"
options = { levels = [0.1, 0.5, 0.9] }

[streams.classes]
calibrator = "multiclass"
options = { classes = 3, each = "platt+minimax" }

[streams.cards]
label_rate = "decision.chance"
weight = "amount"
segments = ["country"]

[streams.replaced]
unlabelled = "alike"
model_version = "model.version"
"""
START = 1_000_000
GIVEN: dict[str, dict[str, object]] = {
    "numbers": {"normal": {"mean": 0.0, "std": 1.0}},
    "classes": {"probs": [0.2, 0.3, 0.5]},
    "s": {},
}


def of_three_kinds(n: int) -> list[Sent]:
    """Return forecasts of three kinds whose outcomes follow, some early, some unfit."""
    rng, sent = random.Random(1), list[Sent]()
    for i in range(n):
        kind = ("numbers", "classes", "s")[i % 3]
        y = {"numbers": rng.gauss(1.0, 2.0), "classes": rng.randrange(3), "s": rng.randrange(2)}[kind]
        ts = START + 100 * i
        asked = forecast(f"e{i}", 0.5, ts, kind)
        if given := GIVEN[kind]:
            asked = asked._replace(value=orjson.dumps({"event_id": f"e{i}", "stream": kind, **given}))
        sent += [asked, outcome(f"e{i}", y, ts + rng.randrange(-300, 3000))]
        if i % 20 == 0:
            sent.append(outcome(f"e{i}", 7.5, ts + rng.randrange(-300, 300)))
    return sent


def payments(n: int) -> list[Sent]:
    """Return payments of which a tenth is chosen for a label, one in five of the others drawn; some lack a chance."""
    rng, sent = random.Random(1), list[Sent]()
    for i in range(n):
        chance = 1.0 if rng.random() < 0.1 else 0.2
        key, at = f"p{i}".encode(), START + i * 1000
        value: dict[str, Any] = {"event_id": f"p{i}", "stream": "cards", "p": rng.randrange(1, 1000) / 1000}
        value |= {"amount": rng.randrange(500), "segments": {"country": rng.choice(("DE", "FR"))}}
        if i % 50:
            value["decision"] = {"chance": chance}
        sent.append(Sent("forecasts", key, orjson.dumps(value), at))
        if rng.random() < chance:
            y = int(rng.random() < value["p"] / 2)
            sent.append(outcome(f"p{i}", y, at + 500))
            if i % 7 == 0:
                sent.append(outcome(f"p{i}", 1 - y, at + 900))
    return sent


def of_two_versions(risks: dict[str, float]) -> list[Sent]:
    """Return forecasts of which the last 200 are of another version, and outcomes of the first one's alone.

    Add the true risk of each event to ``risks``.
    """
    chance, sent = random.Random(4), list[Sent]()
    for n in range(700):
        z, new = chance.gauss(-1.0, 1.5), n >= 500
        raw = 1.0 / (1.0 + math.exp(-(0.5 * z - 2.5 if new else 1.5 * z + 2.0)))
        risk = risks[f"v{n}"] = 1.0 / (1.0 + math.exp(-z))
        sent.append(forecast(f"v{n}", raw, START + 1000 * n, "replaced", model={"version": 8 if new else "7"}))
        if not new:
            sent.append(outcome(f"v{n}", int(chance.random() < risk), START + 100 + 1000 * n))
    return [*sent, forecast("nobody", 0.5, START + 800_000, "replaced")]


def test_classes_numbers_versions_and_weights_survive_a_kill_and_audit_and_replay_agree(
    world: MakeWorld, tmp_path: Path
) -> None:
    streams, risks = tmp_path / "streams.toml", dict[str, float]()
    streams.write_text(STREAMS)
    w = world(partitions=1, TRUEUP_STREAMS=str(streams), TRUEUP_BATCH_RECORDS="100")
    w.send(sorted([*of_three_kinds(2400), *payments(1500), *of_two_versions(risks)], key=lambda sent: sent.ts))
    w.killed("--kill", "4", "9")
    with w.worker() as worker:  # replay has the order of a worker that catches up
        w.wait_until_applied()
        classes_and_numbers_are_scored(worker)
        wait_for("a scrape of the stream", lambda: worker.metric("weighted_outcomes", stream="cards") > 0)
        happened = worker.metric("weighted_outcomes", stream="cards")
        expected = worker.metric("weighted_forecasts", stream="cards", kind="calibrated")
        assert worker.metric("model_version_forecasts", stream="replaced", model_version="8") == 200
        page = orjson.loads(worker.get("/api/streams/replaced")[1])
        assert [each["version"] for each in page["versions"]] == ["8", "7"]
        assert worker.stop() == 0
    w.judge()
    w.agree()
    assert {name for answer in w.said("calibrated") for name in answer} >= {"p", "probs", "quantiles"}
    reasons = Counter(letter["reason"] for letter in w.said("dead-letters"))
    assert reasons.keys() == {"label", "parked_label", "label_rate", "model_version"}
    assert (reasons["label_rate"], reasons["model_version"]) == (1500 // 50, 1)
    a_new_version_begins_with_the_map_of_the_old_one(w, risks)
    weighted_sums_are_those_of_the_gauge_and_of_a_replay(w, happened, expected)


def classes_and_numbers_are_scored(worker: Worker) -> None:
    assert worker.metric("resolved_vectors") > 500
    raw, calibrated = (worker.metric("coverage_error", kind=kind) for kind in ("raw", "calibrated"))
    assert calibrated < raw
    assert worker.metric("alarm_log10", kind="raw", stream="numbers") >= 3, "its forecasts are off"
    assert worker.metric("loss_difference", loss="pinball") < 0


def a_new_version_begins_with_the_map_of_the_old_one(w: World, risks: dict[str, float]) -> None:
    answers = {each["event_id"]: each["p"] for each in w.said("calibrated") if "p" in each}
    apart = [abs(answers[f"v{n}"] - risks[f"v{n}"]) for n in range(600, 700)]
    assert sum(apart) / len(apart) < 0.08, "of which none has an outcome"
    described = orjson.loads(w.done("streams", "show", "replaced", "--json"))["streams"]["replaced"]["versions"]
    assert [(each["version"], each["after"], each["forecasts"]) for each in described] == [
        ("8", "7", 200),
        ("7", None, 500),
    ]
    assert "Versions of the model" in w.done("streams", "show", "replaced", COLUMNS="160")


def weighted_sums_are_those_of_the_gauge_and_of_a_replay(w: World, happened: float, expected: float) -> None:
    shown = orjson.loads(w.done("streams", "show", "cards", "--json"))["streams"]["cards"]
    weighted = shown["weighted"]
    assert "withheld" not in shown
    assert (weighted["happened"], weighted["calibrated"]["expected"]) == pytest.approx((happened, expected))
    assert weighted["raw"]["expected"] > 1.5 * weighted["happened"], "scores are twice the risk"
    (learnt,) = [each["version"] for each in shown["calibrators"]]
    assert 0.4 * weighted["events"] < learnt < 0.95 * weighted["events"]
    scored = orjson.loads(w.done("replay", "--json").splitlines()[-1])["contenders"][0]["streams"]["cards"]
    assert scored["weighted"] == weighted
    assert {each["value"] for each in weighted["segments"]} == {"DE", "FR"}
