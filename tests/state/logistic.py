"""Probabilities, their log-odds and what they lose, beside what the product computes."""

import math


def logistic(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-z))


def logit(p: float) -> float:
    return math.log(p / (1.0 - p))


def log_loss(p: float, y: float) -> float:
    return -math.log(p if y > 0.5 else 1.0 - p)
