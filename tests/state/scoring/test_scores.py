"""Scores as sums."""

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.scoring.cells import BANDS, EDGES, grain
from state.scoring.losses import LOG_CLIP, NAMES
from state.scoring.scores import SCORED, Kind, Scores

Event = tuple[float, float, float]
Drawn = tuple[float, float, float, float | None]  # raw, p, y, draw
UNIT = st.floats(0, 1)
EVENTS = st.lists(st.tuples(UNIT, UNIT, st.sampled_from([0.0, 1.0]) | UNIT), max_size=30)
DRAWN = st.lists(st.tuples(UNIT, UNIT, st.sampled_from([0.0, 1.0]) | UNIT, st.none() | UNIT), max_size=30)
KINDS: tuple[Kind, ...] = ("raw", "calibrated")
#: Sums hold forecasts to 2**-31, so that a mean is as near.
GRAIN = 1e-9


def scored(events: Sequence[tuple[Any, ...]]) -> Scores:
    scores = Scores()
    for event in events:
        scores.observe(*event)
    return scores


def views(scores: Scores) -> list[float]:
    simple = (scores.error, scores.noise, scores.smooth_ece, scores.brier, scores.log_loss)
    return [
        *(view(kind) for view in simple for kind in SCORED),
        *(scores.loss("misclassification", kind) for kind in SCORED),
        *(scores.regret(name) for name in NAMES),
    ]


def test_what_rounding_left_of_a_cell_without_events_goes() -> None:
    # As after ten million events: the sums of a cell were too large for single grains.
    scores = scored([(0.05, 0.05, 0.0, None)])
    for cell in [each for cells in scores._books for each in cells if each is not None]:
        cell.p, cell.pp = cell.p + 1e-7, cell.pp + 1e-7
    scores.observe(0.05, 0.05, 0.0, sign=-1)
    assert scores == Scores()
    assert Scores.decode(scores.encode()) == scores


@given(DRAWN)
def test_each_kind_is_scored_as_if_it_were_alone(events: list[Drawn]) -> None:
    scores = scored(events)
    for column, kind in enumerate(SCORED):
        alone = Scores()
        for raw, p, y, draw in events:
            forecast = (raw, p, p if draw is None else draw)[column]
            alone.observe(forecast, forecast, y)
        assert scores.cells(kind) == alone.cells("raw") == alone.cells("draw")
        ranking, other = scores.ranking(kind), alone.ranking("raw")
        assert (ranking.zeros, ranking.ones) == (other.zeros, other.ones)
        assert scores.log_loss(kind) == pytest.approx(alone.log_loss("raw"), nan_ok=True)


def test_a_draw_that_is_p_costs_nothing() -> None:
    events = [(t / 50, t / 60, float(t % 2)) for t in range(50)]
    plain, same = scored(events), scored([(raw, p, y, p) for raw, p, y in events])
    assert same.encode() == plain.encode()
    assert (same.drawn, same.kinds) == (0, ("raw", "calibrated"))
    assert same.cells("draw") == same.cells("calibrated")
    one = scored([(0.5, 0.5, 1.0, 0.25), (0.5, 0.5, 1.0, 0.5)])
    assert (one.drawn, one.kinds) == (1, SCORED)


@given(UNIT)
def test_a_number_is_summed_to_a_billionth(p: float) -> None:
    assert abs(grain(p) - p) <= 2**-31
    assert (grain(p) * 2**30).is_integer()


def test_views_match_their_definitions() -> None:
    rng = random.Random(5)
    events = [(rng.random(), rng.random(), float(rng.random() < 0.3)) for _ in range(400)]
    scores = scored(events)
    for column, kind in enumerate(KINDS):
        pairs = [(event[column], event[2]) for event in events]
        expected = {
            "brier": sum((p - y) ** 2 for p, y in pairs),
            "log": -sum(math.log(p if y else 1 - p) for p, y in pairs),
            "misclassification": sum((p >= 0.5) != y for p, y in pairs),
        }
        assert {name: 400 * scores.loss(name, kind) for name in NAMES} == pytest.approx(expected, abs=400 * 4 * GRAIN)
        ece = sum(abs(sum(p - y for p, y in pairs if int(p * 10) == k)) for k in range(10)) / 400
        assert scores.error(kind) == pytest.approx(ece, abs=GRAIN)
    for name in NAMES:
        raw, served = (400 * scores.loss(name, kind) for kind in KINDS)
        assert scores.regret(name) == pytest.approx(served - raw)


@given(EVENTS.filter(bool))
def test_smooth_ece_is_the_error_under_hats(events: list[Event]) -> None:
    scores = scored(events)
    for column, kind in enumerate(KINDS):
        error = 0.0
        for k in range(11):
            error += abs(sum(max(0.0, 1.0 - abs(10.0 * e[column] - k)) * (e[column] - e[2]) for e in events))
        assert scores.smooth_ece(kind) == pytest.approx(error / len(events), abs=60 * GRAIN)


@given(EVENTS.filter(bool), UNIT)
def test_smooth_ece_moves_by_at_most_21_nths_of_a_forecasts_move(events: list[Event], p: float) -> None:
    (was, served, y), *rest = events
    before, after = scored(events), scored([(p, served, y), *rest])
    moved = abs(after.smooth_ece("raw") - before.smooth_ece("raw"))
    assert moved <= 21 * abs(p - was) / len(events) + 120 * GRAIN


def test_noise_is_the_mean_ece_of_calibrated_forecasts() -> None:
    # Given the forecasts, an outcome moves the mean ECE of the 50 runs by at most 1/(50 * 2000), so by McDiarmid it is
    # within .0086 of its expectation but for once in a million; the normal approximation errs by less than .001.
    rng = random.Random(11)
    runs = [scored([(p := rng.random(), p, float(rng.random() < p)) for _ in range(2000)]) for _ in range(50)]
    assert sum(run.error("raw") for run in runs) / 50 == pytest.approx(
        sum(run.noise("raw") for run in runs) / 50, abs=0.0086 + 0.001
    )


@given(UNIT)
def test_bands_divide_the_first_bin(p: float) -> None:
    scores = scored([(p, p, 1.0)])
    assert sum(each.n for each in scores.bands("raw")) == scores.bins("raw")[0].n == (p < 0.1)
    edges = itertools.pairwise((0.0, *BANDS, 0.1))
    for (left, right), each in zip(edges, scores.bands("raw"), strict=True):
        assert each.n == (left <= p < right)


def test_relative_error_sees_what_ece_does_not() -> None:
    # 1 in 1,000 happens; the forecast says 3 in 1,000.
    scores = scored([(0.003, 0.001, float(t % 1000 == 0)) for t in range(10_000)])
    assert scores.error("raw") == pytest.approx(0.002)
    assert scores.relative_error("raw") == scores.relative_bias("raw") == pytest.approx(2.0, abs=1e-5)
    assert scores.relative_error("calibrated") == pytest.approx(0.0, abs=1e-5)
    assert math.isnan(scored([(0.01, 0.5, 0.0)]).relative_error("raw"))


@pytest.mark.parametrize(("served", "bias"), [(0.0, -1.0), (0.002, -0.5), (0.004, 0.0), (0.006, 0.5)])
def test_relative_bias_says_how_far_the_mean_is_off(served: float, bias: float) -> None:
    scores = scored([(0.1, served, float(t % 250 == 0)) for t in range(10_000)])
    assert scores.relative_bias("calibrated") == pytest.approx(bias, abs=1e-5)
    # 40 outcomes are off by sqrt(2 / pi) / sqrt(40) of their number by chance, whatever was served.
    assert scores.relative_bias_noise("calibrated") == pytest.approx(0.126, rel=0.25)


def test_relative_noise_is_the_mean_relative_error_of_calibrated_forecasts() -> None:
    rng = random.Random(12)
    runs = [scored([(p := rng.random() ** 8, p, float(rng.random() < p)) for _ in range(2000)]) for _ in range(50)]
    errors, noises = ([view(run, "raw") for run in runs] for view in (Scores.relative_error, Scores.relative_noise))
    assert sum(errors) == pytest.approx(sum(noises), rel=0.15)
    # Forecasts that tell events apart leave less to chance than the rate alone, which is what the bias is held to.
    biases, bounds = (
        [abs(view(run, "raw")) for run in runs] for view in (Scores.relative_bias, Scores.relative_bias_noise)
    )
    assert 0.5 * sum(bounds) < sum(biases) < sum(bounds)


def test_certainty_falls_into_the_last_bin_and_costs_a_finite_loss() -> None:
    scores = scored([(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)])
    assert [each.n for each in scores.bins("raw")] == [1, *[0] * 8, 1]
    assert scores.log_loss("raw") == pytest.approx(-math.log(LOG_CLIP) / 2, rel=1e-6)


def test_views_of_no_events_are_nan() -> None:
    empty = Scores.zero()
    relative = (empty.relative_error, empty.relative_noise, empty.relative_bias, empty.relative_bias_noise)
    assert all(math.isnan(view(kind)) for view in relative for kind in SCORED)
    assert all(math.isnan(view) for view in views(Scores.zero())[:-3])
    assert views(Scores.zero())[-3:] == [0.0, 0.0, 0.0]
    assert Scores.zero().n == 0


def test_bytes_are_bounded() -> None:
    # A window: every fine cell has both outcomes, and some cells more than 255.
    everywhere = [(p, y) for p in (0.0, *EDGES) for y in (0.0, 1.0)]
    dense = [(p, y) for p in (0.0, EDGES[-1]) for y in (0.0, 1.0) for _ in range(256)]
    plain: list[Drawn] = [(p, p, y, p) for p, y in everywhere + dense]
    drawn: list[Drawn] = [(p, p, y, math.nextafter(p, 1.0)) for p, y in everywhere + dense]
    assert len(scored(plain).encode()) == 1554 + 2 * 974
    assert len(scored(plain + drawn).encode()) == 3090 + 4 * 974
    rng = random.Random(2)
    usual = scored(
        [(rng.betavariate(0.5, 20), p := rng.betavariate(0.5, 50), float(rng.random() < p), p) for _ in range(4999)]
    )
    assert len(usual.encode()) < 1600
