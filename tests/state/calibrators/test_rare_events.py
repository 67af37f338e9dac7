"""What the grid decides where events are rare, and what the ranking loses."""

import math
import random
from functools import cache
from typing import Any

import pytest

from state.calibrators import make

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
