"""Ranks beside their definitions, and resamples by buckets beside exact ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from replay import bootstrap
from replay.measure import scorecard
from replay.ranking import Buckets, ranks

FORECASTS = st.lists(
    st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5])), st.sampled_from([0.0, 1.0])),
    min_size=2,
    max_size=50,
)


@given(FORECASTS)
def test_auc_is_the_share_of_pairs_in_order_and_ties_are_half(events: list[tuple[float, float]]) -> None:
    p, y = np.array(events).T
    found = ranks(p, y, (0.5,))
    assert found.distinct == len(set(p.tolist()))
    if y.min() == y.max():
        assert np.isnan([found.auc, found.ks, found.recall[0.5]]).all()
        return
    assert found.auc == pytest.approx(roc_auc_score(y, p))
    thresholds = np.unique(p)
    apart = [abs((p[y == 1] >= at).mean() - (p[y == 0] >= at).mean()) for at in thresholds]
    assert found.ks == pytest.approx(max(apart))


def test_what_the_highest_catch_and_of_a_tie_the_share_wanted() -> None:
    p = np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    y = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    found = ranks(p, y, (0.1, 0.3, 1.0))
    assert found.recall == pytest.approx({0.1: 1 / 3, 0.3: (1 + 2 / 4) / 3, 1.0: 1.0})
    assert found.precision == pytest.approx({0.1: 1.0, 0.3: 1.5 / 3, 1.0: 0.3})


def made(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(n) - 5
    y = (rng.random(n) < 1 / (1 + np.exp(-1.3 * z - 1))).astype(np.float64)
    return 1 / (1 + np.exp(-z)), y, np.arange(n) // 500


def test_buckets_measure_what_ranks_do() -> None:
    p, y, cell = made(50_000, 1)
    auc, recall = Buckets(p, y, cell, 100).measured(np.ones((1, 100)), 0.02)
    exact = ranks(p, y, (0.02,))
    assert auc[0] == pytest.approx(exact.auc, abs=2e-4)
    assert recall[0] == pytest.approx(exact.recall[0.02], abs=3e-3)


def test_buckets_never_part_what_is_tied() -> None:
    p, y, cell = made(50_000, 2)
    p = np.round(p, 2)
    auc, recall = Buckets(p, y, cell, 100).measured(np.ones((1, 100)), 0.02)
    exact = ranks(p, y, (0.02,))
    assert auc[0] == pytest.approx(exact.auc, abs=1e-5)
    assert recall[0] == pytest.approx(exact.recall[0.02], abs=1e-9)


def test_a_resample_is_measured_as_if_its_cells_were_repeated() -> None:
    p, y, cell = made(20_000, 3)
    weights = np.zeros(40)
    weights[[3, 7, 20]] = 2, 1, 5
    again = np.repeat(np.arange(len(p)), weights[cell].astype(np.int64))
    auc, recall = Buckets(p, y, cell, 40).measured(weights[None], 0.05)
    exact = ranks(p[again], y[again], (0.05,))
    assert auc[0] == pytest.approx(exact.auc, abs=2e-3)
    assert recall[0] == pytest.approx(exact.recall[0.05], abs=2e-2)


@pytest.mark.parametrize("volume", [0.02, 0.03])
def test_scorecard_ranks_within_tenths_whatever_the_volume(volume: float) -> None:
    p, y, _ = made(30_000, 4)
    card = scorecard(p, y, None, volume)
    tenths = [slice(at, at + 3000) for at in range(0, 30_000, 3000)]
    found = [(y[at].sum(), ranks(p[at], y[at], (volume,))) for at in tenths]
    ones = sum(n for n, _ in found)
    assert card.auc == pytest.approx(sum(n * each.auc for n, each in found) / ones)
    assert card.recall == pytest.approx(sum(n * each.recall[volume] for n, each in found) / ones)
    assert card.precision == pytest.approx(np.mean([each.precision[volume] for _, each in found]))
    assert [each.volume for each in card.caught] == [0.005, 0.01, 0.02, 0.05]
    assert volume != 0.02 or card.caught[2].recall == card.recall
    # A season that moves every forecast of a tenth together changes no rank within it.
    season = np.repeat(np.linspace(0.1, 1, 10), 3000)
    moved = scorecard(season * p, y, None, volume)
    assert (moved.auc, moved.recall) == pytest.approx((card.auc, card.recall))


def test_resamples_lie_around_the_scorecard() -> None:
    p, y, _ = made(30_000, 5)
    how = bootstrap.plan(len(y), 0)
    assert how is not None
    found = {
        name: (value, low, high) for name, value, low, high in bootstrap.Resampled(how, y, {"p": p}).intervals("p")
    }
    card = scorecard(p, y, None)
    for name, width in (("auc", 0.06), ("recall", 0.12)):
        value, low, high = found[name]
        assert value == getattr(card, name)
        assert low < value < high
        assert high - low < width
