"""Segments of a stream, the worst first: for gauges, the status page and ``trueup streams show``."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from state.forecasts import KINDS as FIELDS
from state.forecasts import PROBABILITY
from state.scoring.alarm import ALPHA
from state.scoring.cells import Bin
from state.scoring.recent import RECENT, Recent, RecentLevels, Stretch
from state.scoring.segment_pairs import AnySegmentScores, SegmentPairScores
from state.scoring.segment_scores import EDGES, SegmentScores
from state.scoring.sums import added
from state.scoring.warm_up import OF_SEGMENT
from state.scoring.wilson import Interval, wilson
from state.scoring.windows import KINDS
from state.segments import Dictionary, Segment
from streams.metrics.figures import by_name, curve, or_none

#: Segments with fewer events do not count in the means over segments.
LARGE: Final = 2000
#: The most segments that are described, and the most that have series: the worst ones.
DESCRIBED: Final = 20
SERIES: Final = 5
#: A segment is silent if at least this many of its outcomes were expected in windows that have none, and at least this
#: many of its forecasts wait.
MISSED: Final = 50
#: A segment is off from this calibration error on, beyond chance: absolute, or as a share of the events that happened.
OFF: Final = 0.03
OFF_SHARE: Final = 0.3

#: The dictionary of slots of a partition, and scores by slot.
SegmentRows = tuple[Dictionary, Mapping[int, AnySegmentScores]]


def total(found: Iterable[SegmentRows]) -> dict[Segment, AnySegmentScores]:
    """Return the scores of each segment over several partitions. Their slots may differ."""
    return added((dictionary.segment(slot), each) for dictionary, scores in found for slot, each in scores.items())


def describe(found: Iterable[SegmentRows]) -> dict[str, Any]:
    """Return the segments of a stream as JSON: how many there are, and the worst.

    Segments are ordered by the served error beyond chance, then by events. ``large`` has the mean and the largest error
    of those with at least `LARGE` events: the ECE, for classes that of the likeliest class, for numbers the coverage
    error. ``of`` is the kind of the forecasts. ``recent`` has the segments with evidence of a recent error, most
    evidence first; ``recently_off`` is the number that reach the alarm. In ``recent``, for numbers ``level`` is the
    level with most evidence, and ``served`` equals it. For classes ``class`` is the class with most evidence, None if
    the evidence is against the likeliest class. ``silent`` has the segments whose labels stopped, see `_silent`.
    ``warming`` is the number of segments in a warm-up of their own.
    """
    found = list(found)
    everything = total(found)
    totals = {segment: each for segment, each in everything.items() if each.n}
    order = sorted(totals, key=lambda segment: (-totals[segment].excess("calibrated"), -totals[segment].n, segment))
    evidence = {segment: _evidence(each, len(totals)) for segment, each in totals.items()}
    large = [each for each in totals.values() if each.n >= LARGE]
    recent = list(_lately(found, len(totals)))
    return {
        "of": _of(totals.values()),
        "scored": len(totals),
        "warming": sum(each.issued > 0 and not each.warm_up.since for each in everything.values()),
        "recently_off": sum(each["sounds"] for each in recent),
        "recent": recent[:DESCRIBED],
        "silent": _silent(found),
        "off": sum(_off(each, evidence[segment]) for segment, each in totals.items()),
        "large": {
            "segments": len(large),
            **{
                kind: {"mean_ece": fmean(eces), "worst_ece": max(eces)}
                for kind in KINDS
                if (eces := [each.error(kind) for each in large])
            },
        },
        "worst": [_described(segment, totals[segment], evidence[segment]) for segment in order[:DESCRIBED]],
    }


def _lately(found: Iterable[SegmentRows], segments: int) -> Iterator[dict[str, Any]]:
    """Yield the segments that are off lately, see `describe`; not those without events in the last `RECENT` windows."""
    parts: list[tuple[Segment, Recent]] = []
    for dictionary, scores in found:
        mine = {slot: each.recent for slot, each in scores.items() if each.recent is not None}
        now = max((each.last for each in mine.values()), default=0)
        parts += [(dictionary.segment(slot), each) for slot, each in mine.items() if each.last >= now - RECENT]
    alarms = []
    for segment, each in added(parts).items():
        evidence, stretch = each.log_alarm()
        log10 = (evidence - math.log(segments)) / math.log(10.0) if segments else -math.inf
        if stretch is not None and log10 >= 0.0:
            alarms.append((log10, segment, stretch, each))
    for log10, segment, stretch, each in sorted(alarms, key=lambda each: (-each[0], each[1])):
        yield _stretched(segment, stretch, log10, each)


def _silent(found: Iterable[SegmentRows]) -> list[dict[str, Any]]:
    """Return the segments whose outcomes stopped while their forecasts wait. Those that miss most come first.

    The last complete windows of a partition have only outcomes of other segments. By the segment's share of earlier
    windows, at least `MISSED` of its outcomes were expected there, so chance does not explain the gap.
    """
    missed: dict[Segment, float] = defaultdict(float)
    waiting: dict[Segment, int] = defaultdict(int)
    for dictionary, scores in found:
        now = max((each.recent.last for each in scores.values() if each.recent is not None), default=0)
        for slot, each in scores.items():
            of, waits = each.recent, each.issued - each.known - each.expired
            if of is None or (begun := of.begun) is None:
                continue
            expected = (now - of.last - 1) * of.stretches()[-1].n / (of.last - begun + 1)
            if expected >= MISSED <= waits:
                missed[dictionary.segment(slot)] += expected
                waiting[dictionary.segment(slot)] += waits
    return [
        {"segment": segment.name, "value": segment.value, "missed": round(missed[segment]), "waiting": waiting[segment]}
        for segment in sorted(missed, key=lambda segment: (-missed[segment], segment))
    ]


def _stretched(segment: Segment, stretch: Stretch, log10: float, recent: Recent) -> dict[str, Any]:
    n = stretch.n
    served = stretch.p / n
    observed = min(max(served, stretch.y / n), stretch.upto / n)  # ties make the coverage of a level a range
    low, high = wilson(observed, n)
    level = recent.levels[stretch.mark] if isinstance(recent, RecentLevels) else None
    least = min(OFF, OFF_SHARE * observed) if level is None else OFF
    return {
        "segment": segment.name,
        "value": segment.value,
        "level": level,
        "class": stretch.mark - 1 if stretch.mark and level is None else None,
        "alarm_log10": log10,
        "sounds": log10 >= -math.log10(ALPHA) and abs(served - observed) >= least,
        "events": n,
        "windows": stretch.windows,
        "served": served,
        "observed": observed,
        "off": {"mean": served - observed, "low": served - high, "high": served - low},
    }


def _of(found: Iterable[AnySegmentScores]) -> str:
    """Return the kind of forecasts, by the field of their records: ``p``, ``probs`` or ``quantiles``."""
    first = next(iter(found), None)
    return FIELDS[first.kind] if isinstance(first, SegmentPairScores) else FIELDS[PROBABILITY]


#: Words for what is off lately, for classes and numbers.
LATELY: Final = {
    "probs": " Of classes the one with most evidence: how often it occurred, and its mean probability.",
    "quantiles": " Of numbers the level with most evidence: the share of outcomes at or below its quantile, and it.",
}


def mark(recent: Mapping[str, Any], of: str) -> str:
    """Return a suffix with the class or level of a segment that is off lately; empty for probabilities."""
    if of not in ERRORS:
        return ""
    if recent["level"] is not None:
        return f", level {recent['level']:g}"
    return ", likeliest class" if recent["class"] is None else f", class {recent['class']}"


#: Names of the error of classes and of numbers, and of what is off.
ERRORS: Final = {
    "probs": "Error: ECE of the likeliest class. Off by: its mean probability minus how often it occurred.",
    "quantiles": "Error: of the coverage of the level most off. Off by: that level minus the share of outcomes at or "
    "below its quantile.",
}


def level(off: Mapping[str, Any]) -> str:
    """Return the worst level, as a prefix; empty for classes."""
    return "" if off["level"] is None else f"{off['level']:g}: "


def warming(described: Mapping[str, Any]) -> str:
    """Return the number of segments in their warm-up as an end of a sentence; empty if there are none."""
    n = described["warming"]
    return f"; {n:,} {'warms' if n == 1 else 'warm'} up: fewer than {OF_SEGMENT} outcomes" if n else ""


def silent(described: Mapping[str, Any]) -> str:
    """Return the segments whose labels stopped as an end of a sentence; empty if there are none."""
    found = [f"{each['segment']} = {each['value']}" for each in described["silent"][:SERIES]]
    return f"; no outcomes of late: {', '.join(found)}" if found else ""


def large(described: Mapping[str, Any]) -> str:
    """Return the mean error of large segments as an end of a sentence; empty if there are none."""
    found = described["large"]
    if not found["segments"]:
        return ""
    means = ", ".join(
        f"{word} {found[kind]['mean_ece']:.4f}" for kind, word in zip(KINDS, ("raw", "served"), strict=True)
    )
    return f"; mean ECE of {found['segments']} with {LARGE:,} events: {means}"


def nearer(described: Mapping[str, Any]) -> str:
    """Return a sentence about segments whose raw scores were right, apart from chance, while served scores were not."""
    found = [
        f"{each['segment']} = {each['value']} ({each['raw']['mean']:.3g} raw, {each['calibrated']['mean']:.3g} served, "
        f"{each['observed']:.3g} observed)"
        for each in described["worst"]
        if each.get("raw_nearer")
    ]
    return f" Raw scores were nearer than served ones in {', '.join(found[:SERIES])}." if found else ""


def _evidence(scores: AnySegmentScores, segments: int) -> float:
    """Return log10 of the evidence against one of several segments; chance takes any of them to 1/α with at most α."""
    return (scores.log_alarm("calibrated") - math.log(segments)) / math.log(10.0)


def _off(scores: AnySegmentScores, evidence: float) -> bool:
    least = min(OFF, OFF_SHARE * scores.observed) if isinstance(scores, SegmentScores) else OFF
    return evidence >= -math.log10(ALPHA) and scores.error("calibrated") >= least


def _described(segment: Segment, scores: AnySegmentScores, evidence: float) -> dict[str, Any]:
    due = scores.known + scores.expired
    described: dict[str, Any] = {
        "segment": segment.name,
        "value": segment.value,
        "issued": scores.issued,
        "events": scores.n,
        "alarm_log10": evidence,
        "sounds": _off(scores, evidence),
        "coverage": scores.known / due if due else None,
        "mean_age_s": scores.age_ms / scores.known / 1000 if scores.known else None,
    }
    described |= _of_probability(scores) if isinstance(scores, SegmentScores) else _of_pairs(scores)
    for kind in KINDS:
        described[kind] |= {"ece": scores.error(kind), "ece_noise": scores.noise(kind), "excess": scores.excess(kind)}
    return described


def _of_probability(scores: SegmentScores) -> dict[str, Any]:
    raw, served = (scores.off(kind) for kind in KINDS)
    of_kinds: dict[str, Any] = {
        kind: {
            "mean": scores.mean(kind),
            "brier": scores.brier(kind),
            "auc": or_none(scores.auc(kind).value),
            "bands": _bands(scores.bands(kind)),
        }
        for kind in KINDS
    }
    nearer = raw.low <= 0.0 <= raw.high and not served.low <= 0.0 <= served.high
    return {"observed": scores.observed, "off": _interval(served), "raw_nearer": nearer, **of_kinds}


def _of_pairs(scores: SegmentPairScores) -> dict[str, Any]:
    """Return the figures that only segments of classes or numbers have."""
    off = scores.off("calibrated")
    of_kinds: dict[str, Any] = {
        kind: {
            "accuracy": or_none(scores.accuracy(kind)),
            "loss": {name: scores.loss(name, kind) for name in scores.losses},
        }
        for kind in KINDS
    }
    difference = {name: by_name(scores.difference(name)) for name in scores.losses}
    return {"off": _interval(off.by) | {"level": off.level}, "difference": difference, **of_kinds}


def _interval(of: Interval) -> dict[str, Any]:
    return {"mean": or_none(of.value), "low": or_none(of.low), "high": or_none(of.high)}


def _bands(bands: list[Bin]) -> list[dict[str, float]]:
    edges = pairwise((0.0, *EDGES, 1.0))
    return [
        {"low": low, "high": high} | each
        for (low, high), band in zip(edges, bands, strict=True)
        for each in curve([band])
    ]
