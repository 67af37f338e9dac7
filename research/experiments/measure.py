"""Scores of forecasts, written from their definitions and independent of `state.scoring.scores`."""

from typing import NamedTuple

import numpy as np

from replay import bootstrap
from replay.measure import errors
from replay.result import MetricDifference
from research.experiments.play import Stream
from state.arrays import Floats


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
    whole = errors(served, y)
    starts = range(0, len(y) - stream.window + 1, stream.window)
    worst = max(errors(served[i : i + stream.window], y[i : i + stream.window]).ece for i in starts)
    regret = float(np.sum((served - y) ** 2) - np.sum((raw - y) ** 2))
    return Measured(whole.ece, worst, whole.brier, whole.log_loss, regret)


def brier_difference(p: Floats, stream: Stream) -> MetricDifference:
    """Return the Brier score of served forecasts, [n], less that of the raw ones, with its 95 % interval.

    Rows without outcomes are left out; at least `replay.bootstrap.FEWEST` must be left. Blocks are a quarter of the
    stream's window. The interval shows the variation of the data, not that of the seeds of a randomised calibrator.
    """
    known = ~np.isnan(stream.y)
    how = bootstrap.plan(np.flatnonzero(known), stream.window // 4)
    if how is None:
        raise ValueError(f"fewer than {bootstrap.FEWEST} rows with outcomes")
    both = bootstrap.Resampled(how, stream.y[known], {"served": p[known], "raw": stream.p[known]})
    return next(each for each in both.differences([("served", "raw")]) if each.metric == "brier")
