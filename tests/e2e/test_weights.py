"""Chances of labels and weights on real topics: a worker that dies, an audit, and a replay that counts the same."""

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.world import MakeWorld, wait_for
from tests.events import Sent

START = 1_700_000_000_000
PLAN = """
[streams.cards]
label_rate = "decision.chance"
weight = "amount"
segments = ["country"]
"""


def payments(n: int, seed: int = 1) -> list[Sent]:
    """Return payments of which a tenth is chosen for a label, one in five of the others drawn; some lack a chance."""
    rng = random.Random(seed)
    sent = []
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
            sent.append(Sent("outcomes", key, orjson.dumps({"event_id": f"p{i}", "y": y}), at + 500))
            if i % 7 == 0:
                sent.append(Sent("outcomes", key, orjson.dumps({"event_id": f"p{i}", "y": 1 - y}), at + 900))
    return sent


def test_chances_and_weights_survive_a_kill_and_audit_and_replay_agree_with_what_is_shown(
    world: MakeWorld, tmp_path: Path
) -> None:
    plan = tmp_path / "streams.toml"
    plan.write_text(PLAN)
    w = world(partitions=1, TRUEUP_STREAMS=str(plan), TRUEUP_BATCH_RECORDS="50")
    sent = payments(1500)
    w.send(sent[: len(sent) // 2])
    w.killed("--kill", "4", "4")
    w.send(sent[len(sent) // 2 :])  # before it starts: replay has the order of a worker that catches up
    with w.worker() as worker:
        w.wait_until_applied()
        wait_for("a scrape of the stream", lambda: worker.metric("weighted_outcomes", stream="cards") > 0)
        happened = worker.metric("weighted_outcomes", stream="cards")
        expected = worker.metric("weighted_forecasts", stream="cards", kind="calibrated")
        assert worker.stop() == 0
    letters = w.said("dead-letters")
    assert {each["reason"] for each in letters} == {"label_rate"}
    assert len(letters) == 1500 // 50
    w.agree()
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
