"""Scores of quantile forecasts as sums."""

import math
import random

import pytest

from state.forecasts import Normal, Quantiles
from state.scoring.quantile_scores import PIT_BINS, QuantileScores
from state.scoring.scores import Kind

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
Event = tuple[Normal, Quantiles, float, bytes]


def scored(events: list[Event]) -> QuantileScores:
    scores = QuantileScores(LEVELS)
    for raw, served, y, key in events:
        scores.observe(raw, served, y, key)
    return scores


def test_views_match_their_definitions() -> None:
    rng = random.Random(5)
    served = Quantiles(LEVELS, (-1.0, 0.0, 0.0, 1.0, 2.0))
    raw = Normal(0.0, 1.0)
    ys = [float(rng.randint(-2, 3)) for _ in range(300)]
    scores = scored([(raw, served, y, b"") for y in ys])
    for kind, values in (("raw", tuple(map(raw.ppf, LEVELS))), ("calibrated", served.values)):
        below = [sum(y < q for y in ys) / 300 for q in values]
        upto = [sum(y <= q for y in ys) / 300 for q in values]
        loss = [sum(max(p * (y - q), (p - 1) * (y - q)) for y in ys) / 300 for p, q in zip(LEVELS, values, strict=True)]
        off = [max(b - p, p - u, 0) for p, b, u in zip(LEVELS, below, upto, strict=True)]
        assert scores.coverage(kind) == list(zip(below, upto, strict=True))  # type: ignore[arg-type]  # a literal in a tuple of str
        assert scores.pinball(kind) == pytest.approx(loss)  # type: ignore[arg-type]  # the same
        assert scores.error(kind) == max(off)  # type: ignore[arg-type]  # the same
    assert scores.widths("calibrated") == [3.0, 1.0]
    assert scores.width("calibrated", 0.8) == 3.0
    assert scores.width("calibrated", 0.5) == 1.0
    assert scores.width("raw", 0.6) == pytest.approx(2 * 1.2815515655)
    with pytest.raises(ValueError, match="no central interval of"):
        scores.width("raw", 0.95)


def test_transform_of_a_calibrated_forecast_is_uniform_and_that_of_an_overconfident_one_is_not() -> None:
    """Twenty bins, 19 degrees of freedom: above 74 with probability below 1e-8."""
    rng, n = random.Random(6), 4000
    served = Quantiles((0.1, 0.5, 0.9), (0.0, 0.0, 4.0))  # half of the mass at 0, drawn; exponential beyond 4
    scores = QuantileScores(served.levels)
    for t in range(n):
        scores.observe(Normal(1.0, 0.5), served, served.ppf(rng.random()), b"%d" % t)

    def chi2(kind: Kind) -> float:
        return sum((count - n / PIT_BINS) ** 2 / (n / PIT_BINS) for count in scores.pit(kind))

    assert chi2("calibrated") < 74 < chi2("raw")


def test_views_of_no_events_are_nan() -> None:
    scores = QuantileScores(LEVELS)
    assert scores.n == 0
    assert all(map(math.isnan, [scores.error("raw"), *scores.pinball("raw"), *scores.widths("calibrated")]))


def test_other_levels_are_refused() -> None:
    scores = QuantileScores(LEVELS)
    with pytest.raises(ValueError, match="cannot take quantiles"):
        scores.observe(Normal(0.0, 1.0), Quantiles((0.1, 0.9), (0.0, 1.0)), 0.0)
    with pytest.raises(ValueError, match="have no sum"):
        scores + QuantileScores((0.1, 0.9))
