"""Ranks within windows beside their definitions, what resamples add to them, and which neighbours are turned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import bootstrap
from replay.ranking import WINDOW, Moments, ranks, turned, windows

FORECASTS = st.lists(
    st.tuples(
        st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5])), st.sampled_from([0.0, 1.0]), st.integers(0, 2)
    ),
    min_size=2,
    max_size=50,
)


@given(FORECASTS)
def test_auc_is_the_share_of_pairs_of_a_window_in_order_and_ties_are_half(
    events: list[tuple[float, float, int]],
) -> None:
    p, y, window = np.array(events).T
    window = window.astype(np.int64)
    found = ranks(p, y, (0.5,), Moments(window, np.arange(len(p))))
    pairs = {at: (y[window == at] == 1).sum() * (y[window == at] == 0).sum() for at in range(3)}
    if not sum(pairs.values()):
        assert math.isnan(found.auc)
        return
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415 - slow to import

    each = {at: roc_auc_score(y[window == at], p[window == at]) for at, n in pairs.items() if n}
    assert found.auc == pytest.approx(sum(pairs[at] * auc for at, auc in each.items()) / sum(pairs.values()))
    assert found.moves.sum(axis=0) == pytest.approx([0.0, 0.0], abs=1e-9)
    whole = ranks(p, y, (0.5,))
    thresholds = np.unique(p)
    apart = [abs((p[y == 1] >= at).mean() - (p[y == 0] >= at).mean()) for at in thresholds]
    assert whole.ks == pytest.approx(max(apart))


def test_what_the_highest_of_each_window_catch_and_of_a_tie_the_share_wanted() -> None:
    p = np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    y = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    twice = np.append(p, p / 100), np.append(y, y), (0.1, 0.3, 1.0), Moments(np.repeat([0, 1], 10), np.arange(20))
    for found in (ranks(p, y, (0.1, 0.3, 1.0)), ranks(*twice)):
        assert found.recall == pytest.approx({0.1: 1 / 3, 0.3: (1 + 2 / 4) / 3, 1.0: 1.0})
        assert found.precision == pytest.approx({0.1: 1.0, 0.3: 1.5 / 3, 1.0: 0.3})


def test_equal_forecasts_tie_however_many_of_them_are_in_each_segment() -> None:
    # Ten equal scores in one segment, three in the other: 10 · .07 / 10 and 3 · .07 / 3 differ in the last bit.
    p, y = np.full(13, 0.07), np.array([*[1.0] * 5, *[0.0] * 5, 1.0, 0.0, 0.0])
    segment = np.repeat([0, 1], [10, 3])
    assert float(np.sum(p[:10])) / 10 != float(np.sum(p[10:])) / 3
    found = ranks(p, y, (0.5,), Moments(np.zeros(13, dtype=np.int64), segment))
    assert (found.auc, found.ks) == (0.5, 0.0)


def test_windows_hold_neighbours_of_one_calibrator() -> None:
    rng = np.random.default_rng(2)
    issued, place = rng.permutation(2000), np.repeat([7, 3], [1700, 300])
    found = windows(place, issued)
    sizes = np.bincount(found)
    assert np.abs(sizes - WINDOW).max() <= WINDOW / 2
    for window in np.unique(found):
        mine = found == window
        assert len(set(place[mine])) == 1
        others = issued[(place == place[mine][0]) & ~mine]
        assert not ((others > issued[mine].min()) & (others < issued[mine].max())).any()


def test_equal_raw_forecasts_of_a_window_rank_as_served_alike() -> None:
    """What tells them apart is only when they were served."""
    p, y, one = np.array([0.1, 0.3, 0.2, 0.4]), np.array([0.0, 1.0, 1.0, 0.0]), np.zeros(4, dtype=np.int64)
    alike = np.array([0, 0, 1, 1])
    # Means .2 and .3: pairs (.2, .2), (.2, .3), (.3, .2) and (.3, .3).
    assert ranks(p, y, (0.5,), Moments(one, alike)).auc == 0.5
    assert ranks(p, y, (0.5,), Moments(one, np.arange(4))).auc == 0.25 + 0.25


@pytest.mark.parametrize("size", [50, 5000])
@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_intervals_of_ranks_are_as_wide_as_histories_differ(size: int, rate: float) -> None:
    """With windows within a cell of the resamples, and with one for all."""
    values, widths = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal(5000)
        y = (rng.random(5000) < 1 / (1 + np.exp(-z - np.log(rate / (1 - rate))))).astype(np.float64)
        p, raw = (1 / (1 + np.exp(-z - 0.7 * rng.standard_normal(5000))) for _ in range(2))
        how = bootstrap.plan(np.zeros(5000, dtype=np.int64), resamples=200)
        assert how is not None
        moments = Moments(np.arange(5000) // size, np.arange(5000))
        found = bootstrap.Resampled(how, y, {"p": p, "raw": raw}, 0.1, moments).differences([("p", "raw")])
        values.append([each.value for each in found[-2:]])
        widths.append([each.high - each.low for each in found[-2:]])
    expected = 2 * 1.96 * np.std(values, axis=0)
    assert np.mean(widths, axis=0) == pytest.approx(expected, rel=0.3)


def test_neighbours_that_one_map_answered_are_turned_or_not() -> None:
    rng = np.random.default_rng(3)
    n = 3000
    raw, place = rng.uniform(0.01, 0.99, n), np.arange(n) % 2
    learnt = np.arange(n) // 7
    drift = 0.7 + 0.3 * np.sin(learnt)  # a map that keeps the order and moves after each outcome
    assert turned(raw, raw**2 * drift, place, learnt) == 0.0
    steps = np.floor(10 * raw) / 10 + 0.05
    for within in (0.0, 1e-4):
        assert turned(raw, (steps + within * raw) * drift, place, learnt) == pytest.approx(0.1, abs=0.03)
    assert turned(raw, 1 - raw, place, learnt) == 1.0
    # Where every forecast has a map of its own, those a little apart may be turned by the outcome between.
    prompt, wobble = np.arange(n), 1 + 0.02 * rng.standard_normal(n)
    assert turned(raw, raw * wobble, np.zeros(n, dtype=np.int64), prompt) < 0.01
    assert turned(raw, 1 - raw, np.zeros(n, dtype=np.int64), prompt) == 1.0
    assert math.isnan(turned(np.full(9, 0.5), raw[:9], place[:9], learnt[:9]))
