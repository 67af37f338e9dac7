"""The state of streams of classes and numbers: as JSON, and as samples for gauges."""

import math
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any, Final

from state.scoring import vector_history
from state.scoring.class_scores import ClassScores
from state.scoring.comparison import LOSSES, Difference
from state.scoring.vector_history import VectorHistory, VectorScores
from state.scoring.windows import KINDS, Alarmed, overall
from streams.metrics import windows
from streams.metrics.figures import by_name, or_none
from streams.metrics.metric import Sample

#: Gauges that are means of each kind of forecast, with the name of the figure they show.
_MEANS: Final = {
    "classwise_ece": "classwise_ece",
    "top_label_ece": "top_label_ece",
    "top_label_auc": "auc",
    "accuracy": "accuracy",
    "coverage_error": "coverage_error",
    "crps": "crps",
    "brier": "brier",
    "log_loss": "log_loss",
}

#: Which probabilities the scores of classes are of, in words.
NORMALISED: Final = "The log loss of classes is of normalised, all their other scores are of probs as served."


def describe(found: Mapping[int, VectorHistory], since_ms: int | None = None) -> dict[str, Any]:
    """Return the scores of forecasts of classes, or of numbers, under one configuration.

    ``found``: by partition, at least one; ``since_ms`` as `windows.alarm` has it.
    """
    alike = vector_history.alike(found.values())
    held = {partition: each for partition, each in found.items() if each in alike}
    scores: VectorScores = overall(alike)
    described: dict[str, Any] = {"resolved": scores.n, "partitions": len(alike)}
    for kind in KINDS:
        described[kind] = _figures(scores, kind)
        area = vector_history.auc(alike, kind)
        if not math.isnan(area.value):
            described[kind] |= {"auc": area.value, "auc_error": or_none(area.error)}
        described[kind] |= {"alarm": windows.alarm(held, kind, since_ms)} | windows.describe(
            held, kind, "error", "noise"
        )
    described["difference"] = {loss: by_name(each) for loss, each in differences(scores).items()}
    return described


def differences(scores: VectorScores) -> dict[str, Difference]:
    """Return for each loss the mean difference of served and raw; below 0 the served forecasts were better."""
    if isinstance(scores, ClassScores):
        return {loss: scores.difference(loss) for loss in LOSSES}
    return {"pinball": scores.difference()}


def _figures(scores: VectorScores, kind: Alarmed) -> dict[str, Any]:
    """Return the scores of all events."""
    if isinstance(scores, ClassScores):
        return {
            "classwise_ece": scores.classwise_ece(kind),
            "top_label_ece": scores.error(kind),
            "accuracy": scores.accuracy(kind),
            "brier": scores.brier(kind),
            "log_loss": scores.log_loss(kind),
        }
    return {
        "coverage_error": scores.error(kind),
        "crps": scores.crps(kind),
        "coverage": [
            {"level": level, "below": each.below, "upto": each.upto}
            for level, each in zip(scores.levels, scores.coverage(kind), strict=True)
        ],
        "pinball_loss": scores.pinball(kind),
        "interval_widths": scores.widths(kind),
        "transform": scores.pit(kind),
    }


def samples(stream: str, described: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield the samples of what `describe` described."""
    yield "resolved_vectors", (stream,), described["resolved"]
    yield "scored_partitions", (stream,), described["partitions"]
    for kind in KINDS:
        scores = described[kind]
        for gauge, figure in _MEANS.items():
            if figure in scores:
                yield gauge, (stream, kind), scores[figure]
        if "pinball_loss" in scores:
            yield "pinball_loss", (stream, kind), fmean(scores["pinball_loss"])
            yield "interval_width", (stream, kind), scores["interval_widths"][0]
        yield "alarm_log10", (stream, kind), scores["alarm"]["log10"]
        if kind == "calibrated":
            yield "alarm_recent_log10", (stream, kind), scores["alarm"]["recent_log10"]
        if "worst_window" in scores:
            yield "worst_window_error", (stream, kind), scores["worst_window"]["error"]
    for loss, difference in described["difference"].items():
        for gauge, figure in (("loss_difference", "mean"), ("loss_difference_error", "error")):
            if difference[figure] is not None:
                yield gauge, (stream, loss), difference[figure]
