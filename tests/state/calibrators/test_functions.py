"""Test functions of the answer: their values, their fixed points, their growth."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.arrays import Floats
from state.calibrators.base import MAX_FEATURES
from state.calibrators.functions import MOST, Functions, Growing, Hats, Linear, Polynomial, crossing, line_meets_answer

UNIT = st.floats(0, 1)
WEIGHT = st.floats(-5, 5)


def grown(levels: int, features: int = 0) -> Growing:
    family = Growing(levels, features, features + 3)
    family.grow([8.0**levels] * (features + 1))
    return family


def clip(v: float) -> float:
    return min(max(v, 0.0), 1.0)


def values(family: Functions, answer: float, x: tuple[float, ...] = ()) -> Floats:
    tail = np.full(family.count, np.nan)
    family.fill(tail, answer, x)
    return tail


FAMILIES: list[tuple[str, Functions, int]] = [
    ("linear", Linear(), 0),
    ("polynomial of degree 2", Polynomial(2), 0),
    ("polynomial of degree 8", Polynomial(8), 0),
    ("one cell", Hats(1), 0),
    ("seven cells", Hats(7), 0),
    ("not grown yet", Growing(4, 0, 3), 0),
    ("grown", grown(4), 0),
    ("not grown yet for features", Growing(4, 2, 5), 2),
    ("grown for features", grown(3, 2), 2),
]


@pytest.mark.parametrize(("family", "d"), [each[1:] for each in FAMILIES], ids=[each[0] for each in FAMILIES])
def test_what_is_served_is_a_fixed_point(family: Functions, d: int) -> None:
    @settings(deadline=None, derandomize=True, max_examples=150)
    @given(st.integers(0, 2**32 - 1), WEIGHT, WEIGHT, UNIT, st.sampled_from([0.1, 1.0, 50.0]))
    def holds(seed: int, s: float, slope: float, p: float, scale: float) -> None:
        rng = random.Random(seed)
        weights = [rng.gauss(0, scale) for _ in range(family.count)]
        x = tuple(rng.choice([0.0, 1.0, rng.uniform(-1, 1)]) for _ in range(d))
        answer = family.fixed_point(s, slope, weights, p, x)
        assert 0.0 <= answer <= 1.0
        again = clip(s + slope * answer + math.fsum(map(float.__mul__, weights, values(family, answer, x).tolist())))
        assert again == pytest.approx(answer, abs=1e-12 * (1 + scale) * (1 + family.count) ** 2)

    holds()


@pytest.mark.parametrize(
    ("slope", "s", "p", "fixed"),
    [
        (0.5, -0.1, 0.9, 0.0),
        (0.5, 0.2, 0.9, 0.4),
        (0.5, 0.6, 0.1, 1.0),
        (3.0, 0.1, 0.0, 1.0),  # slope > 1: clip(s / slack) would be 0
        (3.0, -2.5, 1.0, 0.0),  # and here 1
        (3.0, -1.0, 0.1, 0.0),  # three fixed points, 0, .5 and 1: the nearest to the forecast
        (3.0, -1.0, 0.6, 0.5),
        (3.0, -1.0, 0.8, 1.0),
        (3.0, 0.0, 0.9, 1.0),
        (1.0, 0.0, 0.37, 0.37),  # every point is fixed
        (1.0, 0.1, 0.37, 1.0),
        (1.0, -0.1, 0.37, 0.0),
    ],
)
def test_line_meets_answer_in_every_case(slope: float, s: float, p: float, fixed: float) -> None:
    assert line_meets_answer(s, slope, p) == pytest.approx(fixed)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_crossing_is_found_where_the_line_has_its_own(p: float) -> None:
    for s, slope in ((0.1, 0.5), (-0.3, 0.5), (0.9, 0.5), (1.2, -1.0), (-0.1, 1.0), (0.1, 1.0), (0.0, 1.0)):
        knots = [s + slope * k / 5 for k in range(6)]
        assert crossing(knots.__getitem__, 5, p) == pytest.approx(line_meets_answer(s, slope, p), abs=1e-15)


def test_crossing_beside_the_forecast_is_preferred() -> None:
    zigzag = [0.5, -0.5, 1.5, -0.5, 1.5, 0.5]  # meets the diagonal once in each cell
    found = [crossing(zigzag.__getitem__, 5, (cell + 0.5) / 5) for cell in range(5)]
    assert [int(5 * y) for y in found] == [0, 1, 2, 3, 4]


@settings(deadline=None, derandomize=True)
@given(UNIT)
def test_values_stay_within_the_interval_the_bounds_need(answer: float) -> None:
    for _, family, d in FAMILIES:
        tail = values(family, answer, (-1.0,) * d)
        assert np.all(np.abs(tail) <= 1.0)


@settings(deadline=None, derandomize=True)
@given(UNIT)
def test_hats_share_one_and_average_to_the_answer(answer: float) -> None:
    tail = values(Hats(7), answer)
    assert np.all(tail >= 0.0)
    assert np.count_nonzero(tail) <= 2
    assert tail.sum() == pytest.approx(1.0)
    assert tail @ np.arange(8) / 7 == pytest.approx(answer, abs=1e-15)


def lipschitz(levels: int, seed: int) -> tuple[Floats, Floats]:
    """Return the values at the knots of a 1-Lipschitz function within [-1, 1], and its weights of (1, ŷ, φ)."""
    rng = np.random.default_rng(seed)
    cells = 2**levels
    w = np.clip(rng.uniform(-1, 1) + np.cumsum(np.r_[0.0, rng.choice([-1.0, 1.0], cells) / cells]), -1, 1)
    weights = [w[0], w[-1] - w[0]]
    for level in range(1, levels + 1):
        step = cells >> level
        weights += [w[i] - (w[i - step] + w[i + step]) / 2 for i in range(step, cells, 2 * step)]
    return w, np.array(weights)


@settings(deadline=None, derandomize=True)
@given(UNIT, st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_growing_family_spans_what_is_linear_between_its_knots(answer: float, levels: int, seed: int) -> None:
    w, weights = lipschitz(levels, seed)
    f = np.r_[1.0, answer, values(grown(levels), answer)]
    assert f @ weights == pytest.approx(np.interp(answer, np.linspace(0, 1, 2**levels + 1), w), abs=1e-12)


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_lipschitz_weights_are_as_small_as_the_bound_takes_them(levels: int, seed: int) -> None:
    _, weights = lipschitz(levels, seed)
    assert weights @ weights <= Growing.norm


def test_growing_family_measures_what_hats_on_its_mesh_do() -> None:
    rng = np.random.default_rng(5)
    answers, errors = rng.random(300), rng.normal(size=300)
    coarse, fine = Hats(8), grown(3)
    nodal = sum(e * values(coarse, y) for y, e in zip(answers, errors, strict=True))
    hats = sum(e * values(fine, y) for y, e in zip(answers, errors, strict=True))
    bias = np.array([errors.sum(), errors @ answers])
    assert fine.error(bias, hats) == pytest.approx(coarse.error(bias, nodal))


def test_level_comes_when_its_source_is_long_enough() -> None:
    family = Growing(5, 1, 4)
    assert family.grow([1.0, 0.0]) == 0
    assert family.grow([8.0, 1.0]) == 2
    assert family.blocks == [(0, 1), (1, 0)]
    assert family.grow([4095.0, 7.9]) == 2 + 4
    assert family.grow([4096.0, 8.0]) == 8 + 1
    assert family.levels == [4, 1]
    assert family.grow([1e9, 8.0]) == 16  # the finest
    assert family.grow([1e99, 8.0]) == 0


def test_growth_for_features_ends_where_the_regression_is_large_enough() -> None:
    for d in (20, MAX_FEATURES):
        family = Growing(5, d, d + 3)
        family.grow([8.0] + [1e9] * d)
        assert family.levels[0] == 1
        family.grow([1e9] * (d + 1))
        assert family.levels[0] == 5  # the whole sequence's share was kept free
        assert MOST - 16 < d + 3 + family.count <= MOST
        assert family.grow([1e9] * (d + 1)) == 0


def test_growth_is_told_again_by_its_blocks() -> None:
    family = Growing(4, 2, 5)
    for lengths in ([1.0, 1.0, 0.0], [70.0, 1.0, 9.0], [600.0, 500.0, 9.0]):
        family.grow(lengths)
    again = family.regrown(bytes(byte for block in family.blocks for byte in block))
    assert (again.blocks, again.levels, again.count) == (family.blocks, family.levels, family.count)


@pytest.mark.parametrize("blocks", [b"\0\2", b"\0\1\0\1", b"\3\0", b"\1\0\1\1\1\2\1\3\1\4\1\5"])
def test_blocks_that_do_not_grow_so_are_refused(blocks: bytes) -> None:
    with pytest.raises(ValueError, match="state of other options"):
        Growing(4, 2, 5).regrown(blocks)


@pytest.mark.parametrize(("family", "d"), [each[1:] for each in FAMILIES], ids=[each[0] for each in FAMILIES])
def test_every_function_has_a_name_of_its_own(family: Functions, d: int) -> None:
    names = family.names(["vip", "night"][:d])
    assert len(set(names)) == len(names) == family.count
