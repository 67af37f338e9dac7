"""The state of streams of classes and numbers as JSON, and the gauges that only they have."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import zip_longest
from operator import add
from typing import Any, Final

from state.scoring import vector_history
from state.scoring.class_scores import ClassScores
from state.scoring.comparison import LOSSES, Difference
from state.scoring.vector_history import WINDOW, VectorHistory, VectorScores
from state.scoring.windows import KINDS, Alarmed, overall
from streams.metrics import windows
from streams.metrics.figures import by_name, figures, of_figure, or_none
from streams.metrics.metric import shown

#: Metrics that only streams of classes and numbers have. They lack many that streams of probabilities have.
OF_VECTORS: Final = (
    shown(
        "resolved_vectors",
        "classes_or_numbers/resolved",
        "Resolved events whose forecasts were of classes or of a number",
    ),
    of_figure("classwise_ece", "Mean over the classes of their ECE against the rest"),
    of_figure("top_label_ece", "ECE of the highest probability of a forecast of classes"),
    shown(
        "top_label_auc",
        "classes_or_numbers/{kind}/auc",
        "Chance that a right answer had a higher probability than a wrong one, within windows of "
        f"{WINDOW}; an answer is the class of the highest probability",
        "if calibrated is far below raw, recalibration spoils which answers can be trusted",
    ),
    of_figure("accuracy", "Share of events whose class had the highest probability"),
    of_figure(
        "coverage_error",
        "Largest difference between how often outcomes lay at or below a quantile and its level",
        "if calibrated is above raw, outcomes are too few yet, or the stream drifts faster than the rate allows",
    ),
    shown("pinball_loss", "scored/{kind}/mean_pinball_loss", "Mean quantile loss over the levels, in units of y"),
    of_figure(
        "crps",
        "Continuous ranked probability score by the levels served, in units of y: twice the integral of the "
        "pinball loss over the levels",
    ),
    shown(
        "worst_window_error",
        "classes_or_numbers/{kind}/worst_window/error",
        "Largest coverage error (numbers), or ECE of the highest probability (classes), of any complete window of "
        f"{WINDOW} resolved events of a partition",
        "trueup streams show names the window and says what chance gives; the worst of a hundred has two to four "
        "times that",
    ),
    shown(
        "loss_difference",
        "scored/difference/{loss; 2}/mean",
        "Of classes and numbers: mean loss of what was served minus that of the raw forecast, on the same events",
        "above 0 by more than twice its error, recalibration does harm: serve raw, or compare by replay",
    ),
    shown(
        "loss_difference_error",
        "scored/difference/{loss; 2}/error",
        "Standard error of loss_difference, as if events were independent",
    ),
    of_figure("interval_width", "Mean width of the outermost central interval"),
    shown(
        "saturated_answers",
        "learning/saturated",
        "Answers that were learnt of which a quantile lay at the end of its range; the bound counts it as played",
        "while it grows, compare coverage_error with calibration_error: what is served covers less than is proven",
    ),
)

#: Words for the probabilities that class scores are about.
NORMALISED: Final = "The log loss of classes is of normalised, all their other scores are of probs as served."


def describe(found: Mapping[int, VectorHistory], since_ms: int | None = None) -> dict[str, Any]:
    """Return the scores of forecasts of classes, or of numbers, under one configuration.

    ``found``: histories by partition, at least one; ``since_ms``: as in `windows.alarm`.
    """
    alike = vector_history.alike(found.values())
    held = {partition: each for partition, each in found.items() if each in alike}
    scores: VectorScores = overall(alike)
    described: dict[str, Any] = {"resolved": scores.n, "partitions": len(alike)}
    for kind in KINDS:
        described[kind] = figures(scores, kind) | _lists(scores, kind)
        area = vector_history.auc(alike, kind)
        if not math.isnan(area.value):
            described[kind] |= {"auc": area.value, "auc_error": or_none(area.error)}
        placed, *_ = windows.describe(held, kind, "error", "noise")
        described[kind] |= {"alarm": windows.alarm(held, kind, since_ms)} | placed
    described["windows"] = _recent(each.recent for each in alike)
    described["difference"] = {loss: by_name(each) for loss, each in differences(scores).items()}
    return described


def _recent(found: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the errors of the last windows, each over all partitions together, the latest first."""
    return [
        {"n": total.n, "noise": total.noise("calibrated")} | {kind: total.error(kind) for kind in KINDS}
        for total in (reduce(add, filter(None, tallies)) for tallies in zip_longest(*found))
    ]


def differences(scores: VectorScores) -> dict[str, Difference]:
    """Return the mean difference of served and raw for each loss. Below 0, the served forecasts were better."""
    if isinstance(scores, ClassScores):
        return {loss: scores.difference(loss) for loss in LOSSES}
    return {"pinball": scores.difference()}


def _lists(scores: VectorScores, kind: Alarmed) -> dict[str, Any]:
    """Return the scores over all events that are more than one number. Classes have none."""
    if isinstance(scores, ClassScores):
        return {}
    return {
        "coverage": [
            {"level": level, "below": each.below, "upto": each.upto}
            for level, each in zip(scores.levels, scores.coverage(kind), strict=True)
        ],
        "pinball_loss": scores.pinball(kind),
        "interval_widths": scores.widths(kind),
        "transform": scores.pit(kind),
    }
