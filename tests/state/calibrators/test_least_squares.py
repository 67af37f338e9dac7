"""Least squares: the sums, what is swept from them, and the theorem they stand for."""

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.calibrators import least_squares
from state.calibrators.least_squares import LeastSquares

ROUNDS = st.lists(st.tuples(*[st.floats(-1, 1)] * 3, st.floats(0, 1)), max_size=30)


def learn(sums: LeastSquares, *rounds: tuple[float, ...]) -> None:
    """Learn rounds of (f_2..f_n, y)."""
    for *f, y in rounds:
        sums.z[2:] = f
        sums.learn(y)


def some_rounds(n: int, width: int, seed: int) -> list[tuple[float, ...]]:
    rng = random.Random(seed)
    return [(*(rng.uniform(-1, 1) for _ in range(width)), rng.random()) for _ in range(n)]


@settings(deadline=None, derandomize=True)
@given(ROUNDS)
def test_everything_is_what_its_definition_says(rounds: list[tuple[float, ...]]) -> None:
    sums = LeastSquares(4)
    learn(sums, *rounds)
    f = np.array([(1.0, *one[:-1]) for one in rounds]).reshape(-1, 4)
    y = np.array([one[-1] for one in rounds])
    a, b = np.eye(4) + f.T @ f, f.T @ y
    theta = np.linalg.solve(a, b)
    loss = float(((f @ theta - y) ** 2).sum() + theta @ theta)
    assert sums.a == pytest.approx(a)
    assert sums.b == pytest.approx(b)
    assert sums.inverse == pytest.approx(np.linalg.inv(a), abs=1e-10)
    assert sums.theta == pytest.approx([loss, *theta], abs=1e-10)
    assert sums.log_det == pytest.approx(float(np.linalg.slogdet(a)[1]), abs=1e-10)


def test_rebuilding_changes_only_the_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = some_rounds(500, 5, 2)
    plain, rebuilt = LeastSquares(6), LeastSquares(6)
    learn(plain, *rounds)
    monkeypatch.setattr(least_squares, "REBUILD", 7)
    learn(rebuilt, *rounds)
    assert rebuilt.encode() != plain.encode()
    assert rebuilt._pair == pytest.approx(plain._pair, abs=1e-11)
    assert rebuilt.log_det == pytest.approx(plain.log_det)


def clip(v: float) -> float:
    return min(max(v, 0.0), 1.0)


@settings(deadline=None, derandomize=True)
@given(ROUNDS)
def test_regret_to_every_weights_is_at_most_their_norm_and_ln_det(rounds: list[tuple[float, ...]]) -> None:
    sums, served = LeastSquares(4), 0.0
    for *f, y in rounds:
        served += (clip(math.fsum(map(float.__mul__, sums.theta[1:], [1.0, *f]))) - y) ** 2
        learn(sums, (*f, y))
    # theta[0] is the least of Σ (θ·f - y)² + ‖θ‖², so this is the bound for all θ at once.
    assert served <= sums.theta[0] + sums.log_det + 1e-9
    assert sums.log_det <= 4 * math.log1p(len(rounds)) + 1e-9


def test_working_inverse_keeps_to_the_sums_between_rebuilds() -> None:
    """As many rounds as a rebuild waits for, on features of which two nearly repeat each other."""
    sums, n = LeastSquares(8), least_squares.REBUILD - 1
    rng = np.random.default_rng(9)
    rows = rng.uniform(-1, 1, (n, 7))
    rows[:, 1] = np.clip(rows[:, 0] + rng.normal(0, 1e-3, n), -1, 1)
    for row, y in zip(rows, (rng.random(n) < 0.3).tolist(), strict=True):
        sums.z[2:] = row
        sums.learn(float(y))
    assert np.linalg.cond(sums.a) > 1e4
    assert np.abs(sums.a @ sums.inverse - np.eye(8)).max() < 1e-8
    assert sums.inverse == pytest.approx(np.linalg.inv(sums.a), abs=1e-8)
    assert sums.theta[1:] == pytest.approx(np.linalg.solve(sums.a, sums.b), abs=1e-8)
    assert sums.log_det == pytest.approx(float(np.linalg.slogdet(sums.a)[1]), abs=1e-8)


ELSEWHERE = """
from hashlib import blake2b
from tests.state.calibrators.test_least_squares import LeastSquares, least_squares, learn, some_rounds
least_squares.REBUILD = 40
sums = LeastSquares(20, prior=1)
learn(sums, *some_rounds(100, 19, seed=5))
sums.relearn(0.25, 0.75)
print(blake2b(sums.encode()).hexdigest())
"""


def test_another_kind_of_processor_gives_the_same_bytes() -> None:
    # BLAS adds up in another order on each; so an audit elsewhere would call right answers differences.
    kinds = ("Prescott", "Haswell", "SkylakeX")
    said = {
        subprocess.run(
            [sys.executable, "-c", ELSEWHERE],
            check=True,
            capture_output=True,
            cwd=Path(__file__).parents[3],
            env=os.environ | {"OPENBLAS_CORETYPE": kind, "TRUEUP_COMPILED": "no"},
        ).stdout
        for kind in kinds
    }
    assert len(said) == 1
