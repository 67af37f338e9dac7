"""The losses for comparing forecasts. All are proper: calibration may raise a loss that is not proper."""

import math
from collections.abc import Callable
from typing import Final, Literal, get_args

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
        return -math.log1p(-p)
    return -y * math.log(p) - (1.0 - y) * math.log1p(-p)


def misclassification(p: float, y: float) -> float:
    """Return 1 if the label that p predicts is wrong, else 0; p predicts 1 from one half on, and 0 below.

    At p = 1/2 both labels have the same expected loss, so any rule for ties is proper. The formula in the paper has the
    two labels exchanged.
    """
    return 1.0 - y if p >= 0.5 else y


PROPER: Final[dict[Name, Loss]] = {"brier": brier, "log": log, "misclassification": misclassification}

#: Losses that people ask for and that are not proper: the loss, and a probability of 1 at which lying costs less.
NOT_PROPER: Final[dict[str, tuple[Loss, float, float]]] = {
    "absolute": (lambda p, y: abs(p - y), 1 / 3, 0.0),
    "hinge": (lambda p, y: max(0.0, 1.0 - (2.0 * p - 1.0) * (2.0 * y - 1.0)), 1 / 3, 0.0),
}


def named(name: str) -> Loss:
    """Return a proper loss by name.

    Raises
    ------
    ValueError
        If the loss is not proper, or unknown.

    References
    ----------
    Kuleshov & Ermon 2017, *Estimating Uncertainty Online Against an Adversary*, Theorem 2: for a loss that is not
    proper, no algorithm recalibrates without losing accuracy. Definition 2 defines proper losses.

    Examples
    --------
    >>> named("brier")(0.25, 1)
    0.5625
    >>> named("absolute")
    Traceback (most recent call last):
    ValueError: loss 'absolute' is not proper: at a chance of 0.333, forecasting 0 costs 0.333 and the truth 0.444. No \
calibrator can keep such a loss (Kuleshov & Ermon 2017, Theorem 2); proper ones are brier, log, misclassification
    """
    for proper, loss in PROPER.items():
        if proper == name:
            return loss
    allowed = ", ".join(NAMES)
    if name in NOT_PROPER:
        loss, chance, lie = NOT_PROPER[name]
        raise ValueError(
            f"loss {name!r} is not proper: at a chance of {chance:.3g}, forecasting {lie:.3g} costs "
            f"{expected(loss, lie, chance):.3f} and the truth {expected(loss, chance, chance):.3f}. No calibrator can "
            f"keep such a loss (Kuleshov & Ermon 2017, Theorem 2); proper ones are {allowed}"
        )
    raise ValueError(f"no loss is called {name!r}; there are {allowed}")


def expected(loss: Loss, p: float, chance: float) -> float:
    """Return the expected loss of forecast ``p`` when the outcome is 1 with probability ``chance``, and 0 otherwise."""
    return (1.0 - chance) * loss(p, 0.0) + chance * loss(p, 1.0)
