"""The demo of rare frauds: its account is right when all is well and loud when anything is missing, and its picture."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest

from lab import log_odds, payments
from lab.demo import SCENARIOS, export
from lab.demo_report import DemoRun
from lab.fraud import Fraud
from lab.scrape import ScrapedSamples
from lab.topic_counts import TopicCounts
from state.calibrators import make
from streams.config import stream_config
from streams.config.settings import Settings
from tests.bench.matured import play, schedule
from tests.lab import exported

ROWS = 4000


def run(change: Callable[[TopicCounts], None] = lambda _: None) -> tuple[Fraud, DemoRun]:
    """Return payments, and a run whose worker served them raw and whose topics were then changed."""
    played = payments.load(ROWS)
    held = TopicCounts()
    events = schedule(played, 45, until_ms=int(played.reports.ms.max()))
    match = play(make("identity"), played, events)
    p = match.p.tolist()
    for event_id, score in zip(played.event_id, p, strict=True):
        answer = {"event_id": event_id, "raw": score, "p": score, "calibrator": "identity", "version": 0}
        held.calibrated_record(orjson.dumps(answer))
    record: dict[str, object] = {"version": 0}
    implied = revised = 0
    reported = set(played.reports.row[played.reports.y == 1].tolist())
    told: dict[int, int] = {}
    for kind, i, y in zip(events.kind, events.row, events.y, strict=True):
        if kind != 1:
            told[i] = told.get(i, -1) + 1
            record |= {"event_id": played.event_id[i], "raw": p[i], "p": p[i], "y": y, "revision": told[i]}
            held.resolved_record(orjson.dumps(record))
            implied += not told[i] and i not in reported
            revised += bool(told[i])
    change(held)
    outcomes = len(played.reports.row)
    learnt = len(told) - implied
    metrics: dict[str, float] = {
        'records_total{topic="forecasts",fate="issued"}': ROWS,
        'records_total{topic="outcomes",fate="waiting"}': outcomes - revised,
        'records_total{topic="outcomes",fate="revised"}': revised,
        'matured_events_total{label="reported"}': learnt,
        'matured_events_total{label="implied"}': implied,
        "early_outcomes": 0,
        'warm_up_events{stream="cards"}': 0,
        "pending_events": ROWS - len(told),
        'expired_total{kind="forecast"}': 0,
        'expired_total{kind="outcome"}': 0,
    }
    for fate in ("duplicate", "dead", "resolved", "early", "stale"):
        for topic in ("forecasts", "outcomes"):
            metrics.setdefault(f'records_total{{topic="{topic}",fate="{fate}"}}', 0)
    raw, served, labels = held.scored()
    metrics |= exported.scores("cards", "raw", raw, labels)
    metrics |= exported.scores("cards", "calibrated", served, labels)
    text = "".join(f"trueup_{name} {value!r}\n" for name, value in metrics.items())
    return played, DemoRun({"forecasts": ROWS, "outcomes": outcomes}, 2.0, ScrapedSamples(text), 0, held)


def test_account_of_a_run_in_which_all_is_well_has_no_problems() -> None:
    account = payments.account(Settings.from_env({}), *run())
    assert account["problems"] == []
    assert account["after"]["raw"] == account["after"]["calibrated"]
    assert account["after"]["raw"]["mean"] == pytest.approx(40 * account["after"]["raw"]["truth"], rel=0.2)
    assert account["learnt"]["implied"] > 1000
    assert orjson.loads(orjson.dumps(account))["calibrator"] == "identity"


def lose_an_answer(held: TopicCounts) -> None:
    del held.answers["cards-000005"]


def keep_an_old_label(held: TopicCounts) -> None:
    event, (raw, p, y) = next(iter(held.resolved.items()))
    held.resolved[event] = raw, p, 1 - y


def lose_a_resolved_event(held: TopicCounts) -> None:
    del held.resolved[next(iter(held.resolved))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lose_an_answer, "events in the topic of answers: 3,999"),
        (keep_an_old_label, "events whose last label is not the one reported last: 1"),
        (lose_a_resolved_event, "but events in the topic of resolved events"),
    ],
)
def test_account_names_what_does_not_add_up(change: Callable[[TopicCounts], None], said: str) -> None:
    problems = payments.account(Settings.from_env({}), *run(change))["problems"]
    assert any(said in each for each in problems)


def test_plan_of_the_demo_is_one_that_a_worker_takes() -> None:
    policy = stream_config.parse(payments.PLAN, "platt").of("cards")
    assert policy is not None
    assert (policy.silence, policy.waits) == (0.0, True)
    assert {each.stream for each in SCENARIOS.values()} == {"flights", "cards"}


def test_picture_is_of_means_over_time_and_of_scores_against_the_truth(tmp_path: Path) -> None:
    middle, mean = log_odds.over_time(np.array([0.1, 2.9, 3.0, 9.5]), np.array([0.2, 0.4, 0.5, 0.7]))
    np.testing.assert_allclose(middle, [1.5, 4.5, 10.5])
    np.testing.assert_allclose(mean, [0.3, 0.5, 0.7])
    x, y = log_odds.against(np.array([0.4, 0.1, 0.2, 0.3]), np.array([0.04, 0.01, 0.02, 0.03]), 2)
    np.testing.assert_allclose(x, [0.15, 0.35])
    np.testing.assert_allclose(y, [0.015, 0.035])
    payments.draw(*run(), tmp_path / "out" / "x.png")
    assert (tmp_path / "out" / "x.png").read_bytes().startswith(b"\x89PNG")


def test_export_brings_the_plan_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(2000, tmp_path, "fraud") == 0
    assert f"TRUEUP_STREAMS={tmp_path / 'streams.toml'} trueup replay" in capsys.readouterr().out
    assert len((tmp_path / "forecasts.jsonl").read_bytes().splitlines()) == 2000
