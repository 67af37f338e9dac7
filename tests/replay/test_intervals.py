"""A replay says whether the intervals of its scores hold what happened."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from cli.replay_table import show
from replay.console import Console
from replay.intervals import Apart, described
from replay.result import ReplayPace
from state.segments import Segment
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


def test_a_segment_whose_scores_are_further_off_than_was_said_is_told_apart() -> None:
    rng = np.random.default_rng(4)
    p, own = rng.beta(1, 6, 40_000), np.arange(40_000) % 3 - 1
    y = (rng.random(len(p)) < np.where(own == 1, 2.0, 1.0) * p).astype(np.float64)
    apart = Apart([Segment("country", "DE"), Segment("country", "FR")], [own])
    found = described(0.95, 0.8 * p, p, np.minimum(1.2 * p, 1.0), y, np.arange(len(p)), apart)["segments"]
    inside = {each["value"]: each["inside"] for each in found}
    assert inside["DE"] > 0.9
    assert inside["FR"] < 0.6
    assert [each["n"] for each in found] == [13_333, 13_333], "forecasts without a segment are in none"


def test_a_replay_judges_the_intervals_of_what_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = Random(4)
    forecasts, outcomes = list[dict[str, object]](), list[dict[str, object]]()
    for n in range(4000):
        true, ts = rng.betavariate(1, 6), 1_700_000_000_000 + n * 60_000
        raw = 4 * true / (1 + 3 * true)
        country = {"country": ("DE", "FR")[n % 2]}
        forecasts.append({"event_id": f"e{n}", "stream": "s", "p": raw, "ts": ts, "segments": country})
        outcomes.append({"event_id": f"e{n}", "y": int(rng.random() < true), "ts": ts + 1})
    plan = '[streams.s]\ncalibrator = "prudent"\ninterval = 0.9\nsegments = ["country"]'
    result = replayed(tmp_path, forecasts, outcomes, {"plan": plan}, resamples=100)
    found = result.contenders[0].streams["s"].intervals
    assert found is not None
    assert found["inside"] > 0.8
    assert all(each["low"] <= each["p"] <= each["high"] for each in found["groups"])
    assert {each["value"] for each in found["segments"]} == {"DE", "FR"}
    assert sum(each["n"] for each in found["segments"]) == sum(each["n"] for each in found["groups"])
    assert all(each["inside"] > 0.7 for each in found["segments"])
    show(Console(width=80), result, ReplayPace(1.0, 1, 1.0))
    assert "plan, s: intervals of 90%" in " ".join(capsys.readouterr().out.split())
