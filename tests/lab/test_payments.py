"""The demo of rare frauds: its account, and its picture."""

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import orjson
import pytest

from lab import payments, picture
from lab.demo import SCENARIOS, export
from lab.demo_report import DemoRun
from lab.fraud import Fraud
from lab.outputs import OutputRecords
from lab.scrape import ScrapedSamples
from state.calibrators import make
from streams.config import stream_config
from streams.config.settings import Settings
from tests.bench.matured import play, schedule

ROWS = 4000


def run() -> tuple[Fraud, DemoRun]:
    """Return payments, and a run whose worker served them raw."""
    played = payments.load(ROWS)
    held = OutputRecords()
    events = schedule(played, 45, until_ms=int(played.reports.ms.max()))
    p = play(make("identity"), played, events).p.tolist()
    for event_id, score in zip(played.event_id, p, strict=True):
        held.calibrated_record(orjson.dumps({"event_id": event_id, "p": score, "calibrator": "identity"}))
    metrics = {
        'records_total{topic="forecasts",fate="issued"}': ROWS,
        'records_total{topic="outcomes",fate="waiting"}': len(played.reports.row),
        'matured_events_total{label="reported"}': 20,
        'matured_events_total{label="implied"}': 1500,
        "early_outcomes": 0,
        "pending_events": 0,
        'expired_total{kind="forecast"}': 0,
        'expired_total{kind="outcome"}': 0,
    }
    for fate in ("issued", "waiting", "duplicate", "dead", "resolved", "early", "revised", "stale"):
        for topic in ("forecasts", "outcomes"):
            metrics.setdefault(f'records_total{{topic="{topic}",fate="{fate}"}}', 0)
    text = "".join(f"trueup_{name} {value!r}\n" for name, value in metrics.items())
    sent = {"forecasts": ROWS, "outcomes": len(played.reports.row)}
    return played, DemoRun(sent, 2.0, ScrapedSamples(text), 0, held)


def test_account_of_a_run_in_which_all_is_well_has_no_problems() -> None:
    account = payments.account(Settings.from_env({}), *run())
    assert account["problems"] == []
    assert account["after"]["raw"] == account["after"]["calibrated"]
    assert account["after"]["raw"]["mean"] == pytest.approx(40 * account["after"]["raw"]["truth"], rel=0.2)
    assert account["learnt"]["implied"] == 1500
    assert orjson.loads(orjson.dumps(account))["calibrator"] == "identity"


def test_plan_of_the_demo_is_one_that_a_worker_takes() -> None:
    policy = stream_config.parse(payments.PLAN, "platt").of("cards")
    assert policy is not None
    assert (policy.silence, policy.waits) == (0.0, True)
    assert {each.stream for each in SCENARIOS.values()} == {"flights", "cards"}


def test_picture_is_of_means_over_time_and_of_what_came_true_of_scores(tmp_path: Path) -> None:
    times, scores = np.array([0.0, 2.9, 3.0, 9.0]), np.array([0.2, 0.4, 0.5, 0.7])
    spans = picture.periods(times, scores, scores, np.ones(4), 3)
    assert [(each.start_ms, each.n, each.happened) for each in spans] == [(0, 2, 1), (3, 1, 1), (6, 1, 1)]
    assert [each.served for each in spans] == pytest.approx([0.3, 0.5, 0.7])
    binned = picture.bins(np.array([0.4, 0.1, 0.2, 0.3]), np.array([1.0, 0.0, 1.0, 0.0]), 2)
    assert [each["forecast"] for each in binned] == pytest.approx([0.15, 0.35])
    assert [each["outcome"] for each in binned] == [0.5, 0.5]
    payments.draw(*run(), tmp_path / "out" / "x.svg")
    whole = ET.parse(tmp_path / "out" / "x.svg")  # noqa: S314 - it was written here
    drawn = {each.get("class") for each in whole.iter("{http://www.w3.org/2000/svg}path")}
    assert {"line raw", "line calibrated", "band calibrated"} <= drawn


def test_export_brings_the_plan_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(2000, tmp_path, "fraud") == 0
    assert f"TRUEUP_STREAMS={tmp_path / 'streams.toml'} trueup replay" in capsys.readouterr().out
    assert len((tmp_path / "forecasts.jsonl").read_bytes().splitlines()) == 2000
