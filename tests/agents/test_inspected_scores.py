"""What ``trueup inspect`` makes of the rows of a stream."""

import random

import orjson
import pytest

from agents import inspection
from state import history
from state.calibrators import Calibrator
from state.history import KINDS, History
from state.policy import Policy
from state.rows import Served


def learnt(n: int, policy: Policy, seed: int = 1) -> tuple[History, Served]:
    """Serve events whose raw forecasts are .2 too high."""
    rng, known, served = random.Random(seed), History(), Served.fresh(policy.recipe, "s")
    calibrator: Calibrator = served.calibrator
    for t in range(n):
        raw, x = rng.uniform(0.2, 1), (rng.uniform(-1, 1),) if policy.features else ()
        p, draw, ticket = calibrator.predict(raw, x, b"%d" % t)
        y = float(rng.random() < raw - 0.2)
        calibrator.update(ticket, y)
        known.bias.observe(x, raw, p, y)
        known.observe(raw, p, y, draw)
    return known, served


def found(n: int, policy: Policy) -> inspection.Found:
    rows = inspection.Found()
    for partition in (0, 3):
        known, served = learnt(n, policy, seed=partition)
        rows.histories["s"][partition] = known
        rows.served["s"][partition, policy.config] = served
    return rows


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WINDOW", 200)


def test_the_worst_window_and_the_alarm_are_described() -> None:
    rows = found(700, Policy())
    described = inspection.describe(rows, "s")
    assert described["resolved"] == 1400
    assert described["raw"]["alarm"]["sounds"]
    assert not described["calibrated"]["alarm"]["sounds"]
    for kind in KINDS:
        worst = described[kind]["worst_window"]
        of_partition = rows.histories["s"][worst["partition"]].worst(kind)
        assert of_partition is not None
        assert (worst["window"], worst["ece"]) == (of_partition.number, of_partition.scores.ece(kind))
        assert sum(each["n"] for each in worst["reliability"]) == 200
    assert described["regret"].keys() == {"brier", "log", "misclassification"}
    assert all(one["noise"] > 0 and one["internal_regret"] >= 0 for one in described["calibrators"])
    assert "feature_bias" not in described["raw"]


def test_bias_along_features_is_described_where_there_are_any() -> None:
    described = inspection.describe(found(300, Policy("calibrated_regression", features=1)), "s")
    assert [len(each) for each in described["calibrated"]["feature_bias"].values()] == [1, 1]
    assert described["calibrators"][0]["noise"] is None


@pytest.mark.parametrize("n", [0, 1, 150])
def test_streams_with_few_events_can_be_shown(n: int, capsys: pytest.CaptureFixture[str]) -> None:
    described = inspection.describe(found(n, Policy()), "s")
    orjson.dumps(described)
    inspection._print({"s": described}, {}, whole=True)
    assert "reliability" in capsys.readouterr().out


def test_the_report_names_the_worst_window(capsys: pytest.CaptureFixture[str]) -> None:
    inspection._print({"s": inspection.describe(found(700, Policy()), "s")}, {}, whole=True)
    shown = capsys.readouterr().out
    assert "worst window" in shown
    assert "sounds" in shown
