"""Calibrators: one algorithm a file, made by name."""

from state.calibrators.base import MAX_FEATURES, Calibrator, Prediction
from state.calibrators.options import Option, Value
from state.calibrators.registry import REGISTRY, check, make

__all__ = ["MAX_FEATURES", "REGISTRY", "Calibrator", "Option", "Prediction", "Value", "check", "make"]
