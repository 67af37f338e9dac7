"""Scores by their definitions agree with the sums of the state."""

import numpy as np
import pytest

from lab import reliability
from state.scoring.scores import Scores


def events(n: int = 5000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return raw forecasts that are too bold, calibrated ones, and outcomes, [n] each."""
    rng = np.random.default_rng(7)
    chance = rng.beta(2, 4, n)
    return np.clip(1.6 * chance - 0.3, 0, 1), chance, (rng.random(n) < chance).astype(float)


def test_loss_agrees_with_the_sums_of_the_state() -> None:
    raw, p, y = events()
    scores = Scores()
    for each in zip(raw.tolist(), p.tolist(), y.tolist(), strict=True):
        scores.observe(*each)
    expected = (scores.error("raw"), scores.brier("raw"), scores.log_loss("raw"))
    assert reliability.loss(raw, y) == pytest.approx(expected, abs=4e-9)
    expected = (scores.error("calibrated"), scores.brier("calibrated"), scores.log_loss("calibrated"))
    assert reliability.loss(p, y) == pytest.approx(expected, abs=4e-9)


def test_auc_and_mean_agree_with_the_counts_of_the_state() -> None:
    raw, p, y = events()
    scores = Scores()
    for each in zip(raw.tolist(), p.tolist(), y.tolist(), strict=True):
        scores.observe(*each)
    for kind, forecasts in (("raw", raw), ("calibrated", p)):
        told = scores.ranking("raw" if kind == "raw" else "calibrated").auc().value
        assert reliability.auc(forecasts, y) == pytest.approx(told, abs=1e-3)
    assert reliability.mean_off(raw, y) == pytest.approx(scores.relative_bias("raw"), abs=1e-8)
    pairs = [(a > b) + (a == b) / 2 for a in raw[y == 1][:50] for b in raw[y == 0][:50]]
    few = np.concatenate([raw[y == 1][:50], raw[y == 0][:50]])
    assert reliability.auc(few, np.repeat([1.0, 0.0], 50)) == pytest.approx(np.mean(pairs))
    assert np.isnan(reliability.auc(raw, np.zeros_like(y)))
    assert np.isnan(reliability.mean_off(raw, np.zeros_like(y)))
