"""Online Platt scaling."""

import math
import random
from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import Calibrator
from state.calibrators.logistic import P_CLIP, RADIUS
from state.calibrators.platt import Platt
from state.scoring.scores import Scores


def overconfident(n: int) -> Iterator[tuple[float, float]]:
    """Forecasts whose log-odds are twice too large and shifted by .7."""
    rng = random.Random(1)
    for _ in range(n):
        z = rng.gauss(0, 1.5)
        yield 1 / (1 + math.exp(-2 * z - 0.7)), float(rng.random() < 1 / (1 + math.exp(-z)))


def scored(calibrator: Calibrator, n: int, delay: int) -> Scores:
    scores, waiting = Scores(), deque[tuple[float, float, bytes, float]]()
    for t, (raw, y) in enumerate(overconfident(n)):
        p, _, ticket = calibrator.predict(raw, (), b"%d" % t)
        waiting.append((raw, p, ticket, y))
        if len(waiting) > delay:
            was, served, due, outcome = waiting.popleft()
            calibrator.update(due, outcome)
            scores.observe(was, served, outcome)
    return scores


def distance(calibrator: Platt) -> float:
    return math.hypot(calibrator._a - 1.0, calibrator._b)


def test_learns_the_map() -> None:
    calibrator = Platt()
    scores = scored(calibrator, 40_000, 0)
    assert calibrator._a == pytest.approx(0.5, abs=0.05)
    assert calibrator._b == pytest.approx(-0.35, abs=0.1)
    assert scores.error("calibrated") < 0.006
    assert scores.brier("calibrated") < 0.178
    assert scores.brier("raw") > 0.19


def test_delay_of_2000_does_not_overshoot() -> None:
    scores = scored(Platt(), 40_000, 2000)
    assert scores.error("calibrated") < 0.012
    assert scores.brier("calibrated") < 0.179


def test_parameters_stay_in_the_ball_whatever_comes() -> None:
    calibrator = Platt()
    rng = random.Random(4)
    for t in range(50_000):
        # Separable for a while, then reversed, then constant: each pushes the parameters outwards.
        raw = rng.choice((0.0, 1e-9, 0.3, 0.7, 1.0)) if t < 40_000 else 1.0
        calibrator.update(calibrator.predict(raw).ticket, float((raw > 0.5) ^ (t // 1000 % 2 == 1)))
        assert distance(calibrator) <= RADIUS * (1 + 1e-9)
    assert all(map(math.isfinite, (calibrator._a, calibrator._b)))


@given(st.floats(0, 1), st.floats(0, 1))
def test_fresh_map_is_the_identity_within_the_clip(p: float, q: float) -> None:
    calibrator = Platt()
    assert abs(calibrator.predict(p).p - p) <= P_CLIP * 1.001
    assert (calibrator.predict(p).p <= calibrator.predict(q).p) or p > q


def test_halflife_follows_a_change_after_many_outcomes() -> None:
    """After 50,000 steady outcomes, 500 of a new kind: the forgetting map is near, the other is not."""
    forgetting, never = Platt(), Platt(halflife=0)
    rng = random.Random(6)
    for t in range(50_500):
        y = float(rng.random() < (0.2 if t < 50_000 else 0.6))
        for calibrator in (forgetting, never):
            calibrator.update(calibrator.predict(0.3).ticket, y)
    assert abs(forgetting.predict(0.3).p - 0.6) < abs(never.predict(0.3).p - 0.6) / 2
