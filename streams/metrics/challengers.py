"""Challengers beside their champions: for gauges, ``streams show`` and ``streams promote``."""

from collections.abc import Mapping
from typing import Any

from state.scoring.comparison import LOSSES, SIDES, Comparison
from state.scoring.pair_scores import AnyComparison, PairScores
from state.scoring.scores import Scores
from state.scoring.windows import KINDS, Alarmed
from streams.metrics.figures import by_name, or_none

#: Configurations of a champion and its challenger.
Pair = tuple[str, str]


def describe(pair: Pair, comparison: AnyComparison, named: Mapping[str, str]) -> dict[str, Any]:
    """Return both sides of a comparison and their difference, as in the JSON.

    For classes, ``ece`` is the ECE of the likeliest class; for numbers, the coverage error. Neither kind has ``auc``.
    """
    scores = comparison.scores if isinstance(comparison, Comparison) else comparison
    described: dict[str, Any] = {"events": comparison.n}
    for config, (side, _), kind in zip(pair, SIDES, KINDS, strict=True):
        described[side] = {
            "calibrator": named.get(config),
            "config": config,
            "ece": or_none(scores.error(kind)),
            "ece_noise": or_none(scores.noise(kind)),
            **_figures(scores, kind),
        }
    compared: Any = comparison
    losses = LOSSES if isinstance(comparison, Comparison) else comparison.losses
    described["difference"] = {loss: by_name(compared.difference(loss)) for loss in losses}
    return described


def _figures(scores: Scores | PairScores, kind: Alarmed) -> dict[str, Any]:
    """Return the figures that only probabilities have, or those that only classes and numbers have."""
    if isinstance(scores, Scores):
        auc = scores.ranking(kind).auc().value
        found = {"brier": scores.brier(kind), "log_loss": scores.log_loss(kind), "auc": auc}
        return {name: or_none(value) for name, value in found.items()}
    return {
        "accuracy": or_none(scores.accuracy(kind)),
        "loss": {name: or_none(scores.loss(name, kind)) for name in scores.losses},
    }
