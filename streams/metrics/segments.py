"""Segments of a stream, the worst first: for gauges, the status page and ``trueup inspect``."""

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from state.scoring.ages import words
from state.scoring.alarm import ALPHA
from state.scoring.history import KINDS, Alarmed
from state.scoring.scores import Bin
from state.scoring.segment_scores import EDGES, SegmentScores
from state.segments import Dictionary, Segment
from streams.metrics.sample import Sample

#: Events from which on a segment counts in the means over segments.
LARGE: Final = 2000
#: Segments that are described, and those of them that have series: the worst.
DESCRIBED: Final = 20
SERIES: Final = 5
#: From which calibration error on a segment that chance does not explain is off: of the forecast, and as a share of
#: the events that happened.
OFF: Final = 0.03
OFF_SHARE: Final = 0.3

#: What slots of a partition stand for, and the scores of those that have some.
SegmentRows = tuple[Dictionary, Mapping[int, SegmentScores]]


def added(found: Iterable[SegmentRows]) -> dict[Segment, SegmentScores]:
    """Return the scores of each segment over several partitions, whose slots may differ."""
    totals: dict[Segment, SegmentScores] = {}
    for dictionary, scores in found:
        for slot, each in scores.items():
            segment = dictionary.segment(slot)
            totals[segment] = totals[segment] + each if segment in totals else each
    return totals


def describe(found: Iterable[SegmentRows]) -> dict[str, Any]:
    """Return the segments of a stream as JSON would have them: how many there are, and the worst.

    Segments are ordered by the error of what was served that chance does not explain, then by their events. ``large``
    has the mean and the largest ECE of those with at least `LARGE` events.
    """
    totals = {segment: each for segment, each in added(found).items() if each.n}
    order = sorted(totals, key=lambda segment: (-totals[segment].excess("calibrated"), -totals[segment].n, segment))
    evidence = {segment: _evidence(each, len(totals)) for segment, each in totals.items()}
    large = [each for each in totals.values() if each.n >= LARGE]
    return {
        "scored": len(totals),
        "off": sum(_off(each, evidence[segment]) for segment, each in totals.items()),
        "large": {
            "segments": len(large),
            **{
                kind: {"mean_ece": fmean(eces), "worst_ece": max(eces)}
                for kind in KINDS
                if (eces := _eces(large, kind))
            },
        },
        "worst": [_described(segment, totals[segment], evidence[segment]) for segment in order[:DESCRIBED]],
    }


def samples(stream: str, described: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield the samples of segments that `describe` described."""
    yield "segments_scored", (stream,), described["scored"]
    yield "segments_off", (stream,), described["off"]
    for each in described["worst"][:SERIES]:
        place = stream, each["segment"], each["value"]
        yield "segment_events", place, each["events"]
        yield "segment_error", place, each["calibrated"]["ece"]
        yield "segment_bias", place, each["calibrated"]["mean"] - each["observed"]


def table(described: Mapping[str, Any]) -> Table:
    """Return the worst segments as a table that fits 80 columns."""
    worst = described["worst"]
    made = Table(
        Column("", overflow="fold"),
        box=SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        title=f"segments, the worst {len(worst)} of {described['scored']}; off: {described['off']}{_large(described)}",
        caption="Off: chance does not explain the error, and it is .03, or .3 of what happened. Known: of forecasts "
        "whose time to live is over, those that had an outcome. Age: of a forecast when its outcome came, on average.",
    )
    for name in ("events", "observed", "served", "off by, 95 %", "ECE", "known", "age"):
        made.add_column(name, justify="right", no_wrap=True)
    for each in worst:
        served, off = each["calibrated"], each["off"]
        made.add_row(
            f"{each['segment']} = {each['value']}",
            f"{each['events']:,}",
            *(f"{value:.4f}" for value in (each["observed"], served["mean"])),
            f"{off['mean']:+.4f} ± {off['high'] - off['mean']:.4f}" if off["low"] is not None else "–",
            f"{served['ece']:.4f}",
            "–" if each["coverage"] is None else f"{each['coverage']:.0%}",
            "–" if each["mean_age_s"] is None else words(1000 * each["mean_age_s"]),
        )
    return made


def _large(described: Mapping[str, Any]) -> str:
    large = described["large"]
    if not large["segments"]:
        return ""
    means = ", ".join(
        f"{word} {large[kind]['mean_ece']:.4f}" for kind, word in zip(KINDS, ("raw", "served"), strict=True)
    )
    return f"; mean ECE of {large['segments']} with {LARGE:,} events: {means}"


def _eces(scores: Iterable[SegmentScores], kind: Alarmed) -> list[float]:
    return [each.ece(kind) for each in scores]


def _evidence(scores: SegmentScores, segments: int) -> float:
    """Return log10 of the evidence against one of so many segments; by chance one of all reaches 1/α with α at most."""
    return (scores.log_alarm("calibrated") - math.log(segments)) / math.log(10.0)


def _off(scores: SegmentScores, evidence: float) -> bool:
    ece = scores.ece("calibrated")
    return evidence >= -math.log10(ALPHA) and ece >= min(OFF, OFF_SHARE * scores.observed)


def _described(segment: Segment, scores: SegmentScores, evidence: float) -> dict[str, Any]:
    off = scores.off("calibrated")
    described: dict[str, Any] = {
        "segment": segment.name,
        "value": segment.value,
        "issued": scores.issued,
        "events": scores.n,
        "observed": scores.observed,
        "off": {"mean": _or_none(off.value), "low": _or_none(off.low), "high": _or_none(off.high)},
        "alarm_log10": evidence,
        "sounds": _off(scores, evidence),
        "coverage": _or_none(scores.coverage),
        "mean_age_s": _or_none(scores.mean_age_ms / 1000),
    }
    for kind in KINDS:
        described[kind] = {
            "mean": scores.mean(kind),
            "ece": scores.ece(kind),
            "ece_noise": scores.noise(kind),
            "excess": scores.excess(kind),
            "brier": scores.brier(kind),
            "auc": _or_none(scores.auc(kind).value),
            "bands": _bands(scores.bands(kind)),
        }
    return described


def _bands(bands: list[Bin]) -> list[dict[str, float]]:
    edges = (0.0, *EDGES, 1.0)
    return [
        {
            "low": edges[i],
            "high": edges[i + 1],
            "n": int(each.n),
            "forecast": each.p / each.n,
            "outcome": each.y / each.n,
        }
        for i, each in enumerate(bands)
        if each.n
    ]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
