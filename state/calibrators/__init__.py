"""Calibrators: one algorithm a file, made by name."""

from state.calibrators.base import MAX_FEATURES, Answer, Calibrator, Prediction, Recalibrator
from state.calibrators.composition import Features, biases, features_of, internal_regret, played, unserved
from state.calibrators.options import Option, Value
from state.calibrators.registry import REGISTRY, VECTORS, check, grouped, kind, make, options_of

__all__ = [
    "MAX_FEATURES",
    "REGISTRY",
    "VECTORS",
    "Answer",
    "Calibrator",
    "Features",
    "Option",
    "Prediction",
    "Recalibrator",
    "Value",
    "biases",
    "check",
    "features_of",
    "grouped",
    "internal_regret",
    "kind",
    "make",
    "options_of",
    "played",
    "unserved",
]
