"""Tallies of windows: errors as the scores of all events have them, exact sums, and atoms that raise no alarm."""

import math
import random
import struct

import pytest

from state.forecasts import Classwise, Normal, Probs, Quantiles
from state.scoring.alarm import log_level_bet, log_mean_bet
from state.scoring.class_scores import ClassScores
from state.scoring.quantile_scores import QuantileScores
from state.scoring.tallies import LevelTally, TopTally
from state.scoring.windows import KINDS

LEVELS = (0.1, 0.5, 0.9)
NORMAL = Normal(0.0, 1.0)
RAW = tuple(map(NORMAL.ppf, LEVELS))
#: A third of the outcomes, 0, equals the two lower quantiles.
RAIN = (0.0, 0.0, 2.0)


def outcomes(n: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [max(rng.gauss(0.5, 1.5), 0.0) for _ in range(n)]


def probs(rng: random.Random) -> Probs:
    drawn = [rng.random() ** 3 for _ in range(3)]
    return Probs([each / sum(drawn) for each in drawn])


def levels(n: int = 300, seed: int = 1) -> LevelTally:
    tally = LevelTally(LEVELS)
    for y in outcomes(n, seed):
        tally.observe(RAW, RAIN, y)
    return tally


def test_the_error_of_levels_is_that_of_the_scores() -> None:
    scores, tally = QuantileScores(LEVELS), levels()
    for y in outcomes(300, 1):
        scores.observe(NORMAL, Quantiles(LEVELS, RAIN), y)
    for kind in KINDS:
        assert tally.error(kind) == pytest.approx(scores.error(kind))
        shares = [count / tally.n for level in tally.coverage(kind) for count in level]
        assert shares == pytest.approx([share for level in scores.coverage(kind) for share in level])


def test_the_error_of_the_likeliest_class_is_that_of_the_scores() -> None:
    rng, scores, tally = random.Random(2), ClassScores(3), TopTally()
    for _ in range(500):
        raw, served, y = probs(rng), Classwise(probs(rng)), rng.randrange(3)
        scores.observe(raw, served, y)
        tally.observe(raw, served, y)
    for kind in KINDS:
        assert tally.error(kind) == scores.error(kind)


def test_where_no_outcome_equals_a_quantile_the_bet_on_a_level_is_that_on_a_cell() -> None:
    assert log_level_bet(-3.5, -3.5, 20.0) == log_mean_bet(-3.5, 20.0)


def test_an_atom_raises_no_alarm() -> None:
    """95 % of the outcomes are 0, as the forecast says: they lie at or below its quantiles, and not below."""
    rng, tally, law = random.Random(5), LevelTally(LEVELS), (0.0, 0.0, 0.0)
    for _ in range(2000):
        tally.observe(law, law, 0.0 if rng.random() < 0.95 else 1.0)
    assert tally.error("raw") == 0.0
    assert tally.log_wealth("raw") < 0.0


@pytest.mark.parametrize("off", [-0.5, 0.5])
def test_quantiles_that_are_too_low_or_too_high_are_found(off: float) -> None:
    rng, tally = random.Random(6), LevelTally(LEVELS)
    for _ in range(500):
        tally.observe(RAW, [value + off for value in RAW], rng.gauss(0.0, 1.0))
    assert tally.log_wealth("raw") < math.log(20) < math.log(1000) < tally.log_wealth("calibrated")


def test_without_events_there_is_no_evidence_and_no_error() -> None:
    for tally in (LevelTally(LEVELS), TopTally()):
        assert tally.log_wealth("raw") == 0.0
        assert math.isnan(tally.error("raw"))
        assert math.isnan(tally.noise("raw"))


def test_bins_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="has bins that there are not"):
        TopTally().decode(struct.pack("<I", 1 << 20), 0)
