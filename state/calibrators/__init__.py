"""Calibrators: one algorithm a file, made by name."""

from state.calibrators.answer import Answer, Prediction
from state.calibrators.base import MAX_FEATURES, MOST_SLOTS, Calibrator, Recalibrator
from state.calibrators.options import Option, Value
from state.calibrators.registry import REGISTRY, VECTORS, check, grouped, kind, make, maker, options_of

__all__ = [
    "MAX_FEATURES",
    "MOST_SLOTS",
    "REGISTRY",
    "VECTORS",
    "Answer",
    "Calibrator",
    "Option",
    "Prediction",
    "Recalibrator",
    "Value",
    "check",
    "grouped",
    "kind",
    "make",
    "maker",
    "options_of",
]
