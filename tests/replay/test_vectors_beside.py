"""Replays of classes and numbers with segments and challengers: the figures, the report, the terminal."""

import random
from pathlib import Path

import orjson
import pytest

from cli import replay_table, show_tables
from replay.configuration import configurations
from replay.report.page import page
from replay.result import RAW, ReplayPace, Result
from replay.run import Request, replay
from replay.sources.files import FileSource
from state.served import Served
from streams.config.settings import Settings
from tests.replay.history import saved
from tests.state.histories import judged_at_once

STREAMS = """
[streams.demand]
calibrator = "quantile"
options = { levels = [0.1, 0.5, 0.9] }
segments = ["country"]
shadow = [{ calibrator = "quantile", options = { levels = [0.1, 0.5, 0.9], rate = 0.5, link = "identity" } }]
[streams.intent]
calibrator = "multiclass"
options = { classes = 3, each = "identity" }
segments = ["country"]
shadow = [{ calibrator = "multiclass", options = { classes = 3, each = "platt" } }]
"""
N = 1500
#: All take 35 days, which begin with a month.
STEP_MS = 2_000_000
#: After this, what has no outcome expires: 30 days.
TTL_MS = 2_592_000_000


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    with judged_at_once():
        return replayed(tmp_path_factory.mktemp("beside"))


def replayed(directory: Path) -> Result:
    rng = random.Random(1)
    (directory / "s.toml").write_text(STREAMS)
    forecasts: list[dict[str, object]] = []
    outcomes: list[dict[str, object]] = []
    for i in range(N):
        country = rng.choice(["DE", "FR"])
        drawn = rng.gauss(2.0 if country == "FR" else -2.0, 1.0)
        for stream, raw, y in (
            ("demand", {"normal": {"mean": 0.0, "std": 1.0}}, drawn),
            ("intent", {"probs": [0.6, 0.3, 0.1]}, rng.choices((0, 1, 2), (2, 6, 2))[0]),
        ):
            event_id = f"{stream}-{i}"
            forecasts.append(
                {"event_id": event_id, "stream": stream, "segments": {"country": country}, "ts": STEP_MS * i, **raw}
            )
            if i % 3:
                outcomes.append({"event_id": event_id, "y": y, "ts": STEP_MS * i + 60})
    paths = saved(directory, forecasts, outcomes)
    environment = {"TRUEUP_STREAMS": str(directory / "s.toml")}
    made = configurations(Settings.from_env(environment), [], [], challengers=True)
    return replay(Request(FileSource(*paths, partitions=2), made), environment)[0]


def test_challengers_are_compared_with_the_champion_by_their_losses(result: Result) -> None:
    champion, *others = result.contenders
    for stream, losses in (("demand", {"pinball"}), ("intent", {"brier", "log_loss"})):
        pairs = {(each.name, each.against) for each in result.vector_differences[stream]}
        assert {(each.name, RAW) for each in result.contenders} <= pairs
        assert champion.name in {against for _, against in pairs}
        assert {each.metric for each in result.vector_differences[stream]} == losses
    (platt,) = [each for each in others if "each=platt" in each.name]
    (against,) = [
        each
        for each in result.vector_differences["intent"]
        if (each.name, each.against, each.metric) == (platt.name, champion.name, "log_loss")
    ]
    assert against.sign == -1, "platt learns that the first class is not the likeliest"
    own, base = (each.vectors["intent"].figures["calibrated"]["log_loss"] for each in (platt, champion))
    assert against.value == pytest.approx(own - base, abs=1e-6)


def test_segments_are_described_with_label_coverage(result: Result) -> None:
    for stream in ("demand", "intent"):
        segments = result.contenders[0].vectors[stream].segments
        assert segments is not None
        assert {each["value"] for each in segments["worst"]} == {"DE", "FR"}
        assert sum(each["events"] for each in segments["worst"]) == N * 2 // 3
        assert sum(each["issued"] for each in segments["worst"]) == N
        known, expired = N * 2 / 3, (N - TTL_MS / STEP_MS) / 3
        of = known / (known + expired)
        assert [each["coverage"] for each in segments["worst"]] == pytest.approx([of, of], abs=0.02)
        corrected = stream == "demand"  # by its calibrator; that of classes is told to serve raw forecasts
        assert all(each["sounds"] for each in segments["worst"]) is not corrected
        assert segments["recently_off"] == (0 if corrected else 2)
        if not corrected:
            assert {(each["class"], each["level"]) for each in segments["recent"]} <= {
                (None, None),
                (0, None),
                (1, None),
            }
            assert all(each["alarm_log10"] > 3.0 for each in segments["recent"])


def test_months_of_a_segment_of_classes_or_numbers_add_up(result: Result) -> None:
    for stream in ("demand", "intent"):
        segments = result.contenders[0].vectors[stream].segments
        assert segments is not None
        for each in segments["worst"]:
            months = each["months"]
            assert [month["month"] for month in months] == ["1970-01", "1970-02"]
            assert sum(month["events"] for month in months) == each["events"]
        if stream == "intent":  # .6 was said, and .2 is true
            for each in segments["worst"]:
                off = sum(month["events"] * month["off"] for month in each["months"]) / each["events"]
                assert off == pytest.approx(each["off"]["mean"])
                assert all(month["off"] > month["chance"] for month in each["months"])


def test_the_report_and_the_terminal_show_both(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    shown = page(result).decode()
    for title in ("Segments, worst first", "Segments lately", "Segments by month"):
        assert title in shown
    assert "this − present" in shown
    assert '<span class="verdict better">better</span>' in shown
    parsed = orjson.loads(result.encode())
    assert parsed["contenders"][1]["vectors"]["demand"]["segments"]["scored"] == 2
    replay_table.show(show_tables.console(), result, ReplayPace(1.0, 1, 1.0))
    printed = capsys.readouterr().out
    assert "this − present" in printed
    assert "country FR" in " ".join(printed.split())
    assert "Lately 2 of 2 segments are off." in printed


def test_a_history_that_is_all_warm_up_is_reported_without_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Served, "warms", lambda *_: True)
    warm = replayed(tmp_path)
    assert {each.resolved for contender in warm.contenders for each in contender.vectors.values()} == {0}
    assert "No choice can be made for intent" in page(warm).decode()
    replay_table.show(show_tables.console(), warm, ReplayPace(1.0, 1, 1.0))
    printed = capsys.readouterr().out
    assert "intent: 0 resolved after the warm-up" in printed
    assert "nan" not in printed


def test_classes_that_are_served_as_they_come_have_no_warm_up(tmp_path: Path) -> None:
    champion, *others = replayed(tmp_path).contenders
    assert champion.vectors["intent"].resolved == N * 2 // 3
    assert 0 < min(each.vectors["intent"].resolved for each in others) < N * 2 // 3
