"""A replay says what people would have had to look at, and which thresholds keep the volume they had."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from agents.status import band_tables
from cli.replay_table import show
from replay.console import Console
from replay.report import page
from replay.result import ReplayPace, Result
from state.scoring.ages import DAY_MS
from tests.replay import history

#: Raw scores are four times too high in odds; and their labels come at once.
N, DAYS = 6000, 20
FIXED = 'bands = { pass = 0, review = 0.3, block = 0.6 }\ncost_miss = 30\ncost_alert = 2\nsegments = ["country"]'
SHARES = 'bands = { review = "20%", block = "5%" }'


def replayed(directory: Path, *plans: str, partitions: int = 1) -> Result:
    rng, forecasts, outcomes = Random(4), [], []
    for n in range(N):
        true, ts = rng.betavariate(1, 6), 1_700_000_000_000 // DAY_MS * DAY_MS + n * DAYS * DAY_MS // N
        raw = 4 * true / (1 + 3 * true)
        segments = {"country": ("DE", "FR", "FR")[n % 3]}
        forecasts.append({"event_id": f"e{n}", "stream": "s", "p": raw, "ts": ts, "segments": segments})
        outcomes.append({"event_id": f"e{n}", "y": int(rng.random() < true), "ts": ts + 1})
    found = {f"plan {n}": f'[streams.s]\ncalibrator = "prudent"\n{plan}' for n, plan in enumerate(plans)}
    return history.replayed(directory, forecasts, outcomes, found, partitions=partitions, resamples=100)


def test_bands_tell_the_queue_a_day_its_worth_and_the_thresholds_that_keep_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = replayed(tmp_path, FIXED)
    scored = result.contenders[0].streams["s"]
    assert scored.bands is not None
    assert result.contenders[0].overall is not None
    assert result.contenders[0].overall.bands is None
    lowest, review, block = scored.bands["bands"]
    assert lowest["keeps"] is None
    for kind in ("raw", "calibrated"):
        assert sum(each[kind]["forecasts"] for each in (lowest, review, block)) == N
        assert review[kind]["day"] == pytest.approx(review[kind]["forecasts"] / DAYS)
        assert review[kind]["day"] < review[kind]["most"]
        assert lowest[kind]["recall"] == 1.0
        assert block[kind]["recall"] < review[kind]["recall"]
    assert review["raw"]["forecasts"] > 1.5 * review["calibrated"]["forecasts"], "calibration moves the queue"
    assert block["calibrated"]["precision"] > 0.5 > block["raw"]["precision"]
    # Days and segments are parts of the whole, and a label counts on the day of its forecast.
    assert len(scored.bands["days"]) == DAYS
    assert [(each["value"], each["forecasts"]) for each in scored.bands["segments"]] == [("FR", 4000), ("DE", 2000)]
    for n, each in enumerate(scored.bands["bands"]):
        for kind in ("raw", "calibrated"):
            for name in ("forecasts", "known", "ones"):
                parts = [day["bands"][n][kind][name] for day in scored.bands["days"]]
                assert sum(parts) == each[kind][name]
                assert sum(of["bands"][n][kind][name] for of in scored.bands["segments"]) == each[kind][name]
    assert all(day["bands"][2]["calibrated"]["cost"] is not None for day in scored.bands["days"])
    # At the threshold that is told, the last week has as many as by the raw score.
    rows = [json.loads(line) for line in (tmp_path / "forecasts.jsonl").read_text().splitlines()]
    last = np.array([row["p"] for row in rows if row["ts"] > rows[-1]["ts"] - 7 * DAY_MS])
    wanted = int((last >= 0.6).sum())
    highest = np.sort(last)[-wanted]
    assert block["keeps"] == pytest.approx(highest / (4 - 3 * highest), abs=0.1)
    show(Console(width=80), result, ReplayPace(1.0, 1, 1.0))
    said = " ".join(capsys.readouterr().out.split())
    assert "plan 0, s: forecasts by band, a day" in said
    assert f"block = {block['keeps']:.4g} (now 0.6)" in said
    report = page.page(result).decode()
    assert f"block = {block['keeps']:.4g} (now 0.6)" in report
    assert "plan 0, s: Bands by day" in report
    assert "country = FR" in report


def test_plans_with_and_without_bands_run_beside_one_another_on_any_partitions(tmp_path: Path) -> None:
    result = replayed(tmp_path, FIXED, "", SHARES, FIXED + '\nhold = "volume"', partitions=3)
    fixed, none, shares, held = (each.streams["s"].bands for each in result.contenders)
    assert none is None
    assert fixed is not None
    assert shares is not None
    assert held is not None
    review, block = (each["calibrated"]["share"] for each in shares["bands"][1:])
    assert review + block == pytest.approx(0.2, abs=0.02)
    assert block == pytest.approx(0.05, abs=0.015)
    for each, before in zip(held["bands"], fixed["bands"], strict=True):
        assert each["raw"] == before["raw"]
        assert each["calibrated"]["forecasts"] == pytest.approx(before["raw"]["forecasts"], abs=150)
    # Of a held volume raw scores have the bands that are configured, served ones those that keep it.
    thresholds = [each["threshold"] for each in held["bands"]]
    assert thresholds == [0.0, pytest.approx(0.1, abs=0.03), pytest.approx(0.27, abs=0.06)]
    assert all(each["threshold"] is not None for each in shares["bands"])
    table = next(band_tables.banded(held))
    assert [row[2] for row in table.rows[2:]] == ["0.3", f"{thresholds[1]:.4g}", "0.6", f"{thresholds[2]:.4g}"]
