"""Foster & Kakade, Calibration via Regression: footnote 1, and bias and regret against their bounds."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from research.experiments import picture
from research.experiments.base import Claim, Experiment, Job, Section, TextTable, judged, verdict
from research.experiments.measure import slope
from state.arrays import Floats
from state.calibrators import make

TIMES: Final = tuple(1000 * 2**k for k in range(6))
#: Number of overlapping subsequences x_i = 1, on which no bias may grow.
SUBSEQUENCES, SEEDS = 8, range(3)
OPPONENTS: Final = ("issued forecast", "switching", "coin")


def footnote(t: int) -> tuple[float, float]:
    """Return |Σ (ŷ - y)| of Algorithm 1 and of Algorithm 2 on T/2 zeros and then T/2 ones, with x = 1 always."""
    y = np.arange(t) >= t // 2
    # Ridge on a constant serves the sum of the outcomes so far, divided by one more than their number.
    before = np.concatenate([[0], np.cumsum(y)[:-1]])
    ridge = before / (1.0 + np.arange(t))
    calibrator = make("calibrated_regression")
    served = np.empty(t)
    for i, outcome in enumerate(y.tolist()):
        # A raw forecast of 0 is a feature that is always 0. So only ŷ and the constant are left, as in the footnote.
        served[i], _, ticket = calibrator.predict(0.0)
        calibrator.update(ticket, outcome)
    return abs(float(np.sum(ridge - y))), abs(float(np.sum(served - y)))


class Biases(NamedTuple):
    """Figures at each of `TIMES`: bias along each subsequence, its bounds, Brier regret to raw, and its bound."""

    #: [times, subsequences]: |Σ x_i (ŷ - y)|, sqrt((1 + Σ x_i²)(2 + ln det A)), and Corollary 4.1's.
    bias: Floats
    bound: Floats
    paper: Floats
    #: [times]
    regret: Floats
    regret_bound: Floats


def run(opponent: str, seed: int) -> Biases:
    """Play calibrated regression on overlapping subsequences."""
    d, last = SUBSEQUENCES, TIMES[-1]
    rng = np.random.default_rng((seed, 5))
    # Subsequence i takes one round in 2, 3, 4, ..., so all combinations of subsequences occur.
    x = (rng.random((last, d)) < 1 / np.arange(2, d + 2)).astype(np.float64)
    raw = rng.random(last)
    rate = np.where((np.arange(last) // 1000 % 2 == 1) == (x[:, 0] == 1), 0.9, 0.1)
    chance = rate if opponent == "switching" else np.full(last, 0.5)
    drawn = (rng.random(last) < chance).astype(np.float64)
    calibrator = make("calibrated_regression", features=d)
    served, y = np.empty(last), np.empty(last)
    for t, features in enumerate(map(tuple, x.tolist())):
        served[t], _, ticket = calibrator.predict(float(raw[t]), features)
        y[t] = served[t] <= 0.5 if opponent == "issued forecast" else drawn[t]
        calibrator.update(ticket, float(y[t]))
    f = np.column_stack([served, np.ones(last), raw, x])
    bias, bound, paper, regret, regret_bound = [], [], [], [], []
    for t in TIMES:
        log_det = float(np.linalg.slogdet(np.eye(d + 3) + f[:t].T @ f[:t])[1])
        count = x[:t].sum(axis=0)
        bias.append(np.abs(x[:t].T @ (served[:t] - y[:t])))
        bound.append(np.sqrt((1 + count) * (2 + log_det)))
        paper.append(2 * np.sqrt((count + 1) * (d + 3) * math.log(t + 1)))
        regret.append(np.sum((served[:t] - y[:t]) ** 2 - (raw[:t] - y[:t]) ** 2))
        regret_bound.append(4 + log_det)
    return Biases(*map(np.array, (bias, bound, paper, regret, regret_bound)))


def _runs() -> list[tuple[str, int]]:
    return [(opponent, seed) for opponent in OPPONENTS for seed in SEEDS]


def jobs() -> Sequence[Job]:
    """Return a job for footnote 1 at each T, then one for each opponent and seed."""
    notes: list[Job] = [partial(footnote, t) for t in TIMES]
    return notes + [partial(run, *arguments) for arguments in _runs()]


def tell(results: Sequence[Any], out: Path) -> Section:
    """Compare biases with their bounds."""
    ridge, calibrated = (np.array(each) for each in zip(*results[: len(TIMES)], strict=True))
    runs = dict(zip(_runs(), results[len(TIMES) :], strict=True))
    times = np.array(TIMES, float)
    held = sum(int((each.bias <= each.bound).all()) for each in runs.values())
    kept = sum(int((each.regret <= each.regret_bound).all()) for each in runs.values())
    tighter = max(float((each.bound / each.paper).max()) for each in runs.values())
    rows = []
    for opponent in OPPONENTS:
        biases = [runs[opponent, seed] for seed in SEEDS]
        worst = np.max([each.bias.max(axis=1) for each in biases], axis=0)
        share = max(float((each.bias[-1] / each.bound[-1]).max()) for each in biases)
        regret = max(float(each.regret[-1]) for each in biases)
        bound = max(float(each.regret_bound[-1]) for each in biases)
        rows.append(
            (
                opponent,
                f"{worst[-1]:,.1f}",
                f"{slope(times, worst):.2f}",
                f"{share:.2f}",
                f"{regret:+,.0f}",
                f"{bound:.0f}",
            )
        )
    return Section(
        text=[
            (
                "Footnote 1: x = 1 always, T/2 zeros and then T/2 ones. Ridge regression (Algorithm 1) "
                "serves about the "
                "mean so far and is biased by (T ln 2)/2; with its own answer among the features (Algorithm 2) it "
                "is not."
            ),
            (
                f"Bounds: {SUBSEQUENCES} overlapping subsequences, T up to {TIMES[-1]:,}, seeds {SEEDS[0]} to "
                f"{SEEDS[-1]}; "
                "one opponent answers the issued forecast, one switches its rates with the first "
                "subsequence every 1,000 "
                "rounds, one is a fair coin. The raw forecast is noise. Theorem 3.3 holds for every run, not in "
                "the mean."
            ),
        ],
        findings=[
            (
                f"footnote 1: bias T^{slope(times, ridge):.2f} for ridge ({ridge[-1]:,.0f} of T = {TIMES[-1]:,}; "
                f"(T ln 2)/2 = {TIMES[-1] * math.log(2) / 2:,.0f}), T^{slope(times, calibrated):.2f} for calibrated "
                f"regression "
                f"({calibrated[-1]:,.0f})"
            ),
            verdict(held, len(runs), "|Σ x_i (ŷ − y)| ≤ √((1 + Σ x_i²)(2 + ln det A)) for every i and T"),
            verdict(kept, len(runs), "Brier regret to the raw forecast ≤ 4 + ln det A at every T"),
            f"that bound is at most {tighter:.2f} of Corollary 4.1's",
        ],
        tables=[
            TextTable(
                "Footnote 1: |Σ (ŷ − y)|",
                ("T", *(f"{t:,}" for t in TIMES)),
                [
                    ("ridge (Algorithm 1)", *(f"{v:,.1f}" for v in ridge)),
                    ("calibrated regression (Algorithm 2)", *(f"{v:,.1f}" for v in calibrated)),
                ],
            ),
            TextTable(
                f"Worst subsequence and seed at T = {TIMES[-1]:,}",
                ("opponent", "bias", "exponent of T", "share of the bound", "Brier regret", "its bound"),
                rows,
            ),
        ],
        pictures=[(_paint(ridge, calibrated, runs, out), "footnote 1 (left); the worst bias as a share of its bound")],
        claims=[
            Claim(
                "Foster & Kakade",
                "footnote 1: Algorithm 1 is biased, Algorithm 2 is not",
                f"(T ln 2) / 2 = {TIMES[-1] * np.log(2) / 2:,.0f} at T = {TIMES[-1]:,}; less than T in order",
                f"{ridge[-1]:,.0f}, T^{slope(times, ridge):.2f}, and {calibrated[-1]:,.0f}, "
                f"T^{slope(times, calibrated):.2f}",
                judged(slope(times, calibrated) < 0.9 < slope(times, ridge)),
            ),
            Claim(
                "Foster & Kakade",
                "Theorem 3.3, Corollary 4.1: bias of every subsequence",
                "≤ 2 √((Σ x² + 1) d ln(T + 1))",
                f"below a bound that is at most {tighter:.2f} of it in {held} of {len(runs)} runs",
                judged(held == len(runs)),
            ),
        ],
    )


def _paint(ridge: Floats, calibrated: Floats, runs: dict[tuple[str, int], Biases], out: Path) -> str:
    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        left, right = axes[0]
        left.plot(TIMES, ridge, marker="o", color=picture.COLOURS[1], label="ridge, Algorithm 1")
        left.plot(TIMES, calibrated, marker="o", color=picture.COLOURS[0], label="calibrated regression, Algorithm 2")
        left.set(title="footnote 1: |Σ (ŷ − y)|", xlabel="T")
        picture.logarithmic(left)
        left.legend()
        for opponent in OPPONENTS:
            share = np.max(
                [(runs[opponent, seed].bias / runs[opponent, seed].bound).max(axis=1) for seed in SEEDS], axis=0
            )
            right.plot(TIMES, share, marker="o", label=opponent)
        right.axhline(1, color=picture.INK, ls="--", linewidth=1, label="bound")
        right.set(title="worst bias / bound", xlabel="T", xscale="log", ylim=(0, 1.05))
        right.minorticks_off()
        right.legend()
        for axis in (left, right):
            axis.set_xticks(TIMES, [f"{t // 1000}k" for t in TIMES])

    return picture.draw(
        out / "foster-kakade.png", paint, title="Foster & Kakade: calibration via regression", columns=2
    )


EXPERIMENT = Experiment(
    "foster-kakade", "Foster & Kakade: calibration via regression, footnote 1 and the bounds", jobs, tell
)
