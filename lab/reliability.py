"""Scores of forecasts by their definitions; the demo compares the worker's figures with them."""

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
