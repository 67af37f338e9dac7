"""Calibrators of papers that nobody serves by: the experiments compare them with those that trueup has."""

from research.calibrators.approachability import Approachability
from research.calibrators.approachability_regret import ApproachabilityRegret
from research.calibrators.auto import Auto
from research.calibrators.beta import Beta
from research.calibrators.exponential_weights import ExponentialWeights
from state.calibrators import REGISTRY

CALIBRATORS = {each.name: each for each in (Approachability, ApproachabilityRegret, Auto, Beta, ExponentialWeights)}


def register() -> None:
    """Let `make` know them, in this process; raises ValueError if trueup itself has another of one name."""
    for name, each in CALIBRATORS.items():
        if REGISTRY.get(name, each) is not each:
            raise ValueError(f"state/calibrators has {name!r}, too: delete the one of research/calibrators")
    REGISTRY.update(CALIBRATORS)
