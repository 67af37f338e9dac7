"""The decomposition of the Brier score."""

from typing import NamedTuple


class Murphy(NamedTuple):
    """The parts of a mean Brier score: ``reliability - resolution + uncertainty + variance - 2 covariance``.

    Attributes
    ----------
    reliability
        Squared distance of the bins' mean forecasts from their mean outcomes; 0 is calibrated.
    resolution
        Variance of the bins' mean outcomes: how well the forecasts separate events.
    uncertainty
        Variance of the outcomes, which the forecaster cannot change.
    variance, covariance
        Of forecasts, and of forecasts and outcomes, within bins. Without them the sum is not exactly the Brier score.

    References
    ----------
    Stephenson, Coelho & Jolliffe 2008, *Two Extra Components in the Brier Score Decomposition*, eq. 6; Murphy 1973.
    """

    reliability: float
    resolution: float
    uncertainty: float
    variance: float
    covariance: float
