"""The samples that a worker exports of a stream: views of its rows, added up over the partitions it holds.

Figures are exported as sums where possible. The state holds the sums, so they survive restarts and move with their
partition. Ratios of workers cannot be averaged, because errors of opposite sign would then not cancel. The recording
rules in ``deploy/prometheus`` add the sums and divide last. What they can compute is not exported.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

from state import kinds
from state.kind import KINDS as ROWS
from state.policy import Policy
from state.scoring.cells import BANDS, BINS
from state.scoring.certificate import certificate
from state.scoring.scores import total
from state.scoring.two_bin import gain, two_bin
from state.scoring.windows import KINDS, worst
from streams.metrics import bands, challengers, functions, segments, served_map, vectors, versions, weights, windows
from streams.metrics.description import (
    aged,
    biased,
    compared,
    guarantee,
    lately,
    learnt,
    saturated,
    warmed,
    withheld,
)
from streams.metrics.metric import Sample
from streams.metrics.rows import StateRows, covered, segmented

#: Names of the cells of a forecast: ten bands below .1, then the bins of tenths.
CELLS: Final = (*(f"0.{band}" for band in range(len(BANDS) + 1)), *map(str, range(1, BINS)))
#: Labels whose ages are exported; share of the highest forecasts whose recall is.
LABELS: Final = ("0", "1")
VOLUME: Final = 0.01


def samples(found: StateRows, stream: str, policy: Policy | None) -> Iterator[Sample]:
    """Yield the samples of a stream; ``policy`` is how it is configured now."""
    if by_config := found.of(kinds.VECTORS, stream):  # it may have been of probabilities before: a series has one value
        held = {partition: each for (partition, _), each in by_config.items() if each.n}
        yield from vectors.samples(stream, vectors.describe(held)) if held else ()
    elif found.of(kinds.SCORES, stream):
        yield from _scored(found, stream)
    yield from _counted(found, stream, policy)
    if (warm := warmed(found, stream, policy)) is not None:
        yield "warm_up_partitions", (stream,), warm["partitions"]
        yield "warm_up_events", (stream,), warm["resolved"]
        yield "warm_up_alarm_log10", (stream,), warm["alarm_log10"]
        yield "warm_up_bias", (stream,), (warm["raw"] or 0.0) - (warm["observed"] or 0.0)
    for of_bands in bands.of_rows(found, stream, policy, whole=False).values():
        yield from bands.samples(stream, of_bands)
    for weighed in weights.of_rows(found, stream, policy).values():
        yield from weights.samples(stream, weighed)
    if by_segment := segmented(found, stream, policy):
        yield from segments.samples(stream, segments.describe(by_segment.values()))
    for each in compared(found, stream, policy):
        yield from challengers.samples(stream, each)
    yield from versions.samples(stream, versions.describe(versions.parts(found, stream, policy)))
    if calibrators := found.of(kinds.CALIBRATOR, stream):
        known = [learnt(served) for served in calibrators.values()]
        yield "learnt_outcomes", (stream,), sum(each["version"] for each in known)
        for name, value in guarantee(known).items():
            if value is not None and not math.isnan(value):
                yield f"calibration_{name}", (stream,), value
        if (count := saturated(known)) is not None:
            yield "saturated_answers", (stream,), count
        yield from functions.samples(stream, biased(found, stream, policy))
        yield from served_map.samples(found, stream, policy)


def _counted(found: StateRows, stream: str, policy: Policy | None) -> Iterator[Sample]:
    """Yield counts of forecasts and of outcomes by age."""
    if found.of(kinds.AGES, stream):
        yield from _aged(stream, aged(found, stream, policy))
    if coverages := covered(found, stream, policy):
        for reason, partitions in withheld(coverages)["partitions"].items():
            yield "withheld_partitions", (stream, reason), len(partitions)
    for kind in list(ROWS.values()):
        for name, figure in kind.figures.items():
            values = list(found.of(kind, stream).values())
            value = figure.of(values) if values else None
            if value is not None and not math.isnan(value):
                yield name, (stream,), value


def _scored(found: StateRows, stream: str) -> Iterator[Sample]:
    """Yield the scores of forecasts of one probability, of both kinds but for what is asked of one kind only."""
    histories = found.of(kinds.SCORES, stream)
    scores = total(each.total for each in histories.values())
    yield "resolved", (stream,), scores.n
    yield "scored_partitions", (stream,), len(histories)
    if not scores.n:
        return
    order = lately(histories.values())
    for kind in KINDS:
        for name, each in zip(CELLS, scores.cells(kind), strict=True):
            if each.n:
                yield "resolved_bin_events", (stream, kind, name), each.n
                yield "resolved_bin_forecasts", (stream, kind, name), each.p
                yield "resolved_bin_outcomes", (stream, kind, name), each.y
        yield "brier", (stream, kind), scores.brier(kind)
        yield "log_loss", (stream, kind), scores.log_loss(kind)
        ranking = order.ranking(kind)
        area = ranking.auc()
        if not math.isnan(area.value):
            yield "auc", (stream, kind), area.value
            yield "recall", (stream, kind, f"{VOLUME:g}"), ranking.at(VOLUME)[0].value
            if kind == "raw" and not math.isnan(area.error):
                yield "auc_error", (stream, kind), area.error
        alarm = windows.alarm(histories, kind)
        yield "alarm_log10", (stream, kind), alarm["log10"]
        if kind == "calibrated":
            yield "alarm_recent_log10", (stream, kind), alarm["recent_log10"]
            yield "certificate", (stream, kind), certificate(scores.ranking(kind))
    raw, served = (two_bin(scores, kind) for kind in KINDS)
    yield "two_bin_error", (stream, "calibrated"), served.value
    for end, figure in gain(raw, served)._asdict().items():
        yield "two_bin_gain", (stream, end), figure
    off = worst(histories.values(), "calibrated")
    if off is not None:
        yield "worst_window_ece", (stream, "calibrated"), off.scores.error("calibrated")


def _aged(stream: str, described: dict[str, Any]) -> Iterator[Sample]:
    """Yield how many outcomes came, how old they are when they come, and which findings there are."""
    for label in LABELS:
        if label in described["outcomes"]:
            yield "reported_outcomes", (stream, label), described["outcomes"][label]["n"]
            yield "outcome_age_seconds", (stream, label, "0.99"), described["outcomes"][label]["most_s"]
    for finding in described["findings"]:
        yield "label_finding", (stream, finding["name"]), 1.0
