"""How forecasts rank events within windows."""

import math
import random

import pytest

from state.scoring.order import Order
from state.scoring.ranking import VOLUMES
from state.scoring.scores import Scores


def window(n: int, scale: float, seed: int) -> Scores:
    """Return events whose served forecast is the raw one on another scale, and whose draw tells nothing."""
    rng, scores = random.Random(seed), Scores()
    for _ in range(n):
        p = rng.random()
        scores.observe(p, p * scale, float(rng.random() < p), rng.random())
    return scores


def test_one_window_is_ranked_as_its_scores_are() -> None:
    scores = window(500, 0.5, seed=1)
    order = Order.of(scores)
    for kind in scores.kinds:
        one, other = order.ranking(kind), scores.ranking(kind)
        assert one.auc() == pytest.approx(other.auc())
        assert one.ks() == pytest.approx(other.ks())
        for volume in VOLUMES:
            for mine, its in zip(one.at(volume), other.at(volume), strict=True):
                assert mine == pytest.approx(its)


def test_a_change_of_scale_between_windows_costs_nothing() -> None:
    before, after = window(2000, 1.0, seed=1), window(2000, 0.01, seed=2)
    order = Order.of(before) + Order.of(after)
    served, raw = order.ranking("calibrated").auc().value, order.ranking("raw").auc().value
    assert served == pytest.approx(raw, abs=0.002)
    assert (before + after).ranking("calibrated").auc().value < raw - 0.05, "what an AUC over all events makes of it"


def test_a_lost_order_shows() -> None:
    order = Order.of(window(2000, 1.0, seed=1)) + Order.of(window(2000, 1.0, seed=2))
    raw, draw = order.ranking("raw").auc(), order.ranking("draw").auc()
    assert raw.value - draw.value > 10 * raw.error
    assert order.ranking("draw").at(0.05)[0].value < order.ranking("raw").at(0.05)[0].value


def test_nothing_is_known_before_both_outcomes_have_come() -> None:
    scores = Scores()
    scores.observe(0.5, 0.5, 1.0)
    for order in (Order(), Order.of(scores)):
        assert math.isnan(order.ranking("raw").auc().value)
        assert math.isnan(order.ranking("raw").ks())
