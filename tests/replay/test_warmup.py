"""What is served before anything is known is told apart, and lateness of labels is noticed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay.report import rows
from replay.report.figure import Series
from replay.report.recommendation import choose
from replay.report.sentences import learning
from replay.report.warnings import lateness, too_short, unsegmented
from replay.result import Result, Scored
from tests.replay.history import replayed

DAY = 86_400_000
START = 1_700_000_000_000


def history(directory: Path, labels: Any, calibrators: tuple[str, ...] = ("platt",)) -> Result:
    """Replay 6,000 forecasts, a hundred a day, three times too high; ``labels`` gives the days outcomes take."""
    rng, n = np.random.default_rng(11), 6000
    chance = rng.uniform(0.02, 0.3, n)
    y = (rng.random(n) < chance).astype(int)
    days = labels(rng, y)
    at = START + (np.arange(n) * DAY // 100)
    forecasts = [{"event_id": str(i), "stream": "s", "p": 3 * float(chance[i]), "ts": int(at[i])} for i in range(n)]
    outcomes = sorted((int(at[i] + days[i] * DAY), i) for i in range(n) if not np.isnan(days[i]))
    told = [{"event_id": str(i), "y": int(y[i]), "ts": ms} for ms, i in outcomes]
    plans = {name: f'[streams."*"]\ncalibrator = "{name}"\nttl = "90d"\n' for name in calibrators}
    return replayed(directory, forecasts, told, plans, resamples=100)


def scored(result: Result, name: str) -> Scored:
    overall = result.contender(name).overall
    assert overall is not None
    return overall


def test_what_is_served_before_the_first_outcome_is_warm_up(tmp_path: Path) -> None:
    result = history(tmp_path, lambda _, y: np.full(len(y), 20.0), calibrators=("platt", "identity"))
    overall = scored(result, "platt")
    # Twenty labels of forecasts behind the first hundred say that most get one.
    assert overall.warmup.issued == 2120
    assert overall.warmup.end_ms == START + 2119 * DAY // 100
    assert overall.warmup.calibrated.mean_forecast == pytest.approx(overall.warmup.raw.mean_forecast, rel=0.05)
    assert overall.settled.issued == 3880
    assert overall.settled.raw.mean_forecast == pytest.approx(3 * overall.settled.raw.base_rate, rel=0.1)
    assert overall.settled.calibrated.mean_forecast == pytest.approx(overall.settled.raw.base_rate, rel=0.1)
    # One that serves raw for ever warms up only until it could have known something.
    identity = scored(result, "identity").warmup
    assert (identity.issued, identity.end_ms) == (2001, START + 2000 * DAY // 100)
    chosen = choose(result)
    assert any("35.3% of the forecasts, platt was warming up: it served 0.4" in each for each in chosen.reasons)


def test_labels_that_come_at_once_leave_no_warm_up_worth_a_word(tmp_path: Path) -> None:
    result = history(tmp_path, lambda _, y: np.zeros(len(y)))
    # Calibrated scores are served from the second forecast on. Twenty labels of forecasts behind the first hundred
    # say that most get one: before, what is served may be raw again at any time.
    assert scored(result, "platt").warmup.issued == 120
    assert not any("warming up" in each for each in choose(result).reasons)


def test_the_warm_up_is_told_of_each_stream_that_learns(tmp_path: Path) -> None:
    n = 6000
    streams = ("early", "late", "never", "unlabelled")
    takes = {"early": 5, "late": 20, "never": 5}
    chance = np.random.default_rng(4).uniform(0.02, 0.3, n)
    y = np.random.default_rng(5).random(n) < chance
    at = [START + i * DAY // 100 for i in range(n)]
    forecasts = [
        {"event_id": str(i), "stream": streams[i % 4], "p": 3 * float(chance[i]), "ts": at[i]} for i in range(n)
    ]
    outcomes: list[dict[str, Any]] = [
        {"event_id": str(i), "y": int(y[i]), "ts": at[i] + takes[stream] * DAY}
        for i in range(n)
        if (stream := streams[i % 4]) in takes
    ]
    plan = '[streams.never]\ncalibrator = "identity"\n[streams."*"]\ncalibrator = "platt"\nttl = "90d"\n'
    outcomes.sort(key=lambda each: each["ts"])
    result = replayed(tmp_path, forecasts, outcomes, {"plan": plan}, resamples=100)
    assert [each.stream for each in learning(result.contenders[0])] == ["early", "late"]
    said = [each.split(":")[0] for each in choose(result).reasons if "warming up" in each]
    assert said == [
        "Until 24 Nov 2023, 16.3% of the forecasts of early, plan was warming up",
        "Until 9 Dec 2023, 41.3% of the forecasts of late, plan was warming up",
    ]
    found = [(Series("plan.toml", "c0"), result.contenders[0])]
    assert [scored.stream for _, scored in rows.tables(result, found, found)["warmups"]] == ["early", "late"]


def test_choice_rests_on_what_came_after_the_warm_up(tmp_path: Path) -> None:
    result = history(tmp_path, lambda _, y: np.full(len(y), 20.0))
    settled = scored(result, "platt").settled
    (brier,) = (each for each in result.differences if each.metric == "brier")
    assert brier.value == pytest.approx(settled.calibrated.brier - settled.raw.brier)
    (auc,) = (each for each in result.intervals if (each.name, each.metric) == ("platt", "auc"))
    assert auc.low < auc.value == settled.calibrated.auc < auc.high


def titles(result: Result) -> list[str]:
    return [each.title for each in lateness(result)]


def test_labels_that_come_at_different_ages_are_noticed(tmp_path: Path) -> None:
    result = history(tmp_path, lambda rng, y: np.where(y == 1, rng.uniform(1, 20, len(y)), 20))
    assert titles(result) == ["Of s an outcome of yes comes sooner than one of no."]
    assert [(each.label, round(each.median_ms / DAY)) for each in scored(result, "platt").ages] == [(0, 20), (1, 10)]


def test_labels_that_come_at_one_age_are_not(tmp_path: Path) -> None:
    assert titles(history(tmp_path, lambda rng, y: rng.uniform(1, 20, len(y)))) == []


def test_a_ttl_that_is_shorter_than_the_delays_is_noticed(tmp_path: Path) -> None:
    found = history(tmp_path, lambda rng, y: rng.uniform(1, 20, len(y))).contenders[0].streams["s"]
    late = found.late
    assert late is not None
    assert (late.outcomes, late.missed, late.share, late.expired) == (6000, 0, 0.0, 0)
    assert too_short(found) is None

    def told(ttl: int, expired: int, missed: int, share: float, largest: int = 20) -> str | None:
        changed = replace(late, expired=expired, missed=missed, share=share, largest_ms=largest * DAY)
        said = too_short(replace(found, ttl_ms=ttl * DAY, late=changed))
        return said.title if said else None

    title = "The ttl of s, 20 d, is too short for its outcomes."
    assert told(20, 9, 0, 0.0) == title
    assert told(20, 0, 0, 0.0) is None
    assert told(20, 0, 0, 0.011) == title
    assert told(22, 9, 0, 0.0) is None, "it is what would be proposed"
    assert told(90, 9, 5, 0.001, 91) is None
    assert told(90, 9, 6, 0.001, 91) == "The ttl of s, 90 d, is too short for its outcomes."


def test_segments_that_no_record_has_are_noticed(tmp_path: Path) -> None:
    result = history(tmp_path, lambda rng, y: rng.uniform(1, 20, len(y)))
    contender = result.contenders[0]
    lacking = replace(contender.streams["s"], segments={"worst": [{"segment": "country", "value": "(missing)"}]})
    changed = replace(result, contenders=[replace(contender, streams={"s": lacking})])
    assert [each.title for each in unsegmented(changed)] == ["No record of s has a segment."]
    assert list(unsegmented(result)) == []


def test_where_only_ones_are_reported_nothing_is_chosen_and_silence_is_named(tmp_path: Path) -> None:
    result = history(tmp_path, lambda _, y: np.where(y == 1, 5.0, np.nan))
    assert scored(result, "platt").raw.base_rate == 1.0
    assert titles(result)[-1].startswith("Of s only outcomes of yes are reported, of 1")
    chosen = choose(result)
    assert chosen.name is None
    assert chosen.headline == "No choice can be made from this replay: every outcome that is known is yes."
    assert not any("Serve the calibrated" in each for each in (chosen.headline, *chosen.reasons))


def test_each_version_of_the_model_has_a_warm_up_as_live(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(5), 1200
    chance = rng.uniform(0.05, 0.4, n)
    forecasts = [
        {"event_id": str(i), "stream": "s", "p": float(p), "ts": START + i * DAY // 100, "model": f"v{2 * i // n}"}
        for i, p in enumerate(chance)
    ]
    outcomes = [
        {"event_id": str(i), "y": int(rng.random() < p / 2), "ts": START + i * DAY // 100 + DAY}
        for i, p in enumerate(chance)
    ]
    plan = '[streams.s]\ncalibrator = "platt"\nunlabelled = "alike"\nmodel_version = "model"\n'
    overall = scored(replayed(tmp_path, forecasts, outcomes, {"plan": plan}, resamples=100), "plan")
    # The first answers a hundred before its first outcome, the other fifty before a map is carried over to it.
    assert overall.warmup.issued == pytest.approx(150, abs=4)
    assert overall.settled.issued + overall.warmup.issued == n
