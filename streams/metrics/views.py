"""What a worker tells of each stream: views of its rows, added up over the partitions it holds."""

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Final

from state import rows
from state.calibrators import played
from state.calibrators.points import noise
from state.policy import Policy
from state.rows import Served, VectorScores
from state.scoring import history
from state.scoring.ages import Ages, findings, late
from state.scoring.certificate import certificate
from state.scoring.class_scores import ClassScores
from state.scoring.history import KINDS, History
from state.scoring.losses import NAMES
from state.scoring.order import Within
from state.scoring.ranking import VOLUMES
from state.scoring.scores import Kind, Scores, total
from streams.metrics.sums import Sample

#: Shares of the outcomes whose ages are told, and the labels whose ages are told.
SHARES: Final = (0.5, 0.99)
LABELS: Final = (0, 1)


def scored(label: str, scores: Scores) -> Iterator[Sample]:
    """Yield the scores of all events."""
    yield "resolved", (label,), scores.n
    if not scores.n:
        return
    for kind in scores.kinds:
        yield "ece", (label, kind), scores.ece(kind)
        yield "ece_noise", (label, kind), scores.noise(kind)
        yield "smooth_ece", (label, kind), scores.smooth_ece(kind)
        yield "certificate", (label, kind), certificate(scores.ranking(kind))
        relative = scores.relative_error(kind)
        if not math.isnan(relative):
            yield "relative_error", (label, kind), relative
            yield "relative_error_noise", (label, kind), scores.relative_noise(kind)
        yield "brier", (label, kind), scores.loss("brier", kind)
        yield "log_loss", (label, kind), scores.loss("log", kind)
        yield "misclassification", (label, kind), scores.loss("misclassification", kind)
    for loss in NAMES:
        yield "regret", (label, loss), scores.regret(loss)


def _ranked(label: str, kind: Kind, ranking: Within) -> Iterator[Sample]:
    """Yield how forecasts tell events apart; nothing before both outcomes have come."""
    area = ranking.auc()
    if math.isnan(area.value):
        return
    yield "auc", (label, kind), area.value
    if not math.isnan(area.error):
        yield "auc_error", (label, kind), area.error
    yield "ks", (label, kind), ranking.ks()
    for volume in VOLUMES:
        yield "recall", (label, kind, f"{volume:g}"), ranking.at(volume)[0].value


def aged(label: str, ages: Ages, policy: Policy | None) -> Iterator[Sample]:
    """Yield how old outcomes are when they come, and whether that fits what the stream is configured to do."""
    for each in LABELS:
        if ages.n(each):
            for share in SHARES:
                yield "outcome_age_seconds", (label, str(each), f"{share:g}"), ages.quantile(each, share) / 1000
    apart = ages.apart()
    if not math.isnan(apart):
        yield "label_age_difference", (label,), apart
    if policy is None:
        return
    if ages.total:
        yield "late_outcomes_ratio", (label,), late(ages, policy.ttl_ms)
    silence = policy.silence is not None
    for finding in findings(ages, policy.ttl_ms, policy.matures_ms, silence=silence):
        yield "label_finding", (label, finding.name), 1.0


def watched(label: str, found: list[History]) -> Iterator[Sample]:
    """Yield what windows and alarms say, of the partitions of a stream or of several streams."""
    order = history.ranked(found)
    for kind in total(each.total for each in found).kinds:
        yield from _ranked(label, kind, order.ranking(kind))
        worst = history.worst(found, kind)
        if worst is not None:
            yield "worst_window_ece", (label, kind), worst.scores.ece(kind)
    for kind in KINDS:
        yield "alarm_log10", (label, kind), history.log_alarm(found, kind) / math.log(10.0)
        yield "alarm_recent_log10", (label, kind), history.log_recent(found, kind) / math.log(10.0)
        biased = [abs(along) for each in found for along in each.bias.along(kind)]
        if biased:
            yield "feature_bias", (label, kind), max(biased)


def vectors(label: str, found: list[VectorScores]) -> Iterator[Sample]:
    """Yield the scores of forecasts of classes and of numbers."""
    scores = rows.total_vectors(found)
    yield "resolved_vectors", (label,), scores.n
    for kind in KINDS:
        if isinstance(scores, ClassScores):
            yield "classwise_ece", (label, kind), scores.classwise_ece(kind)
            yield "top_label_ece", (label, kind), scores.top_label_ece(kind)
            yield "accuracy", (label, kind), scores.accuracy(kind)
        else:
            yield "coverage_error", (label, kind), scores.error(kind)
            yield "pinball_loss", (label, kind), fmean(scores.pinball(kind))
            yield "interval_width", (label, kind), scores.widths(kind)[0]


def guaranteed(label: str, made: list[Served]) -> Iterator[Sample]:
    """Weigh the calibrators of several partitions by what each has learnt: errors are means over events."""
    learning = [served for served in made if served.calibrator.learnt]
    learnt = sum(served.calibrator.learnt for served in learning)
    errors = [served.calibrator.error() for served in learning]
    bounds = [served.calibrator.bound(served.outstanding) for served in learning]
    counted = [played(served.calibrator) for served in learning]
    noises = [None if points is None else noise(points) for points in counted]
    for name, values in (
        ("calibration_error", errors),
        ("calibration_bound", bounds),
        ("calibration_noise", noises),
    ):
        known = [
            value * served.calibrator.learnt
            for value, served in zip(values, learning, strict=True)
            if value is not None
        ]
        if known and len(known) == len(learning):
            yield name, (label,), sum(known) / learnt
