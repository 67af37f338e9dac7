"""Kuleshov & Ermon 2017, Figure 2 (a to d) and the rates of Table 1."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from research.experiments import picture
from research.experiments.base import Claim, Experiment, Job, Section, TextTable, even, judged
from research.experiments.measure import l1, l2_path, slope
from research.experiments.play import oppose, play, prompt
from state.arrays import Floats

#: Figure 2: rounds, repetitions, and M = N.
ROUNDS, SEEDS, RESOLUTION = 1000, range(20), 10
#: Table 1: times T of measurement, repetitions, M = N = 1/ε (even, so that .5 is on the grid).
TIMES, RATE_SEEDS, GRIDS = tuple(1000 * 2**k for k in range(6)), range(4), (10, 20, 40)
#: The paper used exponential weights for internal regret. If that is not registered, a similar one is used.
REGMIN: Final = "exponential_weights"
SUBROUTINES: Final = ("exponential_weights", "regret_matching", "approachability", "minimax")
#: Index in `TIMES` for the fit of the N exponent: early, before the grid's resolution dominates the error.
_EARLY: Final = 2
_PAPER: Final = "Kuleshov & Ermon"
_NAMES: Final = {
    "expert": "expert F",
    "algorithm": "Algorithm 1",
    "regmin": "REGMIN, which does not see F",
}


class Path2(NamedTuple):
    """Figure 2 of one seed: mean squared loss and ℓ2 calibration error after each round, [rounds] each."""

    loss: Floats
    error: Floats


def figure(subroutine: str, opponent: str, who: str, seed: int) -> Path2:
    """Play a curve of Figure 2 once."""
    rng = np.random.default_rng((seed, opponent == "adversary"))
    y = rng.integers(0, 2, ROUNDS).astype(np.float64)
    raw = np.where(y == 1, 0.7, 0.3) if opponent == "coin" else rng.integers(0, 2, ROUNDS).astype(np.float64)
    if who == "expert":
        # Against the adversary F is noise, and y reacts to the forecast itself.
        p, y = raw, (y if opponent == "coin" else (raw <= 0.5).astype(np.float64))
    else:
        buckets = RESOLUTION if who == "algorithm" else 1
        calibrator = even(subroutine, buckets=buckets, grid=RESOLUTION, name="figure 2", seed=seed)
        seen = raw if who == "algorithm" else np.full(ROUNDS, 0.5)
        if opponent == "coin":
            p = play(calibrator, prompt("coin", seen, y, ROUNDS))
        else:
            p, y = oppose(calibrator, seen)
    return Path2(np.cumsum((p - y) ** 2) / np.arange(1, ROUNDS + 1), l2_path(p, y))


class Rate(NamedTuple):
    """Mean ℓ1 error at each of `TIMES`, and bytes of state at the last."""

    errors: list[float]
    size: int


def rate(subroutine: str, grid: int, seed: int) -> Rate:
    """Play the adversary with forecasts that are noise over all M = N buckets."""
    raw = np.random.default_rng((seed, grid)).random(TIMES[-1])
    calibrator = even(subroutine, buckets=grid, grid=grid, name="table 1", seed=seed)
    p, y = oppose(calibrator, raw)
    return Rate([l1(p[:t], y[:t]) for t in TIMES], len(calibrator.encode()))


def _figures() -> list[tuple[str, str, int]]:
    return [(o, w, seed) for o in ("coin", "adversary") for w in _NAMES for seed in SEEDS]


def _rates() -> list[tuple[str, int, int]]:
    return [(spec, grid, seed) for spec in SUBROUTINES for grid in GRIDS for seed in RATE_SEEDS]


def jobs() -> Sequence[Job]:
    """Return a job for each curve of Figure 2 and each cell of Table 1, and each seed."""
    drawn: list[Job] = [partial(figure, REGMIN, *arguments) for arguments in _figures()]
    return drawn + [partial(rate, *arguments) for arguments in _rates()]


def tell(results: Sequence[Any], out: Path) -> Section:
    """Draw Figure 2, tabulate its last values, and fit the rates."""
    curves: dict[tuple[str, str], list[Path2]] = {}
    for (opponent, who, _), path in zip(_figures(), results, strict=False):
        curves.setdefault((opponent, who), []).append(path)
    mean = {
        key: Path2(np.mean([one.loss for one in paths], axis=0), np.mean([one.error for one in paths], axis=0))
        for key, paths in curves.items()
    }
    rates = dict(zip(_rates(), results[len(_figures()) :], strict=True))
    errors = {
        (spec, grid): np.mean([rates[spec, grid, seed].errors for seed in RATE_SEEDS], axis=0)
        for spec in SUBROUTINES
        for grid in GRIDS
    }
    expert, ours = mean["coin", "expert"], mean["coin", "algorithm"]
    blind, adversary = mean["coin", "regmin"], mean["adversary", "algorithm"]
    at = 299
    findings = [
        (
            f"coin, after 300 rounds: ℓ2 calibration error {ours.error[at]:.4f} (Algorithm 1) and "
            f"{blind.error[at]:.4f} "
            f"(REGMIN) against {expert.error[at]:.4f} (expert), as in Figure 2b"
        ),
        (
            f"coin, after {ROUNDS}: squared loss {ours.loss[-1]:.4f} (Algorithm 1), {expert.loss[-1]:.4f} (expert), "
            f"{blind.loss[-1]:.4f} (REGMIN, which always says about .5), as in Figure 2a"
        ),
        (
            f"adversary, after {ROUNDS}: ℓ2 calibration error {adversary.error[-1]:.4f} (Algorithm 1) against "
            f"{mean['adversary', 'expert'].error[-1]:.4f} (expert), squared loss {adversary.loss[-1]:.3f}: "
            f"calibrated and, "
            "there, not accurate, as in Figures 2c and 2d"
        ),
    ]
    return Section(
        text=[
            (
                "The paper gives Figure 2 no numbers. In the table of claims, *calibrated* is less than half the "
                "expert's error on the coin, less than a fifth against the adversary."
            ),
            (
                f"Figure 2: y ~ Ber(.5) with an expert that says .3 before 0 and .7 before 1 (coin), and an "
                f"opponent that "
                f"answers y = 1[E p ≤ .5] while the expert is noise (adversary). M = N = {RESOLUTION}, "
                f"internal regret by "
                f"`{REGMIN}`, mean of seeds {SEEDS[0]} to {SEEDS[-1]}. The opponent sees the "
                f"*expected* forecast: one "
                "who sees the draw, as the paper's formula reads, makes every algorithm wrong by .5."
            ),
            (
                f"Table 1: ℓ1 error against the same opponent with forecasts uniform on [0, 1], so that all M = N "
                f"buckets "
                f"are used; mean of seeds {RATE_SEEDS[0]} to {RATE_SEEDS[-1]}, T up to {TIMES[-1]:,}. The paper's "
                f"rates are "
                "upper bounds: ℓ1 falls like T^-1/2 down to the grid's resolution, and grows like N^1.5 "
                "(internal regret) "
                "or N (approachability)."
            ),
        ],
        findings=findings,
        tables=[
            TextTable(
                f"Figure 2 after {ROUNDS} rounds",
                ("sequence", "forecaster", "squared loss", "ℓ2 error after 300", f"ℓ2 error after {ROUNDS}"),
                [
                    (o, _NAMES[w], f"{path.loss[-1]:.4f}", f"{path.error[at]:.4f}", f"{path.error[-1]:.4f}")
                    for (o, w), path in mean.items()
                ],
            ),
            TextTable(
                "Table 1: ℓ1 error, and exponents fitted to it",
                ("subroutine", *(f"N = {n}" for n in GRIDS), *(f"T exponent, N = {n}" for n in GRIDS), "N exponent"),
                [
                    (
                        f"`{spec}`",
                        *(f"{errors[spec, n][-1]:.4f}" for n in GRIDS),
                        *(f"{slope(np.array(TIMES, float), errors[spec, n]):+.2f}" for n in GRIDS),
                        f"{slope(np.array(GRIDS, float), np.array([errors[spec, n][_EARLY] for n in GRIDS])):+.2f}",
                    )
                    for spec in SUBROUTINES
                ],
                f"Errors at T = {TIMES[-1]:,}; T exponents from T = {TIMES[0]:,} on; N exponent at T = "
                f"{TIMES[_EARLY]:,}.",
            ),
            TextTable(
                "Table 1: bytes of state",
                ("subroutine", *(f"N = {n}" for n in GRIDS)),
                [(f"`{spec}`", *(f"{rates[spec, n, 0].size:,}" for n in GRIDS)) for spec in SUBROUTINES],
                "Only touched cells are kept. No subroutine needs the N x N regrets of the paper in each bucket.",
            ),
        ],
        pictures=[
            (_paint_figure(mean, out), "Figure 2: loss and calibration error on a coin (a, b) and an adversary (c, d)"),
            (_paint_rates(errors, out), "Table 1: ℓ1 error against the adversary, by T, for M = N = 20"),
        ],
        claims=[
            Claim(
                _PAPER,
                "Figure 2a, b: a coin, an expert that is certain and not calibrated",
                "calibrated after 300 rounds, REGMIN at squared loss .25, Algorithm 1 near 0",
                f"ℓ2 error {ours.error[at]:.4f} (expert {expert.error[at]:.4f}); loss {blind.loss[-1]:.3f}, "
                f"{ours.loss[-1]:.3f}",
                judged(bool(ours.error[at] < 0.5 * expert.error[at] and ours.loss[-1] < 0.5 * blind.loss[-1])),
            ),
            Claim(
                _PAPER,
                "Figure 2c, d: an adversary",
                "calibrated, not accurate",
                f"ℓ2 error {adversary.error[-1]:.4f} (expert {mean['adversary', 'expert'].error[-1]:.4f}); an opponent "
                "who saw the draw would make any algorithm wrong by .5",
                judged(bool(adversary.error[-1] < 0.2 * mean["adversary", "expert"].error[-1])),
            ),
            Claim(
                _PAPER,
                "Table 1: calibration of the subroutines",
                "O(1 / (ε √(ε T))), O(1 / (ε √T))",
                "; ".join(
                    f"`{spec}` T^{slope(np.array(TIMES, float), errors[spec, GRIDS[-1]]):.2f} at N = {GRIDS[-1]}"
                    for spec in SUBROUTINES
                ),
                judged(all(slope(np.array(TIMES, float), errors[spec, GRIDS[-1]]) <= -0.4 for spec in SUBROUTINES)),
            ),
        ],
    )


def _paint_figure(mean: dict[tuple[str, str], Path2], out: Path) -> str:
    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        for i, opponent in enumerate(("coin", "adversary")):
            left, right = axes[i]
            for (name, who), path in mean.items():
                if name == opponent:
                    left.plot(np.arange(1, ROUNDS + 1), path.loss, label=_NAMES[who], linewidth=1.8)
                    right.plot(np.arange(1, ROUNDS + 1), path.error, linewidth=1.8)
            left.set(title=f"({'ac'[i]}) {opponent}: mean squared loss", ylim=(0, None))
            right.set(title=f"({'bd'[i]}) {opponent}: ℓ2 calibration error", ylim=(0, None))
            for axis in (left, right):
                axis.set(xlabel="rounds", xlim=(0, ROUNDS))
        axes[0, 0].legend(loc="center right")

    return picture.draw(
        out / "kuleshov-ermon-figure-2.png",
        paint,
        title="Kuleshov & Ermon, Figure 2, run again",
        rows=2,
        columns=2,
        size=(9.5, 6.6),
    )


def _paint_rates(errors: dict[tuple[str, int], Floats], out: Path) -> str:
    grid = 20

    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        axis = axes[0, 0]
        for spec in SUBROUTINES:
            axis.plot(TIMES, errors[spec, grid], marker="o", markersize=4, label=spec)
        guide = np.array(TIMES, float)
        root = 0.5 * errors[SUBROUTINES[0], grid][0] * (guide / guide[0]) ** -0.5
        axis.plot(guide, root, color=picture.GREY, ls="--", linewidth=1, label="T^-1/2")
        axis.axhline(1 / (2 * grid), color=picture.GREY, linewidth=1, ls=":", label="1 / 2N")
        picture.logarithmic(axis)
        axis.set(xlabel="T", ylabel="ℓ1 calibration error", xticks=TIMES, xticklabels=[f"{t:,}" for t in TIMES])
        axis.legend()

    return picture.draw(
        out / "kuleshov-ermon-table-1.png", paint, title="Table 1: error against the adversary, M = N = 20"
    )


EXPERIMENT = Experiment(
    "kuleshov-ermon", "Kuleshov & Ermon 2017: online recalibration by buckets, Figure 2 and Table 1", jobs, tell
)
