"""Scores of forecasts, written from their definitions and independent of `state.scoring.scores`."""

from typing import NamedTuple, Self

import numpy as np

from lab.experiments.play import Stream
from lab.reliability import bin_of, loss
from state.arrays import Floats, Integers
from state.scoring.scores import BINS, LOG_CLIP

#: Number of bootstrap resamples.
RESAMPLES = 2000


def l1(p: Floats, y: Floats) -> float:
    """Return Σ_v |Σ_{t: p_t = v} (y_t - v)| / T, the ℓ1 calibration error of served values, [n] each."""
    values, index = np.unique(p, return_inverse=True)
    return float(np.abs(np.bincount(index, weights=y - p, minlength=len(values))).sum() / len(p))


def l2_path(p: Floats, y: Floats) -> Floats:
    """Return C_t, the ℓ2 calibration error Σ_v n_v (mean of y where v was served - v)² / t, after each t, [n]."""
    path, total = np.empty(len(p)), 0.0
    cells: dict[float, tuple[int, float]] = {}
    for t, (v, outcome) in enumerate(zip(p.tolist(), y.tolist(), strict=True)):
        n, off = cells.get(v, (0, 0.0))
        total -= off * off / n if n else 0.0
        n, off = n + 1, off + outcome - v
        total += off * off / n
        cells[v] = n, off
        path[t] = total / (t + 1)
    return path


def slope(x: Floats, y: Floats) -> float:
    """Return the exponent b of the fit y ~ x^b by least squares on logarithms; NaN unless all are positive."""
    if not ((x > 0).all() and (y > 0).all()):
        return float("nan")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


class Measured(NamedTuple):
    """Scores of served forecasts: ECE in all and in the worst window, Brier, log loss in nats, total Brier regret."""

    ece: float
    worst: float
    brier: float
    log_loss: float
    regret: float


def measure(p: Floats, stream: Stream) -> Measured:
    """Score the served forecasts, [n], of rows with outcomes; windows do not overlap."""
    known = ~np.isnan(stream.y)
    served, y, raw = p[known], stream.y[known], stream.p[known]
    whole = loss(served, y)
    starts = range(0, len(y) - stream.window + 1, stream.window)
    worst = max(loss(served[i : i + stream.window], y[i : i + stream.window]).ece for i in starts)
    regret = float(np.sum((served - y) ** 2) - np.sum((raw - y) ** 2))
    return Measured(whole.ece, worst, whole.brier, whole.log_loss, regret)


class Blocks(NamedTuple):
    """Sums over blocks of consecutive rows; any resample of blocks can be scored from them.

    Attributes
    ----------
    n
        Number of rows, [blocks].
    gap
        Σ (p - y) in each bin of p, [blocks, 10].
    brier, log_loss
        Sums of the losses, [blocks].
    """

    n: Floats
    gap: Floats
    brier: Floats
    log_loss: Floats

    @classmethod
    def of(cls, p: Floats, stream: Stream) -> Self:
        """Return the sums of served forecasts over blocks of a quarter of the stream's window."""
        known = ~np.isnan(stream.y)
        served, y = p[known], stream.y[known]
        block = np.arange(len(y)) // (stream.window // 4)
        count = int(block[-1]) + 1
        clipped = np.clip(served, LOG_CLIP, 1 - LOG_CLIP)
        cells = block * BINS + bin_of(served)

        def total(index: Integers, weights: Floats, length: int) -> Floats:
            return np.bincount(index, weights, length).astype(np.float64)

        return cls(
            np.bincount(block).astype(np.float64),
            total(cells, served - y, count * BINS).reshape(count, BINS),
            total(block, (served - y) ** 2, count),
            total(block, -np.where(y == 1, np.log(clipped), np.log1p(-clipped)), count),
        )

    def scores(self, weights: Floats) -> Floats:
        """Return ECE, Brier score and log loss of resamples, [resamples, 3], from the counts of each block in each."""
        n = weights @ self.n
        ece = np.abs(weights @ self.gap).sum(axis=1)
        return np.column_stack([ece, weights @ self.brier, weights @ self.log_loss]) / n[:, None]


class DifferenceInterval(NamedTuple):
    """A difference with its 95 % interval."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return it with four decimals, bold if the interval excludes 0."""
        text = f"{self.middle:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"
        return f"**{text}**" if self.low > 0 or self.high < 0 else text


def differences(
    one: Blocks, other: Blocks, seed: int
) -> tuple[DifferenceInterval, DifferenceInterval, DifferenceInterval]:
    """Return ECE, Brier score and log loss of ``one`` minus ``other``'s, by a paired block bootstrap.

    Both are scored on the same resamples of whole blocks, which keeps the dependence of neighbouring rows. The
    percentile intervals show the variation of the data, not that of the seeds of a randomised calibrator.
    """
    count = len(one.n)
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    resampled = one.scores(weights.astype(np.float64)) - other.scores(weights.astype(np.float64))
    middle = (one.scores(np.ones((1, count))) - other.scores(np.ones((1, count))))[0]
    low, high = np.quantile(resampled, [0.025, 0.975], axis=0)
    ece, brier, log_loss = (DifferenceInterval(*each) for each in np.column_stack([middle, low, high]).tolist())
    return ece, brier, log_loss
