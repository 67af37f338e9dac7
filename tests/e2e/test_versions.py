"""A model is replaced on a real broker: the new version is right before its first outcome, and all of it is audited."""

import math
import random
from pathlib import Path

import orjson

from tests.e2e.test_streams import shown
from tests.e2e.world import MakeWorld
from tests.events import Sent, forecast, outcome

FILE = '[streams.s]\nunlabelled = "alike"\nmodel_version = "model.version"\n'


def test_a_new_version_begins_with_the_old_map_survives_kill_9_and_is_audited(world: MakeWorld, tmp_path: Path) -> None:
    (file := tmp_path / "streams.toml").write_text(FILE)
    w = world(partitions=1, TRUEUP_STREAMS=str(file))
    chance, sent, risks = random.Random(4), list[Sent](), dict[str, float]()
    for n in range(700):
        z, new = chance.gauss(-1.0, 1.5), n >= 500
        raw = 1.0 / (1.0 + math.exp(-(0.5 * z - 2.5 if new else 1.5 * z + 2.0)))
        risk = risks[f"e{n}"] = 1.0 / (1.0 + math.exp(-z))
        model = {"version": 8 if new else "7"}
        sent.append(forecast(f"e{n}", raw, 1_000_000 + 1000 * n, model=model))
        if not new:
            sent.append(outcome(f"e{n}", int(chance.random() < risk), 1_000_100 + 1000 * n))
    sent.append(forecast("nobody", 0.5, 1_800_000))
    with w.worker() as worker:
        w.send(sent[:1090])
        w.wait_until_applied()
        worker.kill()
    with w.worker() as worker:
        w.send(sent[1090:])
        w.wait_until_applied()
        assert worker.metric("model_version_forecasts", stream="s", model_version="8") == 200
        _, page = worker.get("/api/streams/s")
        assert [each["version"] for each in orjson.loads(page)["versions"]] == ["8", "7"]
        assert worker.stop() == 0
    w.judge()
    answers = {each["event_id"]: each["p"] for each in w.said("calibrated")}
    apart = [abs(answers[f"e{n}"] - risks[f"e{n}"]) for n in range(600, 700)]
    assert sum(apart) / len(apart) < 0.08
    w.agree()
    described = orjson.loads(shown(w, "show", "s", "--json").stdout)["streams"]["s"]["versions"]
    assert [(each["version"], each["after"], each["forecasts"]) for each in described] == [
        ("8", "7", 200),
        ("7", None, 500),
    ]
    assert [each["reason"] for each in w.said("dead-letters")] == ["model_version"]
    told = shown(w, "show", "s")
    assert "Versions of the model" in told.stdout
