"""Roth 2021, Lecture 20: the bound of the minimax forecaster."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from research.experiments import picture
from research.experiments.base import Claim, Experiment, Job, Section, TextTable, even, judged, verdict
from research.experiments.measure import l1
from research.experiments.play import oppose, play, prompt
from state.arrays import Floats

TIMES, SEEDS, GRIDS = tuple(1250 * 2**k for k in range(5)), range(8), (5, 10, 20, 50)
OPPONENTS: Final = ("expected forecast", "coin", "switching")
#: Probability that the mean of 8 runs, each moved by at most 2/T by one round, exceeds its expectation by `slack`.
RISK: Final = 1e-6


def bound(n: int, t: int) -> float:
    """Return sqrt((N + 1) a_T) / T, a_t = a_{t-1} + 1 + sqrt(a_{t-1}) / (N sqrt(2)), by the recursion itself."""
    a = 0.0
    for _ in range(t):
        a += 1.0 + math.sqrt(a) / (n * math.sqrt(2.0))
    return math.sqrt((n + 1) * a) / t


def slack(t: int) -> float:
    """Return Azuma's margin for a mean of `SEEDS` runs of T rounds at `RISK`: one round moves ℓ1 by at most 2 / T."""
    return math.sqrt(2.0 * math.log(1.0 / RISK) * 4.0 / (t * len(SEEDS)))


def run(opponent: str, n: int, seed: int) -> list[float]:
    """Return ℓ1 at each of `TIMES`; one bucket, which sees no forecast."""
    calibrator = even("minimax", buckets=1, grid=n, name="lecture 20", seed=seed)
    last = TIMES[-1]
    seen = np.full(last, 0.5)
    if opponent == "expected forecast":
        p, y = oppose(calibrator, seen)
    else:
        rng = np.random.default_rng((seed, n))
        # Blocks of 500 rounds at 1 in 10 and at 9 in 10, or a fair coin throughout.
        rate = np.where(np.arange(last) // 500 % 2, 0.9, 0.1) if opponent == "switching" else 0.5
        y = (rng.random(last) < rate).astype(np.float64)
        p = play(calibrator, prompt(opponent, seen, y, last))
    return [l1(p[:t], y[:t]) for t in TIMES]


def _runs() -> list[tuple[str, int, int]]:
    return [(opponent, n, seed) for opponent in OPPONENTS for n in GRIDS for seed in SEEDS]


def jobs() -> Sequence[Job]:
    """Return a job for each opponent, grid and seed."""
    return [partial(run, *arguments) for arguments in _runs()]


def tell(results: Sequence[Any], out: Path) -> Section:
    """Compare mean errors with the bound."""
    runs = dict(zip(_runs(), results, strict=True))
    mean = {(o, n): np.mean([runs[o, n, seed] for seed in SEEDS], axis=0) for o in OPPONENTS for n in GRIDS}
    bounds = {n: np.array([bound(n, t) for t in TIMES]) for n in GRIDS}
    margin = np.array([slack(t) for t in TIMES])
    held = sum(int((errors <= bounds[n] + margin).all()) for (_, n), errors in mean.items())
    inside = sum(int((errors <= bounds[n]).all()) for (_, n), errors in mean.items())
    return Section(
        text=[
            (
                f"`minimax` in one bucket against three opponents, N in {GRIDS}, T = {TIMES[0]:,} to "
                f"{TIMES[-1]:,}; mean of "
                f"seeds {SEEDS[0]} to {SEEDS[-1]}. The bound is on the expectation, so a mean of {len(SEEDS)} runs "
                f"may exceed "
                f"it by Azuma's margin at {RISK:g}, {margin[-1]:.3f} at T = {TIMES[-1]:,}. The lecture's definition "
                f"of the "
                "error lacks the 1/T that stands here."
            ),
        ],
        findings=[
            verdict(held, len(mean), "E ℓ1 ≤ √((N+1) a_T) / T at every T, within the margin"),
            f"without any margin the mean is below the bound in {inside} of {len(mean)}",
        ],
        tables=[
            TextTable(
                f"ℓ1 error of `minimax` at T = {TIMES[-1]:,}",
                ("N", *OPPONENTS, "bound"),
                [(str(n), *(f"{mean[o, n][-1]:.4f}" for o in OPPONENTS), f"{bounds[n][-1]:.4f}") for n in GRIDS],
            )
        ],
        pictures=[(_paint(mean, bounds, out), "Roth's bound (dashed) and the error measured against three opponents")],
        claims=[
            Claim(
                "Roth",
                "the minimax forecaster's expected error, any opponent",
                "≤ √((N+1) a_T) / T",
                f"below it in {inside} of {len(mean)}, within Azuma's margin in {held}",
                judged(held == len(mean)),
            )
        ],
    )


def _paint(mean: dict[tuple[str, int], Floats], bounds: dict[int, Floats], out: Path) -> str:
    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        for axis, n in zip(axes[0], GRIDS, strict=True):
            for opponent in OPPONENTS:
                axis.plot(TIMES, mean[opponent, n], marker="o", markersize=4, label=opponent)
            axis.plot(TIMES, bounds[n], color=picture.INK, ls="--", label="bound")
            picture.logarithmic(axis)
            axis.set(title=f"N = {n}", xlabel="T", xticks=TIMES[::2], xticklabels=[f"{t:,}" for t in TIMES[::2]])
        axes[0, 0].set_ylabel("ℓ1 calibration error")
        axes[0, 0].legend(loc="lower left")

    return picture.draw(
        out / "roth-bound.png", paint, title="Roth, Lecture 20: error and bound", columns=4, size=(12, 4), sharey=True
    )


EXPERIMENT = Experiment("roth", "Roth 2021, Lecture 20: the minimax forecaster and its bound", jobs, tell)
