"""Losses that compare forecasts. All are proper: calibration cannot preserve others.

Brier score, log loss, and misclassification by the label that p predicts, which is 1 from one half on. At p = 1/2 both
labels have the same expected loss, so any rule for ties is proper. The formula in the paper has the two labels
exchanged. Kuleshov & Ermon 2017, *Estimating Uncertainty Online Against an Adversary*, Theorem 2, with Definition 2.
"""

import math
from typing import Final, Literal, get_args

from state.quick import log1p

#: Log loss clips forecasts to [1e-6, 1 - 1e-6], so that a certain but wrong forecast costs 13.8 nats, not infinity.
LOG_CLIP: Final = 1e-6

Name = Literal["brier", "log", "misclassification"]
NAMES: Final[tuple[Name, ...]] = get_args(Name)


def log(p: float, y: float) -> float:
    """Return -y log p - (1 - y) log(1 - p) in nats, p clipped by `LOG_CLIP`.

    The clipped loss is still proper: forecasts below the clip cost the same as the clip.
    """
    if p < LOG_CLIP:
        p = LOG_CLIP
    elif p > 1.0 - LOG_CLIP:
        p = 1.0 - LOG_CLIP
    if y == 1.0:
        return -math.log(p)
    if y == 0.0:
        return -log1p(-p)
    return -y * math.log(p) - (1.0 - y) * log1p(-p)
