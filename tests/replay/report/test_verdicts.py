"""What the verdict of a replay says of histories that were made to be better, alike, worse, or degenerate."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from replay.report.recommendation import verdicts
from replay.result import Result
from state.arrays import Floats
from tests.replay import history

DAY: Final = 86_400_000
START: Final = 1_704_067_200_000


class History(NamedTuple):
    """Forecasts of a model, what happened, and when it became known."""

    #: Forecasts, and outcomes in {0, 1}, [n].
    raw: Floats
    y: Floats
    #: Days on which they were made and known, [n].
    at: Floats
    known: Floats


def made(
    n: int, rate: float, seed: int, off: float = 0.0, slope: float = 1.0, delay: float = 2.0, days: float = 60.0
) -> History:
    """Make events whose log-odds are normal; the model's are ``slope`` times those plus ``off``.

    ``delay``: mean delay of labels, days; it is exponential.
    """
    rng = np.random.default_rng(seed)
    middle = np.log(rate / (1 - rate))
    z = middle + rng.standard_normal(n)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))).astype(np.float64)
    at = np.sort(rng.random(n)) * days
    raw = np.round(1.0 / (1.0 + np.exp(-(middle + slope * (z - middle) + off))), 6)
    return History(raw, y, at, at + rng.exponential(delay, n) if delay else at)


def replayed(
    raw: Sequence[Mapping[str, Any]], y: Sequence[float], at: Floats, known: Floats, plan: str, resamples: int
) -> Result:
    """Replay records in the order of time, [n] each; ``raw`` are fields of the forecasts."""
    ms = [(START + days * DAY).astype(np.int64) for days in (at, known)]
    orders = [np.argsort(each, kind="stable").tolist() for each in ms]
    times = [each.tolist() for each in ms]
    forecasts = [{"event_id": f"e{i}", "stream": "made", "ts": times[0][i], **raw[i]} for i in orders[0]]
    outcomes = [{"event_id": f"e{i}", "y": y[i], "ts": times[1][i]} for i in orders[1]]
    with TemporaryDirectory() as directory:
        plans = {"plan": plan} if plan else None
        return history.replayed(Path(directory), forecasts, outcomes, plans, resamples=resamples)


def played(history: History, plan: str = "", resamples: int = 1000) -> Result:
    """Replay a history; without a plan under the default configuration."""
    raw = [{"p": p} for p in history.raw.tolist()]
    return replayed(raw, history.y.astype(int).tolist(), history.at, history.known, plan, resamples)


def said(result: Result) -> str:
    """Return the verdict's first line, and see that no number in it looks like nothing."""
    (found,) = verdicts(result)
    assert "0.00000000" not in " ".join(found.reasons)
    return found.headline


@pytest.mark.parametrize(("n", "rate", "seed"), [(2000, 0.2, 5), (2000, 0.02, 6), (6000, 0.02, 7)])
def test_scores_that_are_too_high_and_rank_well_are_to_be_calibrated(n: int, rate: float, seed: int) -> None:
    result = played(made(n, rate, seed, off=1.2), resamples=200)
    assert said(result) == "Serve the calibrated scores, by the configuration in force."
    (found,) = verdicts(result)
    assert any(each.startswith("It keeps the order of forecasts of one moment") for each in found.reasons)


@pytest.mark.parametrize(("n", "rate", "delay"), [(2000, 0.3, 0.0), (4000, 0.05, 2.0)])
def test_true_probabilities_are_kept_and_nothing_is_called_harm(n: int, rate: float, delay: float) -> None:
    headline = said(played(made(n, rate, 8, delay=delay), resamples=200))
    assert headline.startswith("Keep the raw forecasts")
    assert "harm" not in headline


def test_what_merges_scores_is_refused_for_its_ranks() -> None:
    plan = '[streams."*"]\ncalibrator = "histogram"\n'
    result = played(made(6000, 0.2, 9, off=0.8), plan, resamples=200)
    assert said(result) == "Keep the raw forecasts: the configuration that was tried does harm."
    assert "worse than raw in AUC" in verdicts(result)[0].reasons[0]


@pytest.mark.parametrize(
    ("raw", "headline", "reason"),
    [
        (lambda y: y, "Keep the raw forecasts: they are perfect.", "Nothing is left to calibrate."),
        (
            lambda y: 0 * y + 0.5,
            "Serve the calibrated scores, by the configuration in force.",
            "they tell no event from another",
        ),
        (lambda y: 0 * y + y.mean(), "are alike, and nothing is lost by either.", "they tell no event from another"),
    ],
)
def test_degenerate_scores_have_a_sentence_of_their_own(raw, headline: str, reason: str) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - of pytest
    base = made(2000, 0.2, 10)
    result = played(base._replace(raw=raw(base.y)), resamples=200)
    assert said(result).endswith(headline)
    assert reason in verdicts(result)[0].reasons[0]


def test_one_answer_only_has_a_sentence_of_its_own() -> None:
    base = made(2000, 0.2, 10)
    assert said(played(base._replace(y=np.zeros(2000)))).endswith("every outcome that is known is no.")


@pytest.mark.parametrize(
    ("mean", "headline"),
    [
        (2.0, "Serve the calibrated scores of made, by the settings of the streams file plan."),
        (0.0, "Keep the raw forecasts of made: they are better than every configuration"),
    ],
)
def test_numbers_have_a_verdict(mean: float, headline: str) -> None:
    """Learning levels of right forecasts costs some of their pinball loss."""
    e, at = np.random.default_rng(11).standard_normal(2000), np.arange(2000) / 100.0
    plan, raw = '[streams.made]\ncalibrator = "quantile"\n', [{"normal": {"mean": mean, "std": 1.0}}] * 2000
    assert said(replayed(raw, e.tolist(), at, at + 0.02, plan, 200)).startswith(headline)
