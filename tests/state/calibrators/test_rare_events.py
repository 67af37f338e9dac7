"""What the grid decides where events are rare, and what the ranking loses."""

import math
import random
from functools import cache
from typing import Any

import pytest

from state.calibrators import make
from state.calibrators.curve import Monotone

T = 30_000
BANDS = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01)
#: Mean log-odds that give each base rate.
CENTRES = {0.002: -7.0, 0.01: -5.35, 0.05: -3.6, 0.5: 0.0}


@cache
def stream(rate: float) -> tuple[tuple[float, float], ...]:
    """Overconfident forecasts of events of this base rate."""
    rng = random.Random(7)
    events = []
    for _ in range(T):
        z = rng.gauss(CENTRES[rate], 1.3)
        y = float(rng.random() < 1 / (1 + math.exp(-z)))
        events.append((1 / (1 + math.exp(-1.6 * z - 0.8 - 0.3 * rng.gauss(0, 1))), y))
    return tuple(events)


def relative_error(rate: float, spec: str = "platt+minimax", **options: Any) -> float:
    """Return Σ |Σp - Σy| / Σ max(Σp, Σy) over bands of answers below .01: 0 is calibrated, 1 is all wrong."""
    calibrator = make(spec, seed=3, **options)
    sums = {band: [0.0, 0.0] for band in BANDS}
    for t, (raw, y) in enumerate(stream(rate)):
        _, p, ticket = calibrator.predict(raw, (), b"%d" % t)
        calibrator.update(ticket, y)
        if p < 0.01:
            band = sums[max(each for each in BANDS if each <= p)]
            band[0] += p
            band[1] += y
    return sum(abs(p - y) for p, y in sums.values()) / sum(max(p, y) for p, y in sums.values())


@pytest.mark.parametrize("rate", [0.002, 0.01, 0.05])
def test_grids_in_log_odds_are_nearer_than_an_even_one_where_events_are_rare(rate: float) -> None:
    even = relative_error(rate, spacing="uniform", grid=50, bucket_spacing="uniform", buckets=10)
    assert relative_error(rate) < even
    assert relative_error(rate, spacing="logit", bucket_spacing="logit") < even


@pytest.mark.parametrize("rate", [0.002, 0.01, 0.05])
def test_noise_margin_is_nearer_still(rate: float) -> None:
    published = relative_error(rate, "platt+regret_matching", noise=0.0)
    assert relative_error(rate, "platt+regret_matching", noise=1.0) < published
    assert relative_error(rate, "platt+regret_matching") < published


@pytest.mark.parametrize("rate", [0.002, 0.01, 0.05, 0.5])
def test_default_grid_costs_little_brier_at_any_base_rate(rate: float) -> None:
    alone, guarded = make("platt"), make("platt+minimax", seed=3)
    costs = []
    for t, (raw, y) in enumerate(stream(rate)):
        one, other = alone.predict(raw), guarded.predict(raw, (), b"%d" % t)
        alone.update(one.ticket, y)
        guarded.update(other.ticket, y)
        costs.append((other.p - y) ** 2 - (one.p - y) ** 2)
    assert sum(costs) / T < 0.003


def auc(scores: list[float], outcomes: list[float]) -> float:
    """Return the share of pairs of a 1 and a 0 that the scores rank rightly, ties counting half."""
    ranks: dict[float, list[float]] = {}
    for score, y in zip(scores, outcomes, strict=True):
        tied = ranks.setdefault(score, [0.0, 0.0])
        tied[int(y)] += 1
    below = wins = 0.0
    for score in sorted(ranks):
        zeros, ones = ranks[score]
        wins += ones * (below + zeros / 2)
        below += zeros
    return wins / (below * sum(outcomes))


@pytest.mark.parametrize("spec", ["platt+minimax", "platt+regret_matching", "platt+approachability_regret"])
def test_monotone_view_keeps_more_of_the_ranking_than_what_is_served(spec: str) -> None:
    calibrator, half = make(spec, seed=1), T // 2
    events = stream(0.5)
    for t, (raw, y) in enumerate(events[:half]):
        calibrator.update(calibrator.predict(raw, (), b"%d" % t).ticket, y)
    view = Monotone(calibrator, sorted(raw for raw, _ in events[:half])[:: half // 100])
    served = []
    for t, (raw, y) in enumerate(events[half:], half):
        _, p, ticket = calibrator.predict(raw, (), b"%d" % t)
        calibrator.update(ticket, y)
        served.append(p)
    outcomes = [y for _, y in events[half:]]
    raw_auc = auc([raw for raw, _ in events[half:]], outcomes)
    view_auc = auc([view(raw) for raw, _ in events[half:]], outcomes)
    served_auc = auc(served, outcomes)
    assert served_auc < view_auc <= raw_auc
    assert raw_auc - served_auc < 0.02
