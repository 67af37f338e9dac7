"""Measures over arrays beside the sums of `state.scoring.scores`, and intervals beside what they should cover."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import bootstrap
from replay.measure import coverage, delays, scorecard
from state.scoring.cells import BINS
from state.scoring.certificate import certificate
from state.scoring.scores import Kind, Scores
from state.scoring.two_bin import two_bin

P = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0, 0.09999999999999999, 1e-9]))


@given(st.lists(st.tuples(P, P, st.sampled_from([0.0, 1.0])), min_size=1, max_size=60))
def test_scorecard_is_that_of_the_live_scores(events: list[tuple[float, float, float]]) -> None:
    scores = Scores()
    for raw, p, y in events:
        scores.observe(raw, p, y)
    columns = np.array(events).T
    kinds: tuple[Kind, Kind] = ("raw", "calibrated")
    for kind, p in zip(kinds, columns, strict=False):
        card = scorecard(p, columns[2], None)
        found = (card.n, card.ece, card.ece_smooth, card.certificate, card.brier, card.log_loss, card.misclassification)
        live = (
            scores.n,
            scores.error(kind),
            scores.smooth_ece(kind),
            certificate(scores.ranking(kind)),
            scores.brier(kind),
            scores.log_loss(kind),
            scores.loss("misclassification", kind),
        )
        assert found == pytest.approx(live, abs=1e-7)  # live sums are of numbers rounded to billionths
        assert (card.two_bin, card.two_bin_noise, card.two_bin_error) == pytest.approx(two_bin(scores, kind), abs=1e-6)
        assert card.ece_noise == pytest.approx(scores.noise(kind), abs=1e-4)  # and this is a root of them


def test_empty_history_scores_nan_and_fails_nowhere() -> None:
    none = np.empty(0)
    card = scorecard(none, none, None)
    assert card.n == 0
    assert np.isnan([card.ece, card.brier, card.base_rate]).all()
    assert delays(none.astype(np.int64)).counts == (0,)
    assert [each.issued for each in coverage(none, none)] == [0] * BINS


def test_delays_count_every_outcome_once_also_those_before_their_forecast() -> None:
    took = np.array([-5000, 0, 999, 1000, 86_400_000 * 400, 86_400_000])
    found = delays(took)
    assert sum(found.counts) == len(took)
    assert found.edges_ms[0] == -5000
    assert found.edges_ms[-1] > took.max()
    assert list(found.edges_ms) == sorted(set(found.edges_ms))
    assert found.counts[0] == 1
    assert found.median_ms == 999.5 + 0.0


def test_band_with_few_labels_cannot_be_judged() -> None:
    issued = np.concatenate([np.full(100, 0.95), np.full(100, 0.05), np.full(20, 0.55)])
    bands = coverage(issued, np.concatenate([np.full(49, 0.95), np.full(50, 0.05)]))
    assert [each.low for each in bands if not each.identifiable] == [0.9]
    assert bands[9].share == 0.49


def spread(n: int, days: int) -> np.ndarray:
    """Return times of n forecasts over so many days, ms."""
    return np.linspace(0, 86_400_000 * days, n).astype(np.int64)


def forecasters(n: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    chance = rng.beta(2, 5, n)
    y = (rng.random(n) < chance).astype(np.float64)
    return y, {"raw": chance, "off": np.clip(chance * 1.5, 0, 1), "same": chance.copy()}


def test_bootstrap_tells_a_worse_forecaster_and_no_difference_from_none() -> None:
    y, forecasts = forecasters(20_000, 1)
    how = bootstrap.plan(spread(len(y), 50))
    assert how is not None
    found = {
        (each.name, each.metric): each
        for each in bootstrap.Resampled(how, y, forecasts).differences([("off", "raw"), ("same", "raw")])
    }
    for metric in ("ece", "ece_smooth", "brier", "log_loss"):
        assert found["off", metric].low > 0
        assert found["off", metric].low < found["off", metric].value < found["off", metric].high
        same = found["same", metric]
        assert (same.value, same.low, same.high) == (0, 0, 0)


def test_bootstrap_value_is_the_difference_of_the_scorecards() -> None:
    y, forecasts = forecasters(1003, 2)
    how = bootstrap.plan(spread(len(y), 0), block=37)
    assert how is not None
    (ece, smooth, brier, log_loss, *_) = bootstrap.Resampled(how, y, forecasts).differences([("off", "raw")])
    off, raw = (scorecard(forecasts[name], y, None) for name in ("off", "raw"))
    assert [each.value for each in (ece, smooth, brier, log_loss)] == pytest.approx(
        [off.ece - raw.ece, off.ece_smooth - raw.ece_smooth, off.brier - raw.brier, off.log_loss - raw.log_loss]
    )


def test_bootstrap_interval_of_a_mean_has_the_width_that_theory_gives() -> None:
    y, forecasts = forecasters(50_000, 3)
    how = bootstrap.plan(spread(len(y), 0))
    assert how is not None
    (brier,) = (e for e in bootstrap.Resampled(how, y, forecasts).differences([("off", "raw")]) if e.metric == "brier")
    each = np.square(forecasts["off"] - y) - np.square(forecasts["raw"] - y)
    theory = 2 * 1.96 * each.std() / np.sqrt(len(y))
    assert brier.high - brier.low == pytest.approx(theory, rel=0.15)


@pytest.mark.parametrize("apart", [1, 7])
def test_an_interval_has_nearly_the_width_that_theory_gives_where_days_share_their_luck(apart: int) -> None:
    days, daily, widths = 90, 100, []
    # Each day's forecasts through the day; or all of a week in one batch.
    days_of = spread(days * daily, days) if apart == 1 else (np.arange(days) * 7 * 86_400_000).repeat(daily)
    for seed in range(10):
        lucky = np.random.default_rng(seed).integers(0, 2, days).astype(float)
        y = lucky.repeat(daily)
        how = bootstrap.plan(days_of)
        assert how is not None
        forecasts = {"off": np.full(len(y), 0.6), "raw": np.full(len(y), 0.5)}
        found = bootstrap.Resampled(how, y, forecasts).differences([("off", "raw")])
        (brier,) = (each for each in found if each.metric == "brier")
        each_day = np.square(0.6 - lucky) - np.square(0.5 - lucky)
        widths.append((brier.high - brier.low) / (2 * 1.96 * each_day.std() / np.sqrt(days)))
    assert np.mean(widths) == pytest.approx(1.0, abs=0.1)


def test_an_interval_holds_its_value_where_hardly_a_resample_differs() -> None:
    n, rng = 4000, np.random.default_rng(4)
    raw = rng.uniform(size=n) ** 3 * 0.2
    y = (rng.uniform(size=n) < 0.04).astype(float)
    moved = np.clip(raw + 1e-3 * rng.normal(size=n) * (rng.uniform(size=n) < 0.02), 0, 1)
    how = bootstrap.plan(spread(n, 0))
    assert how is not None
    found = bootstrap.Resampled(how, y, {"moved": moved, "raw": raw}, 0.02).differences([("moved", "raw")])
    (recall,) = (each for each in found if each.metric == "recall")
    assert recall.value == recall.sign == 0
    assert all(each.low <= each.value <= each.high for each in found)


def test_an_interval_is_as_wide_for_what_only_the_last_forecasts_differ_in() -> None:
    """In a warm-up nothing but raw forecasts is served until its end."""
    n, last = 512, 32
    how = bootstrap.plan(spread(n, 0), block=32)
    assert how
    begin, middle, end = (np.zeros((n, 1)) for _ in range(3))
    begin[:last] = middle[n // 2 : n // 2 + last] = end[-last:] = 1.0
    found = [bootstrap.means(how, each)[0] for each in (begin, middle, end)]
    widths = [high - low for _, low, high in found]
    assert max(widths) < 1.2 * min(widths)
    assert all(low <= 0.0 for _, low, _ in found), "chance alone may have put a single block there"


def test_bootstrap_needs_two_hundred_outcomes() -> None:
    assert bootstrap.plan(spread(199, 0)) is None
    how = bootstrap.plan(spread(200, 0))
    assert how is not None
    assert how.block <= 200
