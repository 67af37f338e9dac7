"""Scores by their definitions agree with the sums of the state."""

import numpy as np
import pytest

from lab import reliability
from state.scoring.scores import Scores
from state.scoring.windows import KINDS


def test_loss_agrees_with_the_sums_of_the_state() -> None:
    rng, scores = np.random.default_rng(7), Scores()
    chance = rng.beta(2, 4, 5000)
    raw, y = np.clip(1.6 * chance - 0.3, 0, 1), (rng.random(5000) < chance).astype(float)
    for each in zip(raw.tolist(), chance.tolist(), y.tolist(), strict=True):
        scores.observe(*each)
    for kind, p in zip(KINDS, (raw, chance), strict=True):
        expected = scores.error(kind), scores.brier(kind), scores.log_loss(kind)
        assert reliability.loss(p, y) == pytest.approx(expected, abs=4e-9)
