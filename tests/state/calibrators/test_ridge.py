"""Online ridge regression: what it promises, and the bias that it does not."""

import math
import random

import numpy as np
import pytest

from state.calibrators.calibrated_regression import CalibratedRegression
from state.calibrators.ridge import Ridge


@pytest.mark.parametrize("outcome", ["adversary", "iid", "drift", "zeros then ones"])
def test_regret_to_all_weights_and_to_the_forecast_stays_under_its_bound(outcome: str) -> None:
    calibrator = Ridge(features=2)
    rng, served, raw_loss, n = random.Random(6), 0.0, 0.0, 4000
    for t in range(n):
        raw, x = rng.random(), (float(t % 3 == 0), rng.uniform(-1, 1))
        p, _, ticket = calibrator.predict(raw, x)
        y = {
            "adversary": float(p <= 0.5),
            "iid": float(rng.random() < (raw + x[0]) / 2),
            "drift": float(rng.random() < 0.5 + 0.5 * math.sin(t / 200)),
            "zeros then ones": float(t >= n // 2),
        }[outcome]
        calibrator.update(ticket, y)
        served += (p - y) ** 2
        raw_loss += (raw - y) ** 2
        assert served <= calibrator._sums.theta[0] + calibrator._sums.log_det
        assert served - raw_loss <= calibrator.regret_bound()
    assert calibrator.regret_bound() <= 1 + 4 * math.log1p(n)


def test_zeros_then_ones_leave_a_bias_of_a_third_of_the_rounds() -> None:
    """Footnote 1 of the paper: regression is biased by T (ln 2)/2, calibrated regression within its bound."""
    half = 5000
    plain, calibrated = Ridge(), CalibratedRegression()
    bias = 0.0
    for t in range(2 * half):
        y = float(t >= half)
        p, _, ticket = plain.predict(0.0)
        bias += p - y
        plain.update(ticket, y)
        calibrated.update(calibrated.predict(0.0).ticket, y)
    # With h zeros and k ones behind, 1 is missed by (1 + h) / (1 + h + k).
    assert bias == pytest.approx(-sum((1 + half) / (1 + half + k) for k in range(half)))
    assert bias / (2 * half) == pytest.approx(-math.log(2) / 2, rel=1e-3)
    _, length, mended, bound = calibrated.biases()[0]
    assert length == 2 * half
    assert abs(mended) <= bound < abs(bias)


def test_weights_of_a_linear_truth_are_found() -> None:
    calibrator, rng = Ridge(features=1), random.Random(3)
    for _ in range(2000):
        raw, x = rng.random(), rng.uniform(-1, 1)
        calibrator.update(calibrator.predict(raw, (x,)).ticket, 0.4 + 0.3 * raw + 0.2 * x)
    assert np.allclose(calibrator._sums.theta[1:], [0.4, 0.3, 0.2], atol=0.01)
    assert calibrator.predict(1.0, (1.0,)).p == pytest.approx(0.9, abs=0.01)


def test_missing_features_count_as_zeros() -> None:
    calibrator = Ridge(features=2)
    calibrator.update(calibrator.predict(0.5, (1.0, -1.0)).ticket, 1.0)
    assert calibrator.predict(0.4) == calibrator.predict(0.4, (0.0, 0.0))


@pytest.mark.parametrize("x", [(0.5,), (0.0, 0.0, 0.0), (1.5, 0.0), (math.nan, 0.0)])
def test_wrong_features_are_refused(x: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"x must have 2 components|must be in"):
        Ridge(features=2).predict(0.5, x)
