"""The state of streams of classes and numbers: as JSON, and as samples for gauges."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import zip_longest
from operator import add
from statistics import fmean
from typing import Any, Final

from state.scoring import vector_history
from state.scoring.class_scores import ClassScores
from state.scoring.comparison import LOSSES, Difference
from state.scoring.vector_history import WINDOW, VectorHistory, VectorScores
from state.scoring.windows import KINDS, Alarmed, overall
from streams.metrics import windows
from streams.metrics.figures import by_name, or_none
from streams.metrics.metric import Sample, gauge

#: Metrics that only streams of classes and numbers have. They have fewer others than streams of probabilities.
OF_VECTORS: Final = (
    gauge("resolved_vectors{stream}", "Resolved events whose forecasts were of classes or of a number", series=1),
    gauge("classwise_ece{stream, kind}", "Mean over the classes of their ECE against the rest", series=2),
    gauge("top_label_ece{stream, kind}", "ECE of the highest probability of a forecast of classes", series=2),
    gauge(
        "top_label_auc{stream, kind}",
        "Chance that a right answer had a higher probability than a wrong one, within windows of "
        f"{WINDOW}; an answer is the class of the highest probability",
        "if calibrated is far below raw, recalibration spoils which answers can be trusted",
        series=2,
    ),
    gauge("accuracy{stream, kind}", "Share of events whose class had the highest probability", series=2),
    gauge(
        "coverage_error{stream, kind}",
        "Largest difference between how often outcomes lay at or below a quantile and its level",
        "if calibrated is above raw, outcomes are too few yet, or the stream drifts faster than the rate allows",
        series=2,
    ),
    gauge("pinball_loss{stream, kind}", "Mean quantile loss over the levels, in units of y", series=2),
    gauge(
        "crps{stream, kind}",
        "Continuous ranked probability score by the levels served, in units of y: twice the integral of the "
        "pinball loss over the levels",
        series=2,
    ),
    gauge(
        "worst_window_error{stream, kind}",
        "Largest coverage error (numbers), or ECE of the highest probability (classes), of any complete window of "
        f"{WINDOW} resolved events of a partition",
        "trueup streams show names the window and says what chance gives; the worst of a hundred has two to four "
        "times that",
        series=2,
    ),
    gauge(
        "loss_difference{stream, loss}",
        "Of classes and numbers: mean loss of what was served minus that of the raw forecast, on the same events",
        "above 0 by more than twice its error, recalibration does harm: serve raw, or compare by replay",
        series=2,
    ),
    gauge(
        "loss_difference_error{stream, loss}",
        "Standard error of loss_difference, as if events were independent",
        series=2,
    ),
    gauge("interval_width{stream, kind}", "Mean width of the outermost central interval", series=2),
    gauge(
        "saturated_answers{stream}",
        "Answers that were learnt of which a quantile lay at the end of its range; the bound counts it as played",
        "while it grows, compare coverage_error with calibration_error: what is served covers less than is proven",
        series=1,
    ),
)

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
    described["windows"] = _recent(each.recent for each in alike)
    described["difference"] = {loss: by_name(each) for loss, each in differences(scores).items()}
    return described


def _recent(found: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the errors of the last windows, each of all partitions together, the latest first."""
    return [
        {"n": total.n, "noise": total.noise("calibrated")} | {kind: total.error(kind) for kind in KINDS}
        for total in (reduce(add, filter(None, tallies)) for tallies in zip_longest(*found))
    ]


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
        for name, figure in _MEANS.items():
            if figure in scores:
                yield name, (stream, kind), scores[figure]
        if "pinball_loss" in scores:
            yield "pinball_loss", (stream, kind), fmean(scores["pinball_loss"])
            yield "interval_width", (stream, kind), scores["interval_widths"][0]
        yield "alarm_log10", (stream, kind), scores["alarm"]["log10"]
        if kind == "calibrated":
            yield "alarm_recent_log10", (stream, kind), scores["alarm"]["recent_log10"]
        if "worst_window" in scores:
            yield "worst_window_error", (stream, kind), scores["worst_window"]["error"]
    for loss, difference in described["difference"].items():
        for name, figure in (("loss_difference", "mean"), ("loss_difference_error", "error")):
            if difference[figure] is not None:
                yield name, (stream, loss), difference[figure]
