"""Deshpande, Marx & Kuleshov: coverage of recalibrated quantiles, and how often their levels cross."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import numpy as np

from research.experiments import picture
from research.experiments.base import Claim, Experiment, Job, Section, TextTable, judged, verdict
from research.experiments.levels import Levels, Way
from state.arrays import Floats

#: Eleven levels, T, steps η, and a seed a stream.
P: Final = np.array([0.05, *np.arange(1, 10) / 10, 0.95])
ROUNDS, RATES, SEED = 10_000, (0.005, 0.05, 0.5), 11
STREAMS: Final = ("right", "overconfident", "drifting", "opponent")


class QuantileRun(NamedTuple):
    """Largest |coverage - p|, its largest share of the bound, share of steps with crossed levels, and its path."""

    error: float
    share: float
    crossed: float
    path: Floats


def transforms(stream: str) -> Floats:
    """Return the probability integral transforms u of a stream, [rounds]."""
    rng = np.random.default_rng((SEED, STREAMS.index(stream)))
    if stream == "right":
        return rng.random(ROUNDS)
    # A forecast with half the true standard deviation, or with a bias that swings by two of them.
    z = rng.normal(0.0, 1.0, ROUNDS)
    z = 2 * z if stream == "overconfident" else z + 2 * np.sin(np.arange(ROUNDS) / 500)
    return np.interp(z, *_NORMAL)


def _normal() -> tuple[Floats, Floats]:
    """Return the distribution function of the normal distribution as a table."""
    from statistics import NormalDist  # noqa: PLC0415 - for this table only

    z = np.linspace(-9, 9, 3601)
    return z, np.array([NormalDist().cdf(each) for each in z])


_NORMAL: Final = _normal()


def run(way: Way, rate: float, stream: str) -> QuantileRun:
    """Play one stream; the opponent puts u just above whichever level lags its coverage least."""
    levels = Levels(P, rate, way)
    u = None if stream == "opponent" else transforms(stream)
    crossed, path, share = 0, np.empty(ROUNDS), 0.0
    for t in range(ROUNDS):
        play = levels.play()
        crossed += bool((np.diff(play) < 0).any())
        if u is None:
            # Miss the level that is covered too rarely already.
            worst = int(np.argmin(levels.covered / max(levels.n, 1) - P))
            levels.update(play, float(np.clip(np.nextafter(play[worst], 2), 0, 1)))
        else:
            levels.update(play, float(u[t]))
        error = levels.error()
        share = max(share, float((error / levels.bound()).max()))
        path[t] = error.max()
    return QuantileRun(float(path[-1]), share, crossed / ROUNDS, path)


def _runs() -> list[tuple[Way, float, str]]:
    return [(way, rate, stream) for way in get_args(Way) for rate in RATES for stream in STREAMS]


def jobs() -> Sequence[Job]:
    """Return a job for each variant, step and stream."""
    return [partial(run, *arguments) for arguments in _runs()]


def lemma_4() -> tuple[float, float]:
    """Return R(.4) and R(.6) after u = .9, .25 from q0 = 0 with η = .5: the lemma says they never cross."""
    p, q = np.array([0.4, 0.6]), np.zeros(2)
    for u in (0.9, 0.25):
        q += 0.5 * (p - (u <= q))
    return float(q[0]), float(q[1])


def tell(results: Sequence[Any], out: Path) -> Section:
    """Tabulate coverage, bounds and crossings."""
    runs = dict(zip(_runs(), results, strict=True))
    checked = [(key, each) for key, each in runs.items() if key[0] != "sorted"]
    held = sum(each.share <= 1 for _, each in checked)
    crossing = [each.crossed for (way, *_), each in runs.items() if way == "crossing"]
    chain = [each.crossed for (way, *_), each in runs.items() if way == "chain"]
    unsorted = max(each.error for (way, *_), each in runs.items() if way == "sorted")
    low, high = lemma_4()
    return Section(
        text=[
            (
                f"Levels {', '.join(f'{p:g}' for p in P)}, T = {ROUNDS:,}, seed {SEED}; transforms of outcomes "
                f"under a right "
                "forecast, one with half the deviation, one whose bias swings by two deviations, and "
                "from an opponent who "
                "sees what is played and puts the outcome just above the level that is covered too rarely already. "
                "*Crossing* is the paper's algorithm, *sorted* sorts what it plays, *chain* is what "
                "`quantile` serves. "
                "A local reference plays all three; the calibrator has tests of its own."
            ),
            (
                f"Lemma 4 says that levels never cross. After u = .9, .25 from q0 = 0 with η = .5: R(.4) = {low:.1f}, "
                f"R(.6) = {high:.1f}."
            ),
        ],
        findings=[
            verdict(
                held,
                len(checked),
                "|coverage − p| ≤ (1 + (1+h) η) / (η T) for every level at every T, crossing and chain",
            ),
            (
                f"levels cross in {min(crossing):.1%} to {max(crossing):.1%} of steps without the chain, "
                f"in {max(chain):.1%} with it"
            ),
            f"sorting keeps the order and loses coverage: off by up to {unsorted:.3f}",
        ],
        tables=[
            TextTable(
                f"Largest |coverage − p| at T = {ROUNDS:,}, and steps with crossed levels",
                ("η", "stream", "crossing", "steps crossed", "sorted", "chain", "bound of the chain"),
                [
                    (
                        f"{rate:g}",
                        stream,
                        f"{runs['crossing', rate, stream].error:.4f}",
                        f"{runs['crossing', rate, stream].crossed:.1%}",
                        f"{runs['sorted', rate, stream].error:.4f}",
                        f"{runs['chain', rate, stream].error:.4f}",
                        f"{(1 / rate + 1 + len(P) // 2) / ROUNDS:.4f}",
                    )
                    for rate in RATES
                    for stream in STREAMS
                ],
            )
        ],
        pictures=[(_paint(runs, out), "largest error of coverage over time, η = .05")],
        claims=[
            Claim(
                "Deshpande, Marx & Kuleshov",
                "Theorem: coverage of every level on any sequence",
                "|coverage − p| ≤ (1 + η) / (η T)",
                f"held with h η more for the chain, in {held} of {len(checked)} runs",
                judged(held == len(checked)),
            ),
            Claim(
                "Deshpande, Marx & Kuleshov",
                "Lemma 4: levels never cross",
                "never",
                f"in {min(crossing):.0%} to {max(crossing):.0%} of steps; R(.4) = {low:.1f}, R(.6) = {high:.1f}",
                judged(max(crossing) == 0.0),
            ),
        ],
    )


def _paint(runs: dict[tuple[Way, float, str], QuantileRun], out: Path) -> str:
    rate = 0.05

    def paint(axes: Any) -> None:  # noqa: ANN401 - an array of axes
        t = np.arange(1, ROUNDS + 1)
        for axis, stream in zip(axes[0], STREAMS, strict=True):
            for way, colour in zip(get_args(Way), (2, 1, 0), strict=True):
                path = np.maximum(runs[way, rate, stream].path, 1e-5)
                axis.plot(t[9:], path[9:], label=way, color=picture.COLOURS[colour], linewidth=1.4)
            axis.plot(
                t[9:], np.minimum((1 / rate + 1 + len(P) // 2) / t[9:], 1), color=picture.INK, ls="--", label="bound"
            )
            picture.logarithmic(axis)
            axis.set(title=stream, xlabel="T", ylim=(1e-4, 1.2))
        axes[0, 0].set_ylabel("largest |coverage − p|")
        axes[0, 0].legend(loc="lower left")

    return picture.draw(
        out / "quantiles.png",
        paint,
        title=f"Quantile recalibration, eleven levels, η = {rate:g}",
        columns=len(STREAMS),
        size=(12.5, 4.2),
        sharey=True,
    )


EXPERIMENT = Experiment(
    "quantiles", "Deshpande, Marx & Kuleshov: coverage of recalibrated quantiles, and crossing levels", jobs, tell
)
