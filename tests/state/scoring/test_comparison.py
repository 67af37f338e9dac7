"""A challenger beside a champion."""

import math
import random
from statistics import fmean, stdev

import pytest

from state.scoring.comparison import LOSSES, ComparedLoss, Comparison
from state.scoring.losses import log

RNG = random.Random(5)
EVENTS = [(RNG.random(), RNG.random(), float(RNG.random() < 0.3)) for _ in range(500)]


def compared(events: list[tuple[float, float, float]]) -> Comparison:
    comparison = Comparison()
    for champion, challenger, y in events:
        comparison.observe(champion, challenger, y, challenger)
    return comparison


@pytest.mark.parametrize("loss", LOSSES)
def test_difference_is_the_mean_of_the_events_differences_with_its_standard_error(loss: ComparedLoss) -> None:
    cost = log if loss == "log" else lambda p, y: (p - y) ** 2
    differences = [cost(challenger, y) - cost(champion, y) for champion, challenger, y in EVENTS]
    mean, error = compared(EVENTS).difference(loss)
    assert mean == pytest.approx(fmean(differences))
    assert error == pytest.approx(stdev(differences) / math.sqrt(len(differences)))


def test_what_a_challenger_draws_is_scored_beside_what_it_serves() -> None:
    comparison = Comparison()
    for champion, challenger, y in EVENTS:
        comparison.observe(champion, challenger, y, 1.0 - challenger)
    drawn = fmean((1.0 - challenger - y) ** 2 for _, challenger, y in EVENTS)
    assert comparison.scores.brier("draw") == pytest.approx(drawn)
    assert comparison.difference("brier") == pytest.approx(compared(EVENTS).difference("brier"))


def test_equal_forecasts_differ_by_nothing() -> None:
    same = compared([(p, p, y) for p, _, y in EVENTS])
    assert same.difference("log") == (0.0, 0.0)
    assert same.difference("brier") == pytest.approx((0.0, 0.0))


def test_few_events_have_no_error() -> None:
    assert all(math.isnan(value) for value in Comparison().difference("brier"))
    one = compared(EVENTS[:1]).difference("brier")
    assert not math.isnan(one.mean)
    assert math.isnan(one.error)
