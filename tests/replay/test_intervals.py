"""A replay says whether the intervals of its scores hold what happened."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from cli.replay_table import show
from replay.console import Console
from replay.intervals import described
from replay.result import Pace
from tests.replay.history import replayed


def test_groups_are_inside_where_scores_are_right_and_not_where_they_are_further_off_than_was_said() -> None:
    rng = np.random.default_rng(3)
    p = rng.beta(1, 6, 40_000)
    time = np.arange(len(p))
    for off, inside in ((1.0, True), (2.0, False)):
        y = (rng.random(len(p)) < off * p).astype(np.float64)
        found = described(0.95, 0.8 * p, p, np.minimum(1.2 * p, 1.0), y, time)
        assert found["inside"] > 0.95 if inside else found["inside"] < 0.3
        assert sum(each["n"] for each in found["groups"]) == len(p)
    assert described(0.9, p[:0], p[:0], p[:0], p[:0], time[:0])["inside"] is None


def test_a_replay_judges_the_intervals_of_what_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = Random(4)
    forecasts, outcomes = list[dict[str, object]](), list[dict[str, object]]()
    for n in range(4000):
        true, ts = rng.betavariate(1, 6), 1_700_000_000_000 + n * 60_000
        raw = 4 * true / (1 + 3 * true)
        forecasts.append({"event_id": f"e{n}", "stream": "s", "p": raw, "ts": ts})
        outcomes.append({"event_id": f"e{n}", "y": int(rng.random() < true), "ts": ts + 1})
    plan = '[streams.s]\ncalibrator = "prudent"\ninterval = 0.9'
    result = replayed(tmp_path, forecasts, outcomes, {"plan": plan}, resamples=100)
    found = result.contenders[0].streams["s"].intervals
    assert found is not None
    assert found["inside"] > 0.8
    assert all(each["low"] <= each["p"] <= each["high"] for each in found["groups"])
    show(Console(width=80), result, Pace(1.0, 1, 1.0))
    assert "plan, s: intervals of 90%" in " ".join(capsys.readouterr().out.split())
