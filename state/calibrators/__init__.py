"""Calibrators: one algorithm a file, made by name."""

from state.calibrators.base import MAX_FEATURES, Calibrator, Option, Prediction
from state.calibrators.registry import REGISTRY, check, make

__all__ = ["MAX_FEATURES", "REGISTRY", "Calibrator", "Option", "Prediction", "check", "make"]
