"""The decomposition of the Brier score."""

from typing import NamedTuple


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
