"""Losses that compare forecasts, and the parts of the Brier score. All are proper: calibration cannot preserve others.

Kuleshov & Ermon 2017, *Estimating Uncertainty Online Against an Adversary*, Theorem 2, with Definition 2.
"""

import math
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, get_args

from state.quick import log1p

#: Log loss clips forecasts to [1e-6, 1 - 1e-6], so that a certain and wrong forecast costs 13.8 nats, not infinity.
LOG_CLIP: Final = 1e-6

#: A loss of a forecast p in [0, 1] and an outcome y in [0, 1].
Loss = Callable[[float, float], float]
Name = Literal["brier", "log", "misclassification"]
NAMES: Final[tuple[Name, ...]] = get_args(Name)


def brier(p: float, y: float) -> float:
    """Return (p - y)²."""
    return (p - y) ** 2


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


def misclassification(p: float, y: float) -> float:
    """Return 1 if the label that p predicts is wrong, else 0. p predicts 1 from one half on, else 0.

    At p = 1/2 both labels have the same expected loss, so any rule for ties is proper. The formula in the paper has the
    two labels exchanged.
    """
    return 1.0 - y if p >= 0.5 else y


PROPER: Final[dict[Name, Loss]] = {"brier": brier, "log": log, "misclassification": misclassification}


class Murphy(NamedTuple):
    """The parts of a mean Brier score: ``reliability - resolution + uncertainty + variance - 2 covariance``.

    References
    ----------
    Stephenson, Coelho & Jolliffe 2008, *Two Extra Components in the Brier Score Decomposition*, eq. 6; Murphy 1973.
    """

    #: Squared distance of the bins' mean forecasts from their mean outcomes; 0 is calibrated.
    reliability: float
    #: Variance of the bins' mean outcomes: how well the forecasts separate events.
    resolution: float
    #: Variance of the outcomes, which the forecaster cannot change.
    uncertainty: float
    #: Of forecasts, and of forecasts and outcomes, within bins. Without them the sum is not exactly the Brier score.
    variance: float
    covariance: float
