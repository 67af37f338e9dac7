"""What the papers of each calibrator claim of it, on trueup's streams and opponents; its laws are in `test_laws.py`."""

import math
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.calibrators.approachability_regret import ApproachabilityRegret
from research.calibrators.auto import EXPERTS, Auto
from research.calibrators.beta import Beta
from research.calibrators.exponential_weights import PRIOR, ExponentialWeights
from state.calibrators import make
from tests.state.calibrators.test_bounds import SEQUENCES, Answer, stays_under_its_bound

pytestmark = pytest.mark.usefixtures("registered")

#: The outcome, from the round, the answer, the experts' answers and their losses so far.
Opponent = Callable[[int, float, tuple[float, ...], list[float]], float]
THETAS = st.lists(st.floats(-1, 1), min_size=33, max_size=33)
#: Of beta scaling: outcomes of a forecast p come with log-odds A ln p - B ln(1 - p) + C.
A, B, C = 0.5, 1.5, -0.4


@pytest.mark.parametrize("delay", ["0", "10", "out of order"])
@pytest.mark.parametrize("outcome", SEQUENCES)
@pytest.mark.parametrize("spec", ["approachability", "approachability_regret"])
def test_error_and_regret_of_approachability_stay_under_their_bounds(spec: str, outcome: Answer, delay: str) -> None:
    calibrator = make(spec, buckets=1, grid=20) if spec == "approachability" else make(spec)
    outstanding = stays_under_its_bound(calibrator, outcome, delay)
    if isinstance(calibrator, ApproachabilityRegret):
        assert calibrator.regret() < calibrator.regret_bound(outstanding)


@given(
    THETAS, st.floats(0, 3), st.floats(0, 1), st.sampled_from(["brier", "log"]), st.sampled_from(["uniform", "logit"])
)
def test_the_oracle_of_approachability_keeps_its_promise(
    theta: list[float], weight: float, q: float, loss: str, spacing: str
) -> None:
    calibrator = ApproachabilityRegret(loss=loss, spacing=spacing)
    calibrator._theta, calibrator._lambda = theta, weight
    points, s = calibrator._grid.points, calibrator._loss
    expected, _, _ = calibrator.predict(q)
    below = max(i for i, point in enumerate(points) if point <= expected + 1e-15)
    above = min(below + 1, 32)
    share = (expected - points[below]) / (points[above] - points[below]) if above > below else 0.0
    gap = points[above] - points[below]
    rounding = max(calibrator._rounding(gap, points[below]), calibrator._rounding(gap, points[above]))
    for y in (0, 1):
        payoff = sum(
            part * (theta[i] * (y - points[i]) + weight * (s(points[i], y) - s(q, y)))
            for i, part in ((below, 1.0 - share), (above, share))
        )
        assert payoff <= gap / 2 + weight * rounding + 1e-9


def greedy(_: int, p: float, q: tuple[float, ...], losses: list[float]) -> float:
    """Favour what is best so far over what is served."""

    def gain(y: float) -> float:
        return (p - y) ** 2 - min(loss + (each - y) ** 2 for loss, each in zip(losses, q, strict=True)) + min(losses)

    return max((0.0, 1.0), key=gain)


def levelling(_: int, p: float, q: tuple[float, ...], losses: list[float]) -> float:
    """Favour what is worst so far, so that the leaders change."""
    return float(q[losses.index(max(losses))] > p)


def switching(t: int, _: float, _answers: tuple[float, ...], _losses: list[float]) -> float:
    return float(t // 50 % 2)


@pytest.mark.parametrize("opponent", [greedy, levelling, switching])
def test_regret_of_the_aggregate_to_its_best_expert_is_at_most_half_ln_k(opponent: Opponent) -> None:
    calibrator, rng = Auto(), random.Random(1)
    loss, losses = 0.0, [0.0] * EXPERTS
    for t in range(2000):
        p, _, ticket = calibrator.predict(rng.random())
        q = struct.unpack_from(f"<{EXPERTS}f", ticket)
        y = opponent(t, p, q, losses)
        calibrator.update(ticket, y)
        loss += (p - y) ** 2
        losses = [each + (answer - y) ** 2 for each, answer in zip(losses, q, strict=True)]
        assert loss <= min(losses) + math.log(EXPERTS) / 2 + 1e-9


def test_beta_scaling_recovers_its_map() -> None:
    calibrator, rng = Beta(halflife=0), random.Random(2)
    for _ in range(30_000):
        p = rng.random()
        chance = 1.0 / (1.0 + math.exp(-(A * math.log(p) - B * math.log1p(-p) + C)))
        calibrator.update(calibrator.predict(p).ticket, float(rng.random() < chance))
    assert (calibrator._a, calibrator._b, calibrator._c) == pytest.approx((A, B, C), abs=0.15)


def test_the_weighted_swaps_leave_the_distribution_that_is_served_as_it_is() -> None:
    calibrator = ExponentialWeights(buckets=1, grid=6)
    rng = random.Random(2)
    for t in range(300):
        calibrator.update(calibrator.predict(rng.random(), (), b"%d" % t).ticket, float(rng.random() < 0.4))
    points = calibrator._grid.points
    c, t = calibrator._grid.nearest(0.5), calibrator.learnt
    eta = math.sqrt(math.log(12) / (2 * t))
    rates = np.zeros((7, 7))
    for i in range(7):
        n, s = calibrator._cells.get(i, (0, 0))
        for j in (i - 1, i + 1):
            if 0 <= j <= 6:
                delta = points[j] - points[i]
                regret = (2 * delta * (s - n * points[i]) - delta**2 * n) / abs(delta)
                rates[i, j] = math.exp(eta * regret + (PRIOR if abs(j - c) < abs(i - c) else 0.0))
    generator = rates - np.diag(rates.sum(axis=1))
    stationary = np.linalg.lstsq(np.vstack([generator.T, np.ones(7)]), [*np.zeros(7), 1.0], rcond=None)[0]
    assert calibrator.predict(0.5).p == pytest.approx(stationary @ np.array(points))
