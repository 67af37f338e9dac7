"""The whole law after recalibration."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.calibrators.quantile import chain
from state.calibrators.recalibrated import Recalibrated
from state.forecasts import Law, Normal, Quantiles

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
LAWS: list[Law] = [Normal(1.0, 2.0), Quantiles((0.2, 0.4, 0.6, 0.8), (0.0, 0.0, 1.0, 3.0))]
PLAYS = st.lists(st.floats(-0.2, 1.2), min_size=5, max_size=5).map(lambda s: chain(s, 2))
UNIT = st.floats(0, 1)


@given(st.sampled_from(LAWS), PLAYS)
def test_served_levels_have_the_quantiles_played(law: Law, play: tuple[float, ...]) -> None:
    whole = Recalibrated(law, LEVELS, play)
    for level, v in zip(LEVELS, play, strict=True):
        assert whole.ppf(level) == pytest.approx(law.ppf(min(max(v, 0.0), 1.0)))


@given(st.sampled_from(LAWS), PLAYS, UNIT, UNIT)
def test_quantiles_never_decrease(law: Law, play: tuple[float, ...], a: float, b: float) -> None:
    whole = Recalibrated(law, LEVELS, play)
    low, high = whole.ppf(min(a, b)), whole.ppf(max(a, b))
    assert low <= high or low == pytest.approx(high)


@given(st.sampled_from(LAWS), PLAYS, st.floats(-10, 10), st.floats(-10, 10))
def test_cdf_is_monotone(law: Law, play: tuple[float, ...], y: float, z: float) -> None:
    whole = Recalibrated(law, LEVELS, play, -8.0, 8.0)
    y, z = min(y, z), max(y, z)
    below, at = whole.cdf(y)
    assert 0.0 <= below <= at <= 1.0
    if y < z:
        assert at <= whole.cdf(z)[0] + 1e-12


@given(st.sampled_from(LAWS), PLAYS, st.floats(0.001, 0.999))
def test_cdf_inverts_quantiles(law: Law, play: tuple[float, ...], level: float) -> None:
    whole = Recalibrated(law, LEVELS, play, -50.0, 50.0)
    value = whole.ppf(level)
    step = 1e-7 * (1.0 + abs(value))  # rounding may land on the other side of an atom
    assert whole.cdf(value - step)[0] - 1e-6 <= level <= whole.cdf(value + step)[1] + 1e-6


@pytest.mark.parametrize("law", LAWS)
def test_the_identity_changes_nothing(law: Law) -> None:
    whole = Recalibrated(law, LEVELS, LEVELS)
    assert whole.mean() == pytest.approx(law.integral(0.0, 1.0))
    assert whole.interval(0.8) == pytest.approx((law.ppf(0.1), law.ppf(0.9)))
    for y in (-1.0, 0.0, 0.7, 5.0):
        assert whole.cdf(y) == pytest.approx(law.cdf(y))


def test_flat_map_makes_an_atom() -> None:
    whole = Recalibrated(Normal(0.0, 1.0), (0.25, 0.75), (0.5, 0.5))
    assert whole.cdf(0.0) == pytest.approx((0.25, 0.75))
    assert whole.ppf(0.4) == pytest.approx(0.0)


@given(st.sampled_from(LAWS), PLAYS, st.floats(-5, 0), st.floats(0.5, 5))
@example(LAWS[0], (0.0, 0.0, 0.0, 0.0, 5e-324), -1.0, 1.0)
def test_mean_is_that_of_the_quantiles(law: Law, play: tuple[float, ...], low: float, high: float) -> None:
    whole = Recalibrated(law, LEVELS, play, low, high)
    n = 500
    numeric = math.fsum(whole.ppf((k + 0.5) / n) for k in range(n)) / n
    # The midpoint rule on a monotone function errs by less than half a cell of its span.
    assert abs(whole.mean() - numeric) <= (high - low) / n


def test_mean_without_a_range_is_infinite_where_mass_is_at_infinity() -> None:
    assert Recalibrated(Normal(0.0, 1.0), (0.25, 0.75), (-0.1, 0.75)).mean() == -math.inf


@pytest.mark.parametrize("level", [-0.1, 1.1, math.nan])
def test_level_out_of_range_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level must be"):
        Recalibrated(Normal(0.0, 1.0), LEVELS, LEVELS).ppf(level)
