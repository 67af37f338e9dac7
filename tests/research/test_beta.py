"""Online beta scaling."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.calibrators.beta import Beta
from state.calibrators import Calibrator, make
from state.calibrators.logistic import P_CLIP, RADIUS
from state.scoring.scores import Scores

#: Outcomes of a forecast p come with log-odds A ln p - B ln(1 - p) + C.
A, B, C = 0.5, 1.5, -0.4


def distance(calibrator: Beta) -> float:
    return math.hypot(calibrator._a - 1.0, calibrator._b - 1.0, calibrator._c)


def truth(p: float) -> float:
    return 1.0 / (1.0 + math.exp(-(A * math.log(p) - B * math.log1p(-p) + C)))


def scored(calibrator: Calibrator, n: int) -> Scores:
    scores, rng = Scores(), random.Random(2)
    for _ in range(n):
        raw = rng.random()
        p, _, ticket = calibrator.predict(raw)
        y = float(rng.random() < truth(raw))
        calibrator.update(ticket, y)
        scores.observe(raw, p, y)
    return scores


def test_recovers_the_map() -> None:
    calibrator = Beta(halflife=0)
    scores = scored(calibrator, 60_000)
    assert (calibrator._a, calibrator._b, calibrator._c) == pytest.approx((A, B, C), abs=0.1)
    best = sum(truth((i + 0.5) / 1000) * (1 - truth((i + 0.5) / 1000)) for i in range(1000)) / 1000
    # Hoeffding at 1e-6 for the score of the truth, in [0, 1], and as much of regret as 60 outcomes all wrong.
    assert scores.brier("calibrated") < best + math.sqrt(math.log(1e6) / (2 * 60_000)) + 60 / 60_000


def test_bends_one_end_where_platt_cannot() -> None:
    assert scored(Beta(), 20_000).brier("calibrated") < scored(make("platt"), 20_000).brier("calibrated")


@pytest.mark.parametrize("halflife", [0, 100, 5000])
def test_parameters_stay_in_the_ball(halflife: int) -> None:
    calibrator, rng = Beta(halflife=halflife), random.Random(4)
    for t in range(100_000):
        # Separable for a while, then reversed, then constant: each pushes the parameters outwards.
        raw = rng.choice((0.0, 1e-9, 0.3, 0.7, 1.0)) if t < 75_000 else 1.0
        calibrator.update(calibrator.predict(raw).ticket, float((raw > 0.5) ^ (t // 1000 % 2 == 1)))
        assert distance(calibrator) <= RADIUS * (1 + 1e-9)
    assert math.isfinite(calibrator.predict(0.3).p)


@given(st.floats(0, 1))
def test_fresh_map_is_the_identity_within_the_clip(p: float) -> None:
    assert abs(Beta().predict(p).p - p) <= P_CLIP * 1.001
