"""What calibrated regression costs an event, and what a million rank-one steps without a rebuild lose.

``python -m tests.bench.ridge`` prints both; about a minute. Set OPENBLAS_NUM_THREADS=1 where other work runs.
"""

import random
import sys
import time

import numpy as np

from state.calibrators import Calibrator, least_squares, make
from state.calibrators.calibrated_regression import FUNCTIONS, CalibratedRegression

EVENTS = 20_000
STEPS = 1_000_000


def cost(calibrator: Calibrator, d: int) -> float:
    """Return µs for predict and update, the best of four runs."""
    rng = random.Random(1)
    xs = [tuple(rng.uniform(-1, 1) for _ in range(d)) for _ in range(512)]
    ps = [rng.random() for _ in range(509)]
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        for t in range(EVENTS):
            calibrator.update(calibrator.predict(ps[t % 509], xs[t % 512]).ticket, float(t % 3 == 0))
        best = min(best, (time.perf_counter() - start) / EVENTS)
    return best * 1e6


def drift(steps: int, d: int = 16) -> tuple[float, float, float]:
    """Return the largest entry of |A P - I|, P the working inverse, of |P - inv(A)|, and A's condition number."""
    least_squares.REBUILD = sys.maxsize
    rng = np.random.default_rng(2)
    sums = least_squares.LeastSquares(d + 3)
    for _ in range(0, steps, 1000):
        rows = rng.uniform(-1, 1, (1000, d + 2))
        rows[:, 0] = (rows[:, 0] + 1) / 2
        rows[:, 1] = np.clip(rows[:, 0] + rng.normal(0, 1e-3, 1000), 0, 1)  # an answer that repeats the forecast
        for row, y in zip(rows, (rng.random(1000) < rows[:, 0]).tolist(), strict=True):
            sums.z[2:] = row
            sums.learn(y)
    left = np.abs(sums.a @ sums.inverse - np.eye(d + 3)).max()
    return float(left), float(np.abs(sums.inverse - np.linalg.inv(sums.a)).max()), float(np.linalg.cond(sums.a))


def main() -> None:
    """Print a table."""
    for d in (0, 4, 16):
        print(f"ridge, d = {d}: {cost(make('ridge', features=d), d):.1f} µs")
        for functions in FUNCTIONS:
            calibrator = CalibratedRegression(features=d, functions=functions)
            print(f"calibrated regression, {functions}, d = {d}: {cost(calibrator, d):.1f} µs")
    for steps in (STEPS // 10, STEPS):
        left, off, cond = drift(steps)
        print(f"{steps} steps: |A P - I| {left:.1e}, |P - inv(A)| {off:.1e}, condition number {cond:.1e}")


if __name__ == "__main__":
    main()
