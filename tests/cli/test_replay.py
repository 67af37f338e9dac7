"""The command: its last line, its table at eighty columns, and what it says to what cannot be."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cli.options import MISCONFIGURED
from cli.replay_table import show
from replay.configuration import configurations
from replay.result import MetricDifference
from replay.run import Request, replay
from replay.sources.files import FileSource
from replay.sources.topics import moment
from streams.config.settings import Settings, SettingsError
from tests.commands import Trueup
from tests.replay.history import written


@pytest.fixture
def files(tmp_path: Path) -> str:
    forecasts, outcomes = written(tmp_path, 3000)
    return f"replay --forecasts {forecasts} --outcomes {outcomes} --processes 1"


def test_last_line_is_the_result_as_json(files: str, trueup: Trueup) -> None:
    ended = trueup(f"{files} --calibrator platt --calibrator minimax:grid=20 --json")
    found = ended.json
    assert [each["name"] for each in found["contenders"]] == ["platt", "minimax:grid=20"]
    overall = found["contenders"][1]["overall"]
    for kind in ("raw", "calibrated"):
        assert {"n", "ece", "ece_smooth", "worst_window_ece", "brier", "log_loss"} <= overall[kind].keys()
    assert {"regret_brier", "l1", "bound", "windows", "coverage"} <= overall.keys()
    assert found["bootstrap"]["resamples"] == 1000
    assert "below 0 is better" in ended.err


def test_table_at_eighty_columns_cuts_no_figure(tmp_path: Path) -> None:
    source = FileSource(*written(tmp_path, 3000))
    made = configurations(Settings.from_env({}), ["platt+regret_matching:grid=50", "platt"], [])
    result, pace = replay(Request(source, made, resamples=50), {})
    told = io.StringIO()
    show(Console(file=told, width=80), result, pace)
    assert "…" not in told.getvalue()
    overall = result.contenders[0].overall
    assert overall is not None
    for figure in (overall.judged.calibrated.ece, overall.judged.raw.log_loss, overall.bound or 0):
        assert f"{figure:.4f}" in told.getvalue()


def test_a_difference_is_marked_if_it_matters(tmp_path: Path) -> None:
    source = FileSource(*written(tmp_path, 3000))
    result, pace = replay(Request(source, configurations(Settings.from_env({}), [], []), resamples=50), {})
    for value, mark in ((1e-6, "]"), (-1e-6, "]"), (0.1, "✗"), (-0.1, "✓")):
        low, high, told = value - 1e-7, value + 1e-7, io.StringIO()
        metrics = "ece", "brier", "auc", "recall"
        found = [MetricDifference("present", "raw", metric, value, low, high) for metric in metrics]
        show(Console(file=told, width=80), replace(result, differences=found), pace)
        line = next(line for line in told.getvalue().splitlines() if "present − raw" in line)
        assert line.strip().endswith(mark)


def test_table_at_eighty_columns_breaks_no_word(files: str, trueup: Trueup) -> None:
    found = trueup(files).out.splitlines()
    names = [line.split()[0].rstrip(",") for line in found if line.startswith(" pre")]
    assert names == ["present"] * 7, "\n".join(found)
    assert max(map(len, found[2:20])) <= 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--segments country", "--segments is for a table: give --table FILE, too"),
        ("--stream-name s", "--stream-name is for a table"),
        ("--last 7d", "are for topics, not for files"),
        ("--volume 1.5", "must be above 0 and at most 1"),
        ("--calibrator nothing", "unknown calibrator"),
        ("--streams nowhere.toml", "cannot read nowhere.toml"),
        ("--write-state x", "--write-state needs topics"),
        ("--calibrator platt --calibrator minimax --output x", "take one configuration"),
    ],
)
def test_what_cannot_be_is_said(files: str, arguments: str, said: str, trueup: Trueup) -> None:
    ended = trueup(f"{files} {arguments}")
    assert ended.status == MISCONFIGURED
    assert said in ended.err


def test_file_without_its_partner_is_refused(trueup: Trueup) -> None:
    assert "belong together" in trueup("replay --forecasts x").error


def test_time_without_a_zone_is_utc() -> None:
    assert moment("1970-01-02T00:00") == moment("1970-01-02T01:00+01:00") == 86_400_000
    assert moment("1970-01-01T00:00:01Z") == 1000
    with pytest.raises(SettingsError, match="'yesterday' is not a time"):
        moment("yesterday")
