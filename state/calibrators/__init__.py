"""Calibrators: one algorithm a file, made by name."""

from state.calibrators.base import MAX_FEATURES, Answer, Calibrator, Prediction, Recalibrator
from state.calibrators.options import Option, Value
from state.calibrators.registry import REGISTRY, VECTORS, check, kind, make

__all__ = [
    "MAX_FEATURES",
    "REGISTRY",
    "VECTORS",
    "Answer",
    "Calibrator",
    "Option",
    "Prediction",
    "Recalibrator",
    "Value",
    "check",
    "kind",
    "make",
]
