"""The slow map: a line in log-odds and in the score itself."""

import math
import random

import numpy as np
import pytest

from state.calibrators.logistic import sigmoid
from state.calibrators.two_scales import IN_SHARE, TwoScales, itself
from state.calibrators.twospeed import TwoSpeed


def made(high: float = 5.0) -> TwoScales:
    return TwoScales(0.05, high, 2.0, 0.2, 20.0)


def at(z: float) -> np.ndarray:
    return np.array([z, itself(z), 1.0])


def curvature(scales: TwoScales) -> np.ndarray:
    zz, zt, tt, z1, t1, oo = (getattr(scales, name) for name in ("zz", "zt", "tt", "z1", "t1", "oo"))
    return np.array([[zz, zt, z1], [zt, tt, t1], [z1, t1, oo]])


def test_a_step_is_newtons() -> None:
    scales, expected = made(), np.diag([2.0, IN_SHARE, 0.2])
    scales.step(0.5, -0.2, 3.0)
    expected += 3.0 * np.outer(at(0.5), at(0.5))
    assert curvature(scales) == pytest.approx(expected)
    assert [scales.a, scales.d, scales.b] == pytest.approx(
        np.array([1.0, 0.0, 0.0]) + np.linalg.solve(expected, 0.2 * at(0.5))
    )
    assert scales.at(0.5) == pytest.approx(at(0.5) @ [scales.a, scales.d, scales.b])


@pytest.mark.parametrize(("z", "g", "bound"), [(2.0, 0.5, "d"), (-6.0, -20.0, "a")])
def test_a_parameter_beyond_its_limit_goes_to_the_nearest_point(z: float, g: float, bound: str) -> None:
    """No other point with that parameter at its limit is nearer to the step's end in the norm of the curvature."""
    scales = made()
    scales.step(z, g, 1.0)
    held = curvature(scales)
    away = np.array([1.0, 0.0, 0.0]) - np.linalg.solve(held, g * at(z))
    there = np.array([scales.a, scales.d, scales.b])
    free = [i for i, name in enumerate("adb") if name != bound and (name != "d" or scales.d > 0.0)]
    assert getattr(scales, bound) in (0.0, 0.05, 5.0)
    assert (held @ (there - away))[free] == pytest.approx(0.0, abs=1e-9)


def test_the_map_rises_whatever_comes() -> None:
    rng, scales = random.Random(1), made()
    for _ in range(3000):
        z = rng.gauss(0.0, 5.0)
        if rng.random() < 0.9:
            scales.approach(z, float(rng.random() < 0.5), rng.random(), 0.25 * rng.random(), 0.01 * rng.random())
        else:
            scales.step(z, rng.uniform(-1.0, 1.0), rng.random())
        assert scales.slope(z) > 0.0
        assert scales.at(z) < scales.at(z + 0.1)


def test_shares_of_votes_are_read_as_they_are() -> None:
    """A hundred trees vote, and the risk's log-odds are straight in their share: 4,000 labels tell it."""
    rng, calibrator = random.Random(4), TwoSpeed()
    for _ in range(4000):
        share = min(rng.expovariate(8.0), 1.0)
        y = float(rng.random() < sigmoid(6.0 * share - 3.0))
        calibrator.update(calibrator.predict(round(share, 2)).ticket, y)
    for share in (0.0, 0.02, 0.1, 0.4):
        p = calibrator.predict(share).p
        assert math.log(p / (1.0 - p)) == pytest.approx(6.0 * share - 3.0, abs=0.5)
