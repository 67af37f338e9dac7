"""Segments of a replay: counted as live, and shown in the terminal and in the report."""

import html
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cli import replay_table
from replay.report import message
from replay.report.page import page
from replay.result import ReplayPace, Result
from state.scoring.warm_up import OF_SEGMENT
from streams.metrics.segments import DESCRIBED
from tests.replay.history import replayed

START = 1_700_000_000_000
HOURS = 3_600_000
N = 8000
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Replay forecasts that are right but for two of four countries, on two partitions; one in ten has no outcome."""
    directory = tmp_path_factory.mktemp("segments")
    rng = np.random.default_rng(5)
    chance = rng.uniform(0.2, 0.6, N)
    country = rng.choice(["DE", "FR", HOSTILE, ""], N, p=[0.4, 0.3, 0.2, 0.1])
    off = np.select([country == HOSTILE, country == "FR"], [0.15, -0.1], 0.0)
    y = rng.random(N) < chance - off
    forecasts = [
        {
            "event_id": str(i),
            "stream": "s",
            "p": float(chance[i]),
            "ts": START + i * HOURS,
            "segments": {"country": str(country[i])},
        }
        for i in range(N)
    ]
    known = [i for i in range(N) if i % 10]
    outcomes = [{"event_id": str(i), "y": int(y[i]), "ts": START + (i + 2) * HOURS} for i in known]
    plan = '[streams.s]\ncalibrator = "identity"\nsegments = ["country"]\n'
    return replayed(directory, forecasts, outcomes, {"identity": plan}, partitions=2, resamples=50)


def test_partitions_add_up_and_the_worst_is_first(result: Result) -> None:
    (scored,) = result.contenders[0].streams.values()
    found = scored.segments
    assert found is not None
    assert (found["scored"], found["off"]) == (4, 2)
    assert len(found["worst"]) <= DESCRIBED
    by_value = {each["value"]: each for each in found["worst"]}
    assert [each["value"] for each in found["worst"][:2]] == [HOSTILE, "FR"]
    # A segment has a warm-up of its own on each partition.
    events = sum(each["events"] for each in by_value.values())
    assert scored.raw.n - 4 * 2 * (OF_SEGMENT + 50) < events < scored.raw.n - 3 * 2 * OF_SEGMENT
    assert sum(each["issued"] for each in by_value.values()) == scored.issued == N
    assert by_value["(missing)"]["coverage"] == pytest.approx(0.9, abs=0.05)
    assert by_value["DE"]["mean_age_s"] == 7200
    assert by_value[HOSTILE]["off"]["low"] < 0.15 < by_value[HOSTILE]["off"]["high"]
    assert found["large"]["segments"] == 1
    assert found["recently_off"] == 2
    assert {each["value"] for each in found["recent"] if each["sounds"]} == {HOSTILE, "FR"}
    mean = sum(each["events"] * each["calibrated"]["brier"] for each in by_value.values()) / events
    assert mean == pytest.approx(scored.calibrated.brier, abs=0.01)


def test_months_of_a_segment_add_up_and_say_when_it_was_off(result: Result) -> None:
    (scored,) = result.contenders[0].streams.values()
    assert scored.segments is not None
    for each in scored.segments["worst"]:
        months = each["months"]
        assert len(months) >= 2
        assert [month["month"] for month in months] == sorted(month["month"] for month in months)
        assert sum(month["events"] for month in months) == each["events"]
        off = sum(month["events"] * month["off"] for month in months) / each["events"]
        assert off == pytest.approx(each["off"]["mean"], abs=1e-6)
        if each["value"] == HOSTILE:
            assert sum(month["off"] > month["chance"] for month in months) > len(months) / 2, ".15 too high in all"


def test_all_streams_together_have_no_segments(result: Result) -> None:
    overall = result.contenders[0].overall
    assert overall is not None
    assert overall.segments is None


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_says_where_the_model_was_wrong_as_the_page_does(
    width: int, result: Result, tmp_path: Path
) -> None:
    console = Console(width=width, file=(tmp_path / "said").open("w"))
    replay_table.show(console, result, ReplayPace(1.0, 1, 1.0))
    console.file.close()
    said = (tmp_path / "said").read_text()
    (changed,) = message.changed(result.contenders[0])
    assert changed in said
    assert html.escape(changed) in page(result).decode()
    table = said[said.index("worst first") :]
    assert ("95 %" in table[:900]) == (width > 100), "80 columns have room for what the model said, and not for all"
    assert all(name in table for name in ("observed", "raw", "ECE raw"))


def test_what_mixes_all_segments_says_so(result: Result) -> None:
    assert "All segments are mixed: each is served its own." in page(result).decode()


def test_the_terminal_and_the_page_show_them_as_text(result: Result, tmp_path: Path) -> None:
    console = Console(width=140, file=(tmp_path / "said").open("w"), markup=True)
    replay_table.show(console, result, ReplayPace(1.0, 1, 1.0))
    console.file.close()
    said = (tmp_path / "said").read_text()
    assert "2 of 4 segments are off; mean ECE of 1 with 2,000 events" in " ".join(said.split())
    assert HOSTILE in said
    shown = page(result).decode()
    assert "Segments, worst first" in shown
    assert "Segments by band" in shown
    assert "Segments by month" in shown
    assert "Lately 2 of 4 segments are off." in said
    assert "Segments lately" in shown
    assert HOSTILE not in shown
    assert "country = &lt;script&gt;" in shown
