"""The ball of the logistic maps, and forgetting."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from state.calibrators.logistic import CURVATURE, P_CLIP, RADIUS, kept, project, sigmoid


@settings(deadline=None)
@given(
    arrays(float, (3, 3), elements=st.floats(-1000, 1000)),
    arrays(float, 3, elements=st.floats(-300, 300)).filter(lambda away: np.linalg.norm(away) > RADIUS * 1.001),
)
def test_projection_is_nearest_in_the_norm_of_the_curvature(root: np.ndarray, away: np.ndarray) -> None:
    curvature = CURVATURE * np.eye(3) + root @ root.T
    found = np.array(project(curvature.tolist(), away.tolist()))
    length = np.linalg.norm(found)
    assert length <= RADIUS * (1 + 1e-9)
    # Nearest: the pull back to where it was, A (away - found), points straight out of the ball.
    pull, out = curvature @ (away - found), found / length
    assert pull @ out > 0
    assert np.linalg.norm(pull - (pull @ out) * out) <= 1e-5 * np.linalg.norm(curvature @ away)


@given(st.integers(1, 10**9))
def test_weight_halves_in_a_halflife(halflife: int) -> None:
    assert kept(halflife) < 1.0
    assert kept(halflife) ** halflife == pytest.approx(0.5, rel=1e-6)


@given(st.floats(-1e300, 1e300))
def test_link_is_within_the_clip(v: float) -> None:
    assert P_CLIP * (1 - 1e-9) <= sigmoid(v) <= 1.0 - P_CLIP * (1 - 1e-9)


def test_link_inverts_the_log_odds() -> None:
    for p in (P_CLIP, 0.002, 0.5, 0.9):
        assert sigmoid(math.log(p) - math.log1p(-p)) == pytest.approx(p)
