"""Calibrated regression: the fixed point, the bounds, the working inverse."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.calibrators import calibrated_regression
from state.calibrators.calibrated_regression import CalibratedRegression, fixed_point


def clip(v: float) -> float:
    return min(max(v, 0.0), 1.0)


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0, 1))
def test_fixed_point_is_one(theta_0: float, s: float, p: float) -> None:
    fixed = fixed_point(theta_0, s, p)
    assert 0.0 <= fixed <= 1.0
    assert clip(theta_0 * fixed + s) == pytest.approx(fixed, abs=1e-9)


@pytest.mark.parametrize(
    ("theta_0", "s", "p", "fixed"),
    [
        (0.5, -0.1, 0.9, 0.0),
        (0.5, 0.2, 0.9, 0.4),
        (0.5, 0.6, 0.1, 1.0),
        (3.0, 0.1, 0.0, 1.0),  # theta_0 > 1: clip(s / slack) would be 0
        (3.0, -2.5, 1.0, 0.0),  # and here 1
        (3.0, -1.0, 0.1, 0.0),  # three fixed points, 0, .5 and 1: the nearest to the forecast
        (3.0, -1.0, 0.6, 0.5),
        (3.0, -1.0, 0.8, 1.0),
        (3.0, 0.0, 0.9, 1.0),
        (1.0, 0.0, 0.37, 0.37),  # every point is fixed
        (1.0, 0.1, 0.37, 1.0),
        (1.0, -0.1, 0.37, 0.0),
    ],
)
def test_fixed_point_cases(theta_0: float, s: float, p: float, fixed: float) -> None:
    assert fixed_point(theta_0, s, p) == pytest.approx(fixed)


def test_theta_0_above_1_occurs_and_is_served_a_fixed_point() -> None:
    calibrator = CalibratedRegression()
    rng, seen = random.Random(2), 0
    for _ in range(3000):
        raw = rng.random()
        p, _, ticket = calibrator.predict(raw)
        theta = calibrator._theta
        seen += theta[0] > 1.0
        assert clip(theta[0] * p + theta[1] + theta[2] * raw) == pytest.approx(p, abs=1e-9)
        calibrator.update(ticket, float(raw > 0.5))
    assert seen > 0


@pytest.mark.parametrize("outcome", ["adversary", "iid", "zeros then ones", "subsequence"])
def test_bias_and_regret_stay_under_their_bounds(outcome: str) -> None:
    calibrator = CalibratedRegression(features=2)
    rng, regret, n = random.Random(6), 0.0, 4000
    for t in range(n):
        raw, x = rng.random(), (float(t % 3 == 0), rng.uniform(-1, 1))
        p, _, ticket = calibrator.predict(raw, x)
        y = {
            "adversary": float(p <= 0.5),
            "iid": float(rng.random() < 0.3),
            "zeros then ones": float(t >= n // 2),
            "subsequence": x[0],
        }[outcome]
        calibrator.update(ticket, y)
        regret += (p - y) ** 2 - (raw - y) ** 2
        if t % 50 == 0:
            assert np.all(np.abs(calibrator.bias()) <= calibrator.bias_bound())
            assert regret <= 1.0 + calibrator._log_det
    assert (calibrator.error() or 1.0) < (calibrator.bound() or 0.0) < 0.2


def test_state_is_the_sums_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrated_regression, "REBUILD", 150)
    calibrator = CalibratedRegression(features=1)
    rng, rows, ys = random.Random(8), [], []
    for _ in range(400):
        raw, x = rng.random(), rng.uniform(-1, 1)
        p, _, ticket = calibrator.predict(raw, (x,))
        y = float(rng.random() < raw)
        calibrator.update(ticket, y)
        rows.append((p, 1.0, raw, x))
        ys.append(y)
    f = np.array(rows)
    a = np.eye(4) + f.T @ f
    assert calibrator._a == pytest.approx(a)
    assert calibrator._inverse == pytest.approx(np.linalg.inv(a), abs=1e-9)
    assert calibrator._b == pytest.approx(f.T @ ys)
    assert calibrator._log_det == pytest.approx(math.log(np.linalg.det(a)))
    assert calibrator.bias() == pytest.approx(f.T @ (f[:, 0] - ys), abs=1e-8)


def test_spoilt_inverse_is_rebuilt() -> None:
    calibrator = CalibratedRegression()
    for t in range(10):
        calibrator.update(calibrator.predict(t / 10).ticket, 1.0)
    calibrator._inverse *= -1.0
    calibrator.update(calibrator.predict(0.5).ticket, 1.0)
    assert calibrator._inverse @ calibrator._a == pytest.approx(np.eye(3), abs=1e-9)


def test_missing_features_count_as_zeros() -> None:
    calibrator = CalibratedRegression(features=2)
    calibrator.update(calibrator.predict(0.5, (1.0, -1.0)).ticket, 1.0)
    assert calibrator.predict(0.4) == calibrator.predict(0.4, (0.0, 0.0))


@pytest.mark.parametrize("x", [(0.5,), (0.0, 0.0, 0.0), (1.5, 0.0), (math.nan, 0.0)])
def test_wrong_features_are_refused(x: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"x must have 2 components|must be in"):
        CalibratedRegression(features=2).predict(0.5, x)
