"""Rankings from counts by cell, against the events themselves."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.counts import EMPTY, Counts, packed, raised
from state.scoring import ranking
from state.scoring.cells import COARSE, EDGES, FINE, WITHIN
from state.scoring.ranking import Ranking
from state.scoring.scores import Scores

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
UNIT = st.floats(0, 1)


def ranked(p: Floats, y: Floats) -> Ranking:
    cell = np.searchsorted(EDGES, p, side="right")
    return Ranking(*(np.bincount(cell[y == label], minlength=FINE).tolist() for label in (0.0, 1.0)))


def exact(p: Floats, y: Floats) -> float:
    """Return the AUC of the events, ties counted half."""
    _, place, counts = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    ones = y.sum()
    return float((rank[y == 1.0].sum() - ones * (ones + 1) / 2) / (ones * (len(y) - ones)))


def made(rate: float, spread: float, seed: int, n: int = 200_000) -> tuple[Floats, Floats]:
    """Return log-odds of a spread around a base rate, and outcomes that come true by them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(math.log(rate / (1 - rate)), spread, n)
    return z, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(np.float64)


#: A model's forecasts as they are, half as bold, and forty times too high.
SHAPES = {"true": (1.0, 0.0), "shy": (0.5, 0.0), "high": (1.0, 3.7)}


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize(("rate", "shapes"), [(0.004, "true shy high"), (0.5, "true shy")])
def test_auc_of_rare_events_and_of_even_odds_errs_by_a_thousandth(spread: float, rate: float, shapes: str) -> None:
    z, y = made(rate, spread, seed=1)
    centre = math.log(rate / (1 - rate))
    for slope, shift in map(SHAPES.__getitem__, shapes.split()):
        p = 1 / (1 + np.exp(-(slope * (z - centre) + centre + shift)))
        assert ranked(p, y).auc().value == pytest.approx(exact(p, y), abs=0.001)


@pytest.mark.parametrize("rate", [0.004, 0.5])
def test_recall_and_precision_err_by_less_than_their_chance(rate: float) -> None:
    z, y = made(rate, 1.5, seed=3)
    p = 1 / (1 + np.exp(-z))
    order = np.argsort(-p)
    for volume in ranking.VOLUMES:
        recall, precision = ranked(p, y).at(volume)
        hits = y[order[: int(volume * len(y))]].sum()
        assert recall.value == pytest.approx(hits / y.sum(), abs=max(recall.error, 1e-3))
        assert precision.value == pytest.approx(hits / (volume * len(y)), abs=max(precision.error, 1e-3))


def test_standard_error_of_auc_is_the_spread_of_streams() -> None:
    aucs, errors = [], []
    for seed in range(60):
        z, y = made(0.05, 1.0, seed, n=2000)
        area, error = ranked(1 / (1 + np.exp(-z)), y).auc()
        aucs.append(area)
        errors.append(error)
    # The deviation of 60 streams has itself a relative error of 1/sqrt(2 * 59), 9 %.
    assert np.std(aucs, ddof=1) == pytest.approx(np.mean(errors), rel=0.3)


@pytest.mark.parametrize(("sign", "area"), [(1.0, 1.0), (-1.0, 0.0)])
def test_perfect_order_and_its_reverse(sign: float, area: float) -> None:
    y = np.repeat([0.0, 1.0], 50)
    p = 0.5 + sign * 0.4 * (y - 0.5)
    found = ranked(p, y)
    assert found.auc() == (area, 0.0)
    assert found.ks() == 1.0
    assert found.at(0.5)[0].value == area


def test_forecasts_that_are_all_alike_rank_by_chance() -> None:
    y = np.array([1.0] * 20 + [0.0] * 180)
    found = ranked(np.zeros(200), y)
    assert (found.auc().value, found.ks()) == (0.5, 0.0)
    recall, precision = found.at(0.05)
    assert (recall.value, precision.value) == pytest.approx((0.05, 0.1))


@pytest.mark.parametrize(("zeros", "ones"), [(0, 0), (5, 0), (0, 5)])
def test_one_outcome_alone_has_no_ranking(zeros: int, ones: int) -> None:
    found = Ranking([zeros, 0], [0, ones])
    assert math.isnan(found.auc().value)
    assert math.isnan(found.ks())
    assert math.isnan(found.at(0.02)[0].value) == (not ones)


@pytest.mark.parametrize(("hits", "n"), [(0, 6), (6, 6), (1, 40)])
def test_a_share_of_few_has_an_error_that_holds_a_likely_truth(hits: int, n: int) -> None:
    share = ranking.binomial(hits, n)
    assert share.value == hits / n
    assert 1.0 / (n + 2) < 2.0 * share.error < 0.5


def test_few_outcomes_have_no_error() -> None:
    assert math.isnan(Ranking([5, 0], [0, 1]).auc().error)


@given(st.lists(st.tuples(UNIT, st.sampled_from([0.0, 1.0])), max_size=40), st.integers(0, 40))
def test_rankings_of_parts_add_up(events: list[tuple[float, float]], cut: int) -> None:
    p, y = (np.array([event[column] for event in events]) for column in (0, 1))
    whole, parts = ranked(p, y), ranked(p[:cut], y[:cut]) + ranked(p[cut:], y[cut:])
    assert (parts.zeros, parts.ones) == (whole.zeros, whole.ones)


@given(UNIT)
def test_fine_cells_divide_the_coarse_ones(p: float) -> None:
    assert WITHIN[bisect_right(EDGES, p)] == bisect_right(COARSE, p)


def test_an_outcome_between_counts_as_the_nearer_one() -> None:
    scores, events = Scores(), [(0.2, 0.49), (0.2, 0.5), (0.7, 1.0), (0.7, 0.0)]
    for p, y in events:
        scores.observe(p, p, y)
    found = scores.ranking("calibrated")
    assert (sum(found.zeros), sum(found.ones)) == (2, 2)


@pytest.mark.parametrize("most", [0xFF, 0xFFFF_FFFF])
def test_a_count_grows_over_the_limit_of_its_width(most: int) -> None:
    last = 2 * FINE - 1
    counts = ranking.together(raised(ranking.nothing(), 0, 1), packed([0] * last + [most]))
    assert counts is not None
    counts = raised(counts, last, 1)
    again, _ = ranking.decode(ranking.encode(counts), 0)
    for found in (counts, again):
        assert (found[0], found[last], sum(found)) == (1, most + 1, most + 2)
    less = ranking.without(raised(counts, last, -1), raised(ranking.nothing(), 0, 1))
    assert less is not None
    assert list(less) == [0] * last + [most]


def test_an_event_that_is_not_counted_cannot_be_taken_out() -> None:
    for counts in (ranking.nothing(), array("I", [0] * 2 * FINE), array("Q", [0] * 2 * FINE)):
        with pytest.raises((ValueError, OverflowError)):
            raised(counts, 0, -1)


@pytest.mark.parametrize("most", [1, 255, 256, 2**32 - 1, 2**32, 2**63])
def test_counts_are_read_again_however_many_events_there_were(most: int) -> None:
    found = packed([*(n % 200 for n in range(2 * FINE - 1)), most])
    payload = ranking.encode(found)
    again, end = ranking.decode(payload, 0)
    assert (list(again), end) == (list(found), len(payload))


@pytest.mark.parametrize("counts", [bytearray, partial(array, "I"), partial(array, "Q")], ids=["1", "4", "8"])
def test_equal_counts_have_equal_bytes_however_wide_they_are_held(counts: Callable[[list[int]], Counts]) -> None:
    found = [n % 200 for n in range(2 * FINE)]
    assert ranking.encode(counts(found)) == ranking.encode(packed(found))
    assert ranking.encode(counts([0] * 2 * FINE)) == 2 * EMPTY


@pytest.mark.parametrize("payload", [b"", b"\0", b"\1\5", b"\1\5\3\1\1", b"\1\377\1\1", b"\5", b"\1\0\1\1"])
def test_damaged_counts_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="counts of cells there are not"):
        ranking.decode(payload, 0)
