"""Forecasts as values: what they promise, what they refuse, and their bytes."""

import math
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.forecasts import (
    LARGEST,
    MAX_CLASSES,
    MAX_LEVELS,
    Classwise,
    ForecastValue,
    Law,
    Normal,
    Probs,
    Quantiles,
    decode,
    decode_law,
    encode,
)

REAL = st.floats(-1e6, 1e6)
LEVELS = st.lists(st.integers(1, 999), min_size=2, max_size=9, unique=True).map(
    lambda levels: tuple(level / 1000 for level in sorted(levels))
)


@st.composite
def quantiles(draw: st.DrawFn) -> Quantiles:
    levels = draw(LEVELS)
    # Few distinct values, so that atoms are common, at the edges too.
    values = draw(st.lists(st.integers(-3, 3) | REAL, min_size=len(levels), max_size=len(levels)))
    return Quantiles(levels, tuple(map(float, sorted(values))))


NORMALS = st.builds(Normal, REAL, st.floats(1e-3, 1e6))
LAWS: st.SearchStrategy[Law] = NORMALS | quantiles()
UNIT = st.floats(0, 1)
FORECASTS: st.SearchStrategy[ForecastValue] = (
    UNIT
    | LAWS
    | st.lists(UNIT, min_size=2, max_size=9).map(Classwise)
    | st.lists(UNIT, min_size=2, max_size=9).map(lambda p: Classwise(p).normalised())
)


@given(FORECASTS)
def test_bytes_give_back_the_same_forecast(forecast: ForecastValue) -> None:
    again = decode(encode(forecast))
    assert again == forecast
    assert type(again) is type(forecast)


@given(FORECASTS)
def test_damaged_bytes_are_refused(forecast: ForecastValue) -> None:
    payload = encode(forecast)
    for damaged in (b"", payload[:-1], payload + b"\0", b"\0" + payload[1:], b"\x06" + payload[1:], payload[:1]):
        with pytest.raises(ValueError, match="kind"):
            decode(damaged)


@given(FORECASTS)
def test_bytes_of_what_is_no_number_are_refused(forecast: ForecastValue) -> None:
    with pytest.raises(ValueError, match="must"):
        decode(encode(forecast)[:-8] + struct.pack("<d", math.nan))


def test_only_a_law_is_decoded_as_a_law() -> None:
    assert decode_law(encode(Normal(0.0, 1.0))) == Normal(0.0, 1.0)
    with pytest.raises(ValueError, match="got kind 1"):
        decode_law(encode(0.5))


@pytest.mark.parametrize(
    ("levels", "values", "says"),
    [
        ((0.5,), (1.0,), f"2 to {MAX_LEVELS} levels, got 1"),
        ((0.1, 0.9), (1.0,), "one value a level, got 1 for 2"),
        ((0.1, 0.1), (1.0, 2.0), "increase strictly"),
        ((0.0, 0.5), (1.0, 2.0), "increase strictly"),
        ((0.5, 1.0), (1.0, 2.0), "increase strictly"),
        ((0.1, math.nan), (1.0, 2.0), "increase strictly"),
        ((0.1, 0.9), (2.0, 1.0), "never decrease"),
        ((0.1, 0.9), (1.0, math.inf), "never decrease"),
        ((0.1, 0.9), (-math.inf, 1.0), "never decrease"),
        ((0.1, 0.9), (math.nan, 1.0), "never decrease"),
    ],
)
def test_wrong_quantiles_are_refused(levels: tuple[float, ...], values: tuple[float, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Quantiles(levels, values)


@pytest.mark.parametrize(("mean", "std"), [(math.nan, 1), (math.inf, 1), (0, 0), (0, -1), (0, math.nan), (0, math.inf)])
def test_wrong_normal_laws_are_refused(mean: float, std: float) -> None:
    with pytest.raises(ValueError, match=r"mean must be|std must be"):
        Normal(mean, std)


@pytest.mark.parametrize(
    "values", [(), (1.0,), (0.5, 0.4), (0.5, 0.6), (-0.5, 1.5), (math.nan, 1.0), [1 / 1001] * (MAX_CLASSES + 1)]
)
def test_wrong_probs_are_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must"):
        Probs(values)


def test_probs_may_be_off_by_single_precision() -> None:
    assert len(Probs([0.1 + 5e-10] * 10)) == 10


@given(st.lists(UNIT | st.sampled_from([0.0, 5e-324]), min_size=2, max_size=9).map(Classwise))
def test_normalised_is_a_distribution(p: Classwise) -> None:
    assert math.fsum(p.normalised()) == pytest.approx(1.0, abs=1e-12)


@given(LAWS, REAL, REAL)
def test_cdf_is_monotone(law: Law, y: float, z: float) -> None:
    y, z = min(y, z), max(y, z)
    below, at = law.cdf(y)
    assert 0.0 <= below <= at <= 1.0
    if y < z:
        assert at <= law.cdf(z)[0] + 1e-15


@given(LAWS, UNIT, UNIT)
def test_ppf_is_monotone(law: Law, level: float, other: float) -> None:
    low, high = law.ppf(min(level, other)), law.ppf(max(level, other))
    assert low <= high + 1e-12 * (1.0 + abs(high) if math.isfinite(high) else 0.0)


@given(LAWS, st.floats(1e-6, 1 - 1e-6))
def test_ppf_inverts_cdf(law: Law, level: float) -> None:
    below, at = law.cdf(law.ppf(level))
    # A step of one float in y is a step in probability where a law is narrow for its distance from 0.
    slack = 1e-9 + max(law.cdf(math.nextafter(law.ppf(level), math.inf))[1] - below, 0.0)
    assert below - slack <= level <= at + slack


@given(quantiles())
def test_given_quantiles_are_kept(law: Quantiles) -> None:
    for level, value in zip(law.levels, law.values, strict=True):
        assert law.ppf(level) == value
        below, at = law.cdf(value)
        assert below <= level <= at


def test_atom_holds_the_mass_between_its_levels() -> None:
    law = Quantiles((0.1, 0.3, 0.6, 0.9), (0.0, 1.0, 1.0, 2.0))
    assert law.cdf(1.0) == (0.3, 0.6)
    assert law.ppf(0.45) == 1.0
    assert law.cdf(math.nextafter(1.0, 2.0))[0] == pytest.approx(0.6)


def test_outermost_atom_ends_the_support() -> None:
    law = Quantiles((0.25, 0.5, 0.75), (0.0, 0.0, 0.0))
    assert law.cdf(0.0) == (0.0, 1.0)
    assert law.cdf(-1e-9) == (0.0, 0.0)
    assert law.cdf(1e-9) == (1.0, 1.0)
    assert (law.ppf(0.0), law.ppf(1.0)) == (0.0, 0.0)


def test_tail_continues_the_density() -> None:
    law, step = Quantiles((0.2, 0.5, 0.9), (1.0, 2.0, 3.0)), 1e-6
    for value in (1.0, 3.0):
        inside, outside = sorted((value + step, value - step), key=lambda y: abs(y - 2.0))
        at = law.cdf(value)[0]
        assert abs(at - law.cdf(inside)[0]) == pytest.approx(abs(at - law.cdf(outside)[0]), rel=1e-5)
    assert law.ppf(0.0) == -math.inf
    assert law.ppf(1.0) == math.inf


@pytest.mark.parametrize("law", [Normal(0.0, 1.0), Quantiles((0.1, 0.9), (0.0, 1.0))])
@pytest.mark.parametrize("level", [-0.1, 1.1, math.nan])
def test_level_out_of_range_is_refused(law: Law, level: float) -> None:
    with pytest.raises(ValueError, match="level must be"):
        law.ppf(level)


def test_extremes_stay_finite() -> None:
    widest = Quantiles((1e-9, 1 - 1e-9), (-LARGEST, LARGEST))
    for y in (-1e308, 0.0, 1e308):
        for law in (widest, Normal(LARGEST, LARGEST), Normal(0.0, 1 / LARGEST)):
            assert all(0.0 <= at <= 1.0 for at in law.cdf(y))


@given(st.lists(st.sampled_from([0.0, 1.0, 5e-324]) | st.floats(0.0, 1.0), min_size=2, max_size=20))
def test_normalised_keeps_the_order_of_classes(values: list[float]) -> None:
    served = Classwise(values)
    whole = served.normalised()
    order = sorted(range(len(values)), key=values.__getitem__)
    assert all(whole[one] <= whole[other] + 1e-15 for one, other in pairwise(order))
    assert whole.normalised() is whole
    assert served[served.argmax()] == max(served)


@given(st.lists(st.floats(0.001, 0.999), min_size=2, max_size=20))
def test_normalised_moves_all_log_odds_by_one_constant(values: list[float]) -> None:
    whole = Classwise(values).normalised()
    moved = [math.log(q / (1.0 - q)) - math.log(p / (1.0 - p)) for p, q in zip(values, whole, strict=True)]
    assert max(moved) - min(moved) < 1e-6
