"""Scores of forecasts by their definitions: what a demo holds the worker's figures against."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from state.arrays import Floats
from state.scoring.cells import BINS
from state.scoring.losses import LOG_CLIP


class ReliabilityErrors(NamedTuple):
    """Scores of forecasts: ECE in ten bins, Brier score, log loss in nats."""

    ece: float
    brier: float
    log_loss: float


def bin_of(p: Floats) -> npt.NDArray[np.int64]:
    """Return the bin of each forecast; 1.0 is in the last bin."""
    return np.minimum((p * BINS).astype(np.int64), BINS - 1)


def loss(p: Floats, y: Floats) -> ReliabilityErrors:
    """Score forecasts ``p`` in [0, 1] against outcomes ``y`` in {0, 1}, [n] each; NaN if there are none.

    This follows the definitions and does not use `state.scoring.scores`, so the demo can check the worker's figures.
    """
    if not len(p):
        return ReliabilityErrors(np.nan, np.nan, np.nan)
    gap = np.bincount(bin_of(p), weights=p - y, minlength=BINS)
    clipped = np.clip(p, LOG_CLIP, 1 - LOG_CLIP)
    return ReliabilityErrors(
        float(np.abs(gap).sum() / len(p)),
        float(np.mean((p - y) ** 2)),
        float(-np.mean(y * np.log(clipped) + (1 - y) * np.log1p(-clipped))),
    )


def auc(p: Floats, y: Floats) -> float:
    """Return the AUC: the chance that an event of outcome 1 has the higher forecast, ties half; NaN without both.

    It uses the events themselves, where `state.scoring.ranking` uses counts by cell.
    """
    ones = float(y.sum())
    zeros = len(y) - ones
    if not ones or not zeros:
        return float("nan")
    _, place, counts = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((rank[y == 1.0].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def mean_off(p: Floats, y: Floats) -> float:
    """Return (Σp - Σy) / Σy; NaN before an outcome above 0."""
    return float((p.sum() - y.sum()) / y.sum()) if y.sum() else float("nan")
