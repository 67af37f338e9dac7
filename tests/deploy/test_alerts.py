"""Every alert fires when it should, and stays quiet one step before."""

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.promtool import PROMETHEUS, Scenario, judge, needs_promtool

W: Final = 'job="trueup",instance="w0"'
V: Final = 'job="trueup",instance="w1"'
#: A worker of another application that the same Prometheus scrapes.
STAGING: Final = 'app="staging",job="trueup",instance="s0"'
S: Final = 'stream="cards"'
#: More samples than any scenario looks at.
LONG: Final = 500
NONE: Final = f"0x{LONG}"


def healthy(worker: str = W, step: int = 1) -> dict[str, str]:
    """Return a worker that is well and has nothing to do."""
    return {
        f"up{{{worker}}}": f"1x{LONG}",
        f"trueup_ready{{{worker}}}": f"1x{LONG}",
        f"trueup_pending_events{{{worker}}}": f"0x{LONG}",
        f"trueup_recovery_remaining_records{{{worker}}}": f"0x{LONG}",
        f"process_start_time_seconds{{{worker}}}": f"0x{LONG}",
        f"trueup_last_update_timestamp_seconds{{{worker}}}": f"0+{60 * step}x{LONG}",
        f'trueup_lag_records{{{worker},topic="forecasts",partition="0"}}': f"0x{LONG}",
    }


def until(minutes: int) -> dict[str, str]:
    """Return a worker whose series end."""
    return {series: f"{values.split('x')[0]}x{minutes} stale" for series, values in healthy().items()}


def router(ready: str = "1", instance: str = "r0") -> dict[str, str]:
    """Return a router."""
    labels = f'job="trueup-router",instance="{instance}"'
    return {f"trueup_ready{{{labels}}}": f"{ready}x{LONG}", f"trueup_routed_events{{{labels}}}": f"0x{LONG}"}


def intake(ready: str = "1") -> dict[str, str]:
    """Return an intake of two sources."""
    labels = 'job="trueup-intake",instance="i0"'
    counts = {f'trueup_mapped_records_total{{{labels},source="{each}",fate="sent"}}': f"0x{LONG}" for each in "ab"}
    return {f"trueup_ready{{{labels}}}": f"{ready}x{LONG}", **counts}


def bins(
    n: float,
    said: float,
    came: float,
    *,
    worker: str = W,
    kind: str = "calibrated",
    which: float = 5,
    at: str = "0+{}x{}",
) -> dict[str, str]:
    """Return a bin that gains ``n`` events a step: their mean forecast is ``said``, and a share ``came`` happened."""
    labels = f'{{{worker},{S},kind="{kind}",bin="{which}"}}'
    sums = {"events": n, "forecasts": n * said, "outcomes": n * came}
    return {f"trueup_resolved_bin_{noun}{labels}": at.format(each, LONG) for noun, each in sums.items()}


def losses(n: float, raw: float, calibrated: float, loss: str = "brier") -> dict[str, str]:
    """Return a stream that gains ``n`` events a step, with the mean losses of both kinds."""
    return {
        f"trueup_resolved{{{W},{S}}}": f"0+{n}x{LONG}",
        f'trueup_{loss}{{{W},{S},kind="raw"}}': f"{raw}x{LONG}",
        f'trueup_{loss}{{{W},{S},kind="calibrated"}}': f"{calibrated}x{LONG}",
        **bins(n, 0.5, 0.5, kind="raw"),
    }


def guarantee(error: float, bound: float, learnt: float, worker: str = W) -> dict[str, str]:
    return {
        f"trueup_calibration_error{{{worker},{S}}}": f"{error}x{LONG}",
        f"trueup_calibration_bound{{{worker},{S}}}": f"{bound}x{LONG}",
        f"trueup_learnt_outcomes{{{worker},{S}}}": f"{learnt}x{LONG}",
    }


def alarm(kind: str, level: float, worker: str = W) -> dict[str, str]:
    return {
        f'trueup_alarm_log10{{{worker},{S},kind="{kind}"}}': f"{level}x{LONG}",
        f"trueup_scored_partitions{{{worker},{S}}}": f"1x{LONG}",
    }


def warm_up(partitions: int, evidence: float) -> dict[str, str]:
    return {
        f"trueup_warm_up_partitions{{{W},{S}}}": f"{partitions}x{LONG}",
        f"trueup_warm_up_alarm_log10{{{W},{S}}}": f"{evidence}x{LONG}",
    }


def answered_until(answered: str) -> dict[str, str]:
    return {f"trueup_answered_forecasts_total{{{W},{S}}}": answered}


def recent(kind: str, level: float, worker: str = W) -> dict[str, str]:
    return {
        f'trueup_alarm_recent_log10{{{worker},{S},kind="{kind}"}}': f"{level}x{LONG}",
        f"trueup_scored_partitions{{{worker},{S}}}": f"1x{LONG}",
    }


def harmed(loss: str, difference: float, error: float, n: int, worker: str = W) -> dict[str, str]:
    """Return a stream of classes or numbers whose raw pinball loss, if it has one, is 2."""
    raw = {f'trueup_pinball_loss{{{worker},{S},kind="raw"}}': f"2x{LONG}"} if loss == "pinball" else {}
    return raw | {
        f'trueup_loss_difference{{{worker},{S},loss="{loss}"}}': f"{difference}x{LONG}",
        f'trueup_loss_difference_error{{{worker},{S},loss="{loss}"}}': f"{error}x{LONG}",
        f"trueup_resolved_vectors{{{worker},{S}}}": f"{n}x{LONG}",
    }


def challenged(difference: float, error: float, n: int, worker: str = W) -> dict[str, str]:
    """Return a stream whose challenger's log loss differs from that of what serves."""
    of = f'{worker},{S},calibrator="platt",config="0a1b2c3d"'
    return {
        f"trueup_shadow_events{{{of}}}": f"{n}x{LONG}",
        f'trueup_shadow_difference{{{of},loss="log"}}': f"{difference}x{LONG}",
        f'trueup_shadow_difference_error{{{of},loss="log"}}': f"{error}x{LONG}",
    }


def segments(off: int) -> dict[str, str]:
    return {f"trueup_segments_off{{{W},{S}}}": f"{off}x{LONG}", f"trueup_segments_scored{{{W},{S}}}": f"20x{LONG}"}


def segments_lately(off: str) -> dict[str, str]:
    return {f"trueup_segments_off_recently{{{W},{S}}}": off}


def ranked(raw: float, served: float, error: float, worker: str = W) -> dict[str, str]:
    """Return a stream whose AUCs are these, over outcomes that keep coming."""
    return {
        f'trueup_auc{{{worker},{S},kind="raw"}}': f"{raw}x{LONG}",
        f'trueup_auc{{{worker},{S},kind="calibrated"}}': f"{served}x{LONG}",
        f'trueup_auc_error{{{worker},{S},kind="raw"}}': f"{error}x{LONG}",
        **bins(10, 0.5, 0.5, kind="raw", worker=worker),
    }


def rare(n: float, served: float, rate: float) -> dict[str, str]:
    """Return a stream that gains ``n`` events a step of a rare kind, all with the same forecast."""
    return bins(n, served, rate, which=0)


def slow(frauds: str) -> dict[str, str]:
    """Return a stream that gains 60 events an hour, of which .3 % are served; its frauds as they are given.

    In sums as they are recorded: what records them sees no samples that are an hour apart.
    """
    labels = 'job="trueup",stream="cards",kind="calibrated",bin="0",window="life"'
    sums = {"events": f"0+60x{LONG}", "forecasts": f"0+0.18x{LONG}", "outcomes": frauds}
    return {f"stream_kind_bin:trueup_bin_{noun}:sum{{{labels}}}": values for noun, values in sums.items()}


def finding(name: str) -> dict[str, str]:
    return {f'trueup_label_finding{{{W},{S},finding="{name}"}}': f"1x{LONG}"}


def shift(by: str) -> dict[str, str]:
    return {f"trueup_forecast_shift{{{W},{S}}}": by}


def moved(by: str) -> dict[str, str]:
    return {f'trueup_band_moved{{{W},{S},band="review"}}': by, f'trueup_band_moved{{{V},{S},band="review"}}': "1x500"}


def reported(*ones: str, zeros: str = "0x600") -> dict[str, str]:
    """Return how many outcomes were reported, by worker, as their state says: a value in an hour."""
    return {
        f'trueup_reported_outcomes{{{worker},{S},label="{label}"}}': values
        for worker, each in zip((W, V), ones, strict=False)
        for label, values in (("0", zeros), ("1", each))
    }


def labels(answered: float, scored: str) -> dict[str, str]:
    return {
        f"trueup_answered_forecasts_total{{{W},{S}}}": f"0+{answered}x{LONG}",
        f"trueup_scored_events_total{{{W},{S}}}": scored,
    }


def latency(within: int, late: int) -> dict[str, str]:
    total = within + late
    name = "trueup_forecast_latency_seconds"
    return {
        f'{name}_bucket{{{W},le="1.0"}}': f"0+{within}x{LONG}",
        f'{name}_bucket{{{W},le="30.0"}}': f"0+{within}x{LONG}",
        f'{name}_bucket{{{W},le="60.0"}}': f"0+{total}x{LONG}",
        f'{name}_bucket{{{W},le="+Inf"}}': f"0+{total}x{LONG}",
        f"{name}_count{{{W}}}": f"0+{total}x{LONG}",
    }


def letters(dead: float, records: float, topic: str = "forecasts") -> dict[str, str]:
    return {
        f'trueup_dead_letters_total{{{W},topic="{topic}",reason="not_json"}}': f"0+{dead}x{LONG}",
        f'trueup_records_total{{{W},topic="{topic}",fate="issued"}}': f"0+{records}x{LONG}",
    }


def far_off(values: str) -> dict[str, str]:
    return {f'trueup_far_off_times_total{{{W},topic="outcomes"}}': values}


def mapped(source: str, sent: str = NONE, passed: str = NONE, dead: str = NONE) -> dict[str, str]:
    """Return an intake's source whose records became this."""
    which = f'job="trueup-intake",instance="i0",source="{source}"'
    fates = {"sent": sent, "passed": passed, "dead": dead}
    return {f'trueup_mapped_records_total{{{which},fate="{fate}"}}': values for fate, values in fates.items()} | {
        f'trueup_dead_letters_total{{job="trueup-intake",instance="i0",topic="{source}",reason="label"}}': dead
    }


def read(topic: str, values: str, fate: str = "waiting") -> dict[str, str]:
    return {f'trueup_records_total{{{W},topic="{topic}",fate="{fate}"}}': values}


def early(waiting: str, labels: str, expired: str = f"0x{LONG}") -> dict[str, str]:
    """Return a router with so many labels that wait for a forecast, of so many that came."""
    router = 'job="trueup-router",instance="r0"'
    return {
        f"trueup_unrouted_events{{{router}}}": waiting,
        f'trueup_expired_routes_total{{{router},kind="labels"}}': expired,
        f'trueup_routed_records_total{{{router},topic="labels",fate="routed"}}': labels,
    }


def conflicts(values: str) -> dict[str, str]:
    return {f'trueup_dead_letters_total{{{W},topic="forecasts",reason="conflict"}}': values}


def lost(values: str) -> dict[str, str]:
    return {f'trueup_lost_records_total{{{W},topic="forecasts"}}': values}


def scene(*parts: dict[str, str], at: int, fires: str = "", step: int = 1, **values: float) -> Scenario:
    """Return a healthy worker, with the series of the parts in place of its own."""
    series = healthy(step=step)
    for part in parts:
        series |= part
    return Scenario(series, at, frozenset(fires.split()), step, values)


def lag(values: str) -> dict[str, str]:
    return {f'trueup_lag_records{{{W},topic="forecasts",partition="0"}}': values}


def held_back(values: str) -> dict[str, str]:
    return {f'trueup_held_back_seconds{{{W},topic="forecasts",partition="0"}}': values}


def only(name: str, values: str, worker: str = W) -> dict[str, str]:
    return {f"{name}{{{worker}}}": values}


#: Ten bins of 110 events an hour, off by .06 to alternating sides: the ECE is .06, where chance alone makes .04.
NOISY: Final[dict[str, str]] = {
    series: values
    for i in range(10)
    for series, values in bins(110 / 60, 0.5, 0.56 if i % 2 else 0.44, which=i).items()
}
DAY: Final = 24 * 60

#: By alert: scenarios in which it fires, alone unless others are named, and scenarios just below its threshold.
SCENARIOS: Final[dict[str, dict[str, list[Scenario]]]] = {
    "TrueupCalibrationErrorAboveBound": {
        "fires": [scene(guarantee(0.21, 0.2, 1000), at=15, fires="TrueupCalibrationErrorAboveBound")],
        "quiet": [
            scene(guarantee(0.2, 0.2, 1000), at=15),
            scene(guarantee(0.21, 0.2, 999), at=15),
            scene(guarantee(0.21, 0.2, 1000), at=8),
            # 100 outcomes of a worker above its bound, and 900 of one below: the mean over outcomes is below.
            scene(guarantee(0.25, 0.2, 100), guarantee(0.19, 0.2, 900, V), at=15),
        ],
    },
    "TrueupCalibrationErrorHigh": {
        "fires": [
            scene(bins(20, 0.5, 0.44), at=70, fires="TrueupCalibrationErrorHigh"),
            # An hour brings 600 events, too few; the day has enough.
            scene(bins(10, 0.5, 0.44), at=180, fires="TrueupCalibrationErrorHigh"),
        ],
        "quiet": [
            scene(bins(20, 0.5, 0.46), at=70),
            scene(bins(10, 0.5, 0.44), at=95),
            scene(bins(20, 0.5, 0.44, kind="raw"), at=70),
            scene(NOISY, at=65),
            # Two workers err to opposite sides: the mean of their errors is .06, and the error of both together is 0.
            scene(bins(20, 0.5, 0.44), bins(20, 0.5, 0.56, worker=V), healthy(V), at=70),
        ],
    },
    "TrueupMeanOff": {
        "fires": [
            # .4 % happens: 0 is served for ever, at 100 events a minute, or a half, or half as much again.
            scene(rare(100, 0.0, 0.004), at=75, fires="TrueupMeanOff"),
            scene(rare(500, 0.002, 0.004), at=75, fires="TrueupMeanOff"),
            scene(rare(1000, 0.006, 0.004), at=75, fires="TrueupMeanOff"),
            # A slow stream, a dozen outcomes in half a day.
            scene(rare(10, 0.0, 0.004), at=13 * 60, step=2, fires="TrueupMeanOff"),
            # No event happened, where 60 were expected.
            scene(rare(20, 0.05, 0.0), at=75, fires="TrueupMeanOff"),
            # Four frauds a day, and none since day 8: no day says it, the week does.
            scene(slow("0+0.18x192 34.56x300"), at=15 * DAY, step=60, fires="TrueupMeanOff"),
        ],
        "quiet": [
            scene(slow("0+0.18x192 34.56x300"), at=10 * DAY, step=60),
            scene(slow("0+0.18x192 34.56+0.09x300"), at=15 * DAY, step=60),
            scene(rare(500, 0.003, 0.004), at=75),
            scene(rare(500, 0.005, 0.004), at=75),
            # Six outcomes are no evidence, and neither is the hour of a slow stream.
            scene(rare(20, 0.0, 0.004), at=75),
            scene(rare(500, 0.002, 0.004), at=8),
            # The model's own forecasts may be off: recalibration is for that.
            scene(bins(500, 0.1, 0.004, kind="raw", which=1), at=75),
        ],
    },
    "TrueupServedNotCalibrated": {
        "fires": [
            scene(alarm("calibrated", 3.1), at=5, fires="TrueupServedNotCalibrated"),
            # The alert fires for as long as the trouble lasts.
            scene(recent("calibrated", 3.1), at=7 * DAY + 60, step=30, fires="TrueupServedNotCalibrated"),
            scene(alarm("calibrated", 3.1), at=7 * DAY - 30, step=30, fires="TrueupServedNotCalibrated"),
        ],
        "quiet": [
            scene(alarm("calibrated", 2.9), recent("calibrated", 2.9), at=5),
            scene(recent("raw", 9.0), at=5),
            scene(recent("calibrated", 3.1), recent("calibrated", 0.0, V), healthy(V), at=5),
            # Two places are looked at, so each needs twice the evidence.
            scene(alarm("calibrated", 3.1), alarm("calibrated", 0.0, V), healthy(V), at=5),
            # The evidence never falls, so the alert ends after a week.
            scene(alarm("calibrated", 3.1), at=7 * DAY + 60, step=30),
        ],
    },
    "TrueupModelNotCalibrated": {
        "fires": [
            scene(alarm("raw", 3.1), at=5, fires="TrueupModelNotCalibrated"),
            scene(warm_up(0, 3.1), at=5, fires="TrueupModelNotCalibrated"),
        ],
        "quiet": [scene(alarm("raw", 2.9), at=5), scene(warm_up(0, 2.9), at=5)],
    },
    "TrueupWarmingUp": {
        "fires": [scene(warm_up(1, 0.0), at=5, fires="TrueupWarmingUp")],
        "quiet": [scene(warm_up(0, 0.0), at=5), scene(warm_up(1, 0.0), at=1)],
    },
    "TrueupSegmentsOff": {
        "fires": [scene(segments(1), at=35, fires="TrueupSegmentsOff")],
        "quiet": [scene(segments(1), at=25), scene(segments(0), at=60)],
    },
    "TrueupSegmentsOffLately": {
        "fires": [scene(segments_lately(f"2x{LONG}"), at=5, fires="TrueupSegmentsOffLately")],
        "quiet": [scene(segments_lately(f"0x{LONG}"), at=60), scene(segments_lately(f"1x10 0x{LONG}"), at=30)],
    },
    "TrueupSegmentsSilent": {
        "fires": [scene(only("trueup_segments_silent", f"1x{LONG}", f"{W},{S}"), at=32, fires="TrueupSegmentsSilent")],
        "quiet": [
            scene(only("trueup_segments_silent", f"0x{LONG}", f"{W},{S}"), at=60),
            scene(only("trueup_segments_silent", f"1x20 0x{LONG}", f"{W},{S}"), at=60),
        ],
    },
    "TrueupOrderLost": {
        "fires": [scene(ranked(0.83, 0.80, 0.01), at=40, fires="TrueupOrderLost")],
        "quiet": [
            scene(ranked(0.83, 0.815, 0.001), at=40),
            scene(ranked(0.83, 0.80, 0.02), at=40),
            scene(ranked(0.83, 0.80, 0.01), at=25),
            scene(ranked(0.80, 0.83, 0.01), at=40),
            # One worker ranks worse and one better: each counts by its number of outcomes.
            scene(ranked(0.83, 0.80, 0.01), ranked(0.80, 0.83, 0.01, V), healthy(V), at=40),
        ],
    },
    "TrueupRecalibrationHarms": {
        "fires": [
            scene(harmed("pinball", 0.03, 0.005, 5000), at=40, fires="TrueupRecalibrationHarms"),
            scene(harmed("log", 0.02, 0.002, 5000), at=40, fires="TrueupRecalibrationHarms"),
            scene(harmed("brier", 0.004, 0.001, 5000), at=40, fires="TrueupRecalibrationHarms"),
        ],
        "quiet": [
            scene(harmed("pinball", 0.03, 0.005, 5000), at=25),
            scene(harmed("pinball", 0.03, 0.011, 5000), at=40),
            scene(harmed("pinball", 0.019, 0.001, 5000), at=40),
            scene(harmed("pinball", -0.03, 0.001, 5000), at=40),
            scene(harmed("pinball", 0.03, 0.005, 4000), at=40),
            scene(harmed("log", 0.009, 0.001, 5000), at=40),
            # One worker loses and one gains: each counts by its number of outcomes.
            scene(harmed("log", 0.02, 0.002, 5000), harmed("log", -0.02, 0.002, 5000, V), healthy(V), at=40),
        ],
    },
    "TrueupChallengerBetter": {
        "fires": [
            scene(challenged(-0.01, 0.004, 5000), at=7 * DAY + 120, step=120, fires="TrueupChallengerBetter"),
        ],
        "quiet": [
            scene(challenged(-0.01, 0.004, 5000), at=7 * DAY - 120, step=120),
            scene(challenged(-0.01, 0.006, 5000), at=7 * DAY + 120, step=120),
            scene(challenged(-0.01, 0.004, 4999), at=7 * DAY + 120, step=120),
            # One worker's partitions gain, the other's lose: each counts by its number of events.
            scene(
                challenged(-0.01, 0.004, 5000), challenged(0.01, 0.004, 5000, V), healthy(V, 120), at=8 * DAY, step=120
            ),
        ],
    },
    "TrueupRegretGrowing": {
        "fires": [
            scene(losses(100, 0.2, 0.203), at=140, step=2, fires="TrueupRegretGrowing"),
            scene(losses(100, 0.5, 0.52, "log_loss"), at=140, step=2, fires="TrueupRegretGrowing"),
        ],
        "quiet": [
            scene(losses(100, 0.2, 0.2015), at=140, step=2),
            scene(losses(70, 0.2, 0.203), at=140, step=2),
            scene(losses(100, 0.203, 0.2), at=140, step=2),
            scene(losses(100, 0.5, 0.505, "log_loss"), at=140, step=2),
        ],
    },
    "TrueupLabelsMisread": {
        "fires": [scene(finding("classes"), at=65, fires="TrueupLabelsMisread")],
        "quiet": [scene(finding("ttl"), at=55)],
    },
    "TrueupForecastsShifted": {
        "fires": [
            scene(shift("0.3x500"), at=65, fires="TrueupForecastsShifted"),
            scene(shift("0.2x340 0.5x150"), at=8 * DAY, step=30, fires="TrueupForecastsShifted"),
        ],
        "quiet": [
            scene(shift("0.3x500"), at=55),
            scene(shift("0.2x500"), at=140),
            scene(shift("0.3x340 0.5x150"), at=8 * DAY, step=30),
        ],
    },
    "TrueupBandMoved": {
        "fires": [
            scene(moved("1x60 3x440"), at=125, fires="TrueupBandMoved"),
            scene(moved("0.5x500"), at=65, fires="TrueupBandMoved"),
        ],
        "quiet": [scene(moved("1x500"), at=400), scene(moved("3x500"), at=55), scene(moved("3x30 1x470"), at=100)],
    },
    "TrueupInputSilent": {
        "fires": [
            # The feed of labels stopped on day 8; an hour a step.
            scene(read("outcomes", "0+2x192 384x200"), at=10 * DAY, step=60, fires="TrueupInputSilent"),
            # It has not come back for ten days.
            scene(read("outcomes", "0+2x192 384x300"), at=18 * DAY, step=60, fires="TrueupInputSilent"),
            # Another value in the field that `when` asks for: all is passed over.
            scene(
                mapped("scores", sent="0+18x192 3456x200", passed="0x192 0+18x200"),
                at=10 * DAY,
                step=60,
                fires="TrueupInputSilent",
            ),
            # It never held: the first hours of a source.
            scene(mapped("scores", passed="0+18x100"), at=12 * 60, step=60, fires="TrueupInputSilent"),
            # One of several streams gets no forecast any more.
            scene(answered_until("0+80x192 15360x200"), at=10 * DAY, step=60, fires="TrueupInputSilent"),
        ],
        "quiet": [
            # Nothing at weekends: a week before the second one there were none either.
            scene(read("outcomes", "0+2x120 240x47 240+2x120 480x47 480+2x100"), at=13 * DAY + 720, step=60),
            # What a source sends on is rare, as it shares its topic with others.
            scene(mapped("scores", sent="0x50 1x300", passed="0+18x300"), at=4 * DAY, step=60),
            scene(read("outcomes", "0+0.04x192 8x200"), at=10 * DAY, step=60),
            scene(mapped("scores"), at=10 * DAY, step=60),
        ],
    },
    "TrueupLabelsSilent": {
        "fires": [
            # 24 frauds a day are reported for 16 days, then none.
            scene(reported("0+3x128 384x70"), at=18 * DAY, step=180, fires="TrueupLabelsSilent"),
            # Of all labels the ones stop: the feed sends zeros only.
            scene(reported("0+1x384 384x200", zeros="0+9x600"), at=18 * DAY, step=60, fires="TrueupLabelsSilent"),
            # Six in a day are too few for a day, and enough for three.
            scene(reported("0+0.25x384 96x200"), at=20 * DAY, step=60, fires="TrueupLabelsSilent"),
        ],
        "quiet": [
            scene(reported("0+3x200"), at=18 * DAY, step=180),
            # Another worker took over the partition.
            scene(reported("0+1x384 _x200", "_x385 385+1x200"), healthy(V, 60), at=18 * DAY, step=60),
            # A file a week: none is due, or it is two hours late.
            scene(reported("0x119 200x167 400x170 600x200"), at=18 * DAY, step=60),
            scene(reported("0x119 200x167 400x170 600x200"), at=19 * DAY + 120, step=60),
            # A file a month, and a week later.
            scene(reported("0x263 900x400"), at=19 * DAY, step=60),
            # Two in a day are too few to say.
            scene(reported("0+0.083x384 32x200"), at=20 * DAY, step=60),
        ],
    },
    "TrueupLabelsUnmatched": {
        "fires": [
            # A prefix in the ids, since noon: the labels wait for forecasts.
            scene(early("0x24 0+3x100", "0+3x200"), at=DAY, step=30, fires="TrueupLabelsUnmatched"),
            # For longer than they are waited for: as many are given up as come.
            scene(early("500x400", "0+3x400", "0+3x400"), at=3 * DAY, step=30, fires="TrueupLabelsUnmatched"),
            # A worker without a router.
            scene(
                only("trueup_early_outcomes", "0+3x200"),
                {f'trueup_expired_total{{{W},kind="outcome"}}': "0x200"},
                read("outcomes", "0+3x200", "early"),
                at=DAY,
                step=30,
                fires="TrueupLabelsUnmatched",
            ),
        ],
        "quiet": [
            scene(early("0+0.3x200", "0+3x200"), at=DAY, step=30),
            scene(early("500x200", "0+3x200"), at=DAY, step=30),
            scene(early("0+0.1x200", "0+0.1x200"), at=DAY, step=30),
        ],
    },
    "TrueupExpiredEarly": {
        "fires": [scene(only("trueup_expired_early_total", "0x30 5x100"), at=40, fires="TrueupExpiredEarly")],
        "quiet": [
            scene(only("trueup_expired_early_total", "0x100"), at=40),
            scene(only("trueup_expired_early_total", "5x100"), at=40),
        ],
    },
    "TrueupLabelCoverageFallen": {
        # Of 120 forecasts in half an hour 96 had outcomes, for a day; then 48.
        "fires": [
            scene(labels(120, "0+96x48 4656+48x400"), at=31 * 60, step=30, fires="TrueupLabelCoverageFallen"),
            # 1,200 forecasts a day; labels have been gone for two days, which a comparison with yesterday does not see.
            scene(labels(50, "0+40x192 7680x200"), at=10 * DAY, step=60, fires="TrueupLabelCoverageFallen"),
        ],
        "quiet": [
            scene(labels(50, "0+40x192 7680+30x200"), at=10 * DAY, step=60),
            scene(labels(40, "0+40x192 7680x200"), at=10 * DAY, step=60),
            scene(labels(120, "0+96x48 4680+72x400"), at=31 * 60, step=30),
            scene(labels(80, "0+60x48 2910+30x400"), at=31 * 60, step=30),
        ],
    },
    "TrueupPendingGrowing": {
        "fires": [
            scene(only("trueup_pending_events", "1000x85 1600x40"), at=8 * DAY, step=120, fires="TrueupPendingGrowing")
        ],
        "quiet": [
            scene(only("trueup_pending_events", "1000x340 1400x150"), at=8 * DAY, step=30),
            scene(only("trueup_pending_events", "500x340 990x150"), at=8 * DAY, step=30),
            scene(only("trueup_pending_events", "0+40x100"), at=3 * DAY, step=120),
        ],
    },
    "TrueupNoWorkerReady": {
        "fires": [
            scene(only("trueup_ready", f"0x{LONG}"), at=6, fires="TrueupNoWorkerReady"),
            # The router and the intake are ready.
            scene(only("trueup_ready", f"0x{LONG}"), router(), intake(), at=6, fires="TrueupNoWorkerReady"),
            # Another application is; and so it is where nobody shows the workers any more.
            scene(only("trueup_ready", f"0x{LONG}"), healthy(STAGING), at=6, fires="TrueupNoWorkerReady"),
            scene(until(2), healthy(STAGING), at=15, fires="TrueupNoWorkerReady"),
        ],
        "quiet": [
            scene(only("trueup_ready", "0x4 1x20"), at=6),
            scene(only("trueup_ready", f"0x{LONG}"), healthy(V), at=6),
        ],
    },
    "TrueupStageNotReady": {
        "fires": [
            scene(healthy(), router("0"), intake(), at=6, fires="TrueupStageNotReady"),
            scene(healthy(), router(), intake("0"), at=6, fires="TrueupStageNotReady"),
        ],
        "quiet": [
            scene(healthy(), router(), intake(), at=6),
            scene(healthy(), router("0"), router("1", "r1"), intake(), at=6),
            scene(healthy(), router("0x4 1"), intake(), at=6),
        ],
    },
    "TrueupWorkerDown": {
        "fires": [
            scene(only("up", f"0x{LONG}"), at=3, fires="TrueupWorkerDown"),
            scene({'up{job="trueup-router",instance="r0"}': "0x20"}, at=3, fires="TrueupWorkerDown"),
        ],
        "quiet": [scene(only("up", "0 0 1x20"), at=3), scene({'up{job="prometheus",instance="p"}': "0x20"}, at=3)],
    },
    "TrueupWorkerRestarting": {
        "fires": [
            scene(
                only("process_start_time_seconds", "0 0 100 100 200 200 300x20"), at=10, fires="TrueupWorkerRestarting"
            )
        ],
        "quiet": [
            scene(only("process_start_time_seconds", "0 0 100 100 200x20"), at=10),
            scene(only("process_start_time_seconds", "0 0 100 100 200 200 300x60"), at=40),
        ],
    },
    "TrueupRecoveryLong": {
        "fires": [
            scene(
                only("trueup_ready", f"0x{LONG}"),
                only("trueup_recovery_remaining_records", f"9000-10x{LONG}"),
                healthy(V),
                at=16,
                fires="TrueupRecoveryLong",
            )
        ],
        "quiet": [scene(only("trueup_recovery_remaining_records", f"9000-10x{LONG}"), at=14)],
    },
    "TrueupStandbyBehind": {
        "fires": [
            scene(
                healthy(), only("trueup_standby_missing_partitions", f"1x{LONG}"), at=31, fires="TrueupStandbyBehind"
            ),
            scene(
                healthy(),
                {
                    f'trueup_standby_lag_records{{{W},partition="0"}}': f"0x{LONG}",
                    f'trueup_standby_lag_records{{{W},partition="1"}}': f"200000x{LONG}",
                },
                at=31,
                fires="TrueupStandbyBehind",
            ),
        ],
        "quiet": [
            # A copy is made, and is whole before the half hour is over.
            scene(
                healthy(),
                {f'trueup_standby_lag_records{{{W},partition="1"}}': f"9000000-400000x22 0x{LONG}"},
                only("trueup_standby_missing_partitions", f"1x2 0x{LONG}"),
                at=40,
            ),
        ],
    },
    "TrueupDiskFilling": {
        "fires": [scene(only("trueup_disk_free_ratio", f"0.09x{LONG}"), at=12, fires="TrueupDiskFilling")],
        "quiet": [
            scene(only("trueup_disk_free_ratio", f"0.1x{LONG}"), at=12),
            scene(only("trueup_disk_free_ratio", f"0.09x{LONG}"), at=9),
        ],
    },
    "TrueupMemoryFilling": {
        "fires": [scene(only("trueup_memory_free_ratio", f"0.09x{LONG}"), at=12, fires="TrueupMemoryFilling")],
        "quiet": [
            scene(only("trueup_memory_free_ratio", f"0.1x{LONG}"), at=12),
            scene(only("trueup_memory_free_ratio", f"0.09x8 0.5x{LONG}"), at=12),
        ],
    },
    "TrueupDiskDamaged": {
        "fires": [
            scene(
                healthy(),
                {f'trueup_set_aside_total{{{W},what="damaged"}}': f"0x3 1x{LONG}"},
                at=5,
                fires="TrueupDiskDamaged",
            )
        ],
        "quiet": [
            # Another disk, mounted on purpose; damage of yesterday.
            scene(healthy(), {f'trueup_set_aside_total{{{W},what="foreign"}}': f"0x3 1x{LONG}"}, at=5),
            scene(healthy(), {f'trueup_set_aside_total{{{W},what="damaged"}}': f"0x3 1x{LONG}"}, at=70),
        ],
    },
    "TrueupWorkerNotReady": {
        "fires": [
            scene(only("trueup_ready", f"0x{LONG}"), healthy(V), at=11, fires="TrueupWorkerNotReady"),
            # There is no other worker, so nothing is served.
            scene(only("trueup_ready", f"0x{LONG}"), at=11, fires="TrueupWorkerNotReady TrueupNoWorkerReady"),
        ],
        "quiet": [
            scene(only("trueup_ready", "0x9 1x20"), healthy(V), at=11),
            # It waits for the schema registry, and that has an alert of its own.
            scene(
                only("trueup_ready", f"0x{LONG}"),
                only("trueup_registry_waiting_seconds", "0+60x30"),
                healthy(V),
                at=11,
                fires="TrueupRegistryAway",
            ),
        ],
    },
    "TrueupRegistryAway": {
        "fires": [scene(only("trueup_registry_waiting_seconds", f"61x{LONG}"), at=2, fires="TrueupRegistryAway")],
        "quiet": [scene(only("trueup_registry_waiting_seconds", f"59x{LONG}"), at=20), scene(healthy(), at=20)],
    },
    "TrueupGaugesStale": {
        "fires": [
            scene(
                only("trueup_last_update_timestamp_seconds", f"0x{LONG}"), lag("5x20"), at=7, fires="TrueupGaugesStale"
            ),
            # A worker that never committed has no time of its last commit.
            scene(
                only("trueup_last_update_timestamp_seconds", f"_x{LONG}"), lag("5x20"), at=11, fires="TrueupGaugesStale"
            ),
        ],
        "quiet": [
            scene(only("trueup_last_update_timestamp_seconds", f"0x{LONG}"), at=7),
            scene(lag("5x20"), at=7),
            scene(only("trueup_last_update_timestamp_seconds", f"_x{LONG}"), lag("5x20"), at=5),
        ],
    },
    "TrueupTransactionHanging": {
        "fires": [scene(held_back("0 60 120 180"), at=3, fires="TrueupTransactionHanging")],
        "quiet": [scene(held_back("0 60 0 60 0 60"), at=5), scene(at=5)],
    },
    "TrueupLagGrowing": {
        "fires": [scene(lag("10001+100x60"), at=32, fires="TrueupLagGrowing")],
        "quiet": [scene(lag("20000x60"), at=32), scene(lag("0+100x60"), at=32), scene(lag("20000-100x60"), at=32)],
    },
    "TrueupAnswersLate": {
        "fires": [scene(latency(90, 10), at=25, fires="TrueupAnswersLate")],
        "quiet": [scene(latency(9, 1), at=25), scene(latency(1000, 1), at=25), scene(latency(90, 10), at=10)],
    },
    "TrueupTimesFarOff": {
        "fires": [scene(far_off("0x30 3x40"), at=62, fires="TrueupTimesFarOff")],
        "quiet": [scene(far_off("0x30 2x40"), at=62), scene(far_off("3x70"), at=65)],
    },
    "TrueupDeadLetters": {
        "fires": [
            scene(letters(2, 100), at=17, fires="TrueupDeadLetters"),
            # All of a few labels, beside a thousand times as many forecasts.
            scene(letters(2, 2, "outcomes"), letters(0, 2000), at=17, fires="TrueupDeadLetters"),
            # One in ten minutes, of an intake's source: no ten minutes have ten.
            scene(mapped("scores", sent="0+60x100", dead="0+3x100"), at=DAY + 60, step=30, fires="TrueupDeadLetters"),
            # Five chargebacks in a day and a half, all with a status that no table has.
            scene(
                mapped("disputes", dead="0x10 1x10 2x10 3x10 4x10 5x40"), at=36 * 60, step=30, fires="TrueupDeadLetters"
            ),
        ],
        "quiet": [
            scene(letters(2, 250), at=17),
            scene(letters(0.5, 10), at=17),
            scene(mapped("scores", sent="0+400x100", dead="0+3x100"), at=DAY + 60, step=30),
            scene(mapped("disputes", sent="0+4x100", dead="0x10 1x10 2x10 3x10 4x10 5x40"), at=36 * 60, step=30),
        ],
    },
    "TrueupIdConflicts": {
        "fires": [scene(conflicts("0x3 1x60"), at=12, fires="TrueupIdConflicts")],
        "quiet": [scene(conflicts(f"0x{LONG}"), at=12), scene(conflicts("0x3 1x60"), at=25)],
    },
    "TrueupOutcomesContradict": {
        "fires": [
            scene(only("trueup_contradicting_outcomes_total", "0x3 1x60"), at=12, fires="TrueupOutcomesContradict")
        ],
        "quiet": [
            scene(only("trueup_contradicting_outcomes_total", f"0x{LONG}"), at=12),
            scene(only("trueup_contradicting_outcomes_total", "0x3 1x90"), at=80),
        ],
    },
    "TrueupRecordsLost": {
        "fires": [scene(lost("0x5 40x60"), at=12, fires="TrueupRecordsLost")],
        "quiet": [scene(lost(f"0x{LONG}"), at=12), scene(lost(f"40x{LONG}"), at=12)],
    },
    "TrueupStreamsHidden": {
        "fires": [scene(only("trueup_hidden_streams", f"1x{LONG}"), at=16, fires="TrueupStreamsHidden")],
        "quiet": [
            scene(only("trueup_hidden_streams", f"0x{LONG}"), at=16),
            scene(only("trueup_hidden_streams", f"1x{LONG}"), at=14),
        ],
    },
    "TrueupMapsOld": {
        "fires": [scene(only("trueup_maps_age_seconds", f"201x{LONG}"), at=2, fires="TrueupMapsOld")],
        "quiet": [scene(only("trueup_maps_age_seconds", f"199x{LONG}"), at=20), scene(healthy(), at=20)],
    },
}


def alerts() -> dict[str, dict[str, Any]]:
    """Return the alert rules by name."""
    document = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())
    return {rule["alert"]: rule for group in document["groups"] for rule in group["rules"]}


def shortest(scenarios: Sequence[Scenario]) -> Scenario:
    """Return the scenario that is evaluated least often."""
    return min(scenarios, key=lambda each: each.at / each.step)


def test_every_alert_has_scenarios_of_both_kinds() -> None:
    assert SCENARIOS.keys() == alerts().keys()
    assert all(kinds["fires"] and kinds["quiet"] for kinds in SCENARIOS.values())
    for alert, kinds in SCENARIOS.items():
        for expected, scenarios in kinds.items():
            assert all((alert in scenario.fires) == (expected == "fires") for scenario in scenarios), alert


@needs_promtool
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    judge(tmp_path, [shortest(scenarios) for kinds in SCENARIOS.values() for scenarios in kinds.values()])


@needs_promtool
@pytest.mark.parametrize("alert", SCENARIOS)
def test_an_alert_fires_in_these_scenes_too_and_not_in_those(alert: str, tmp_path: Path) -> None:
    by_day = [shortest(scenarios) for scenarios in SCENARIOS[alert].values()]
    judge(tmp_path, [each for each in chain(*SCENARIOS[alert].values()) if each not in by_day])


# -- what is added up ----------------------------------------------------------------------------------------------


def record(name: str, **labels: str) -> str:
    matchers = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"sum({name}{{{matchers}}})"


@needs_promtool
def test_a_window_is_exact_while_a_partition_moves(tmp_path: Path) -> None:
    """The old owner shows a partition for 40 minutes, nobody for five, then the new owner continues its counts."""
    moved = {
        **bins(10, 0.5, 0.4, at="0+{}x40"),
        **{
            series.replace('"w0"', '"w1"'): f"_x44 {40 * step}+{step}x{LONG}"
            for series, step in (
                (f'trueup_resolved_bin_events{{{W},{S},kind="calibrated",bin="5"}}', 10),
                (f'trueup_resolved_bin_forecasts{{{W},{S},kind="calibrated",bin="5"}}', 5),
                (f'trueup_resolved_bin_outcomes{{{W},{S},kind="calibrated",bin="5"}}', 4),
            )
        },
    }
    hour = {"stream": "cards", "kind": "calibrated", "window": "1h"}
    for at, events in ((42, 400), (70, 660 - 100)):
        series = healthy() | healthy(V) | moved
        values = {
            record("stream_kind:trueup_events:sum", **hour): events,
            record("stream_kind:trueup_ece:ratio", **hour): 0.1,
        }
        judge(tmp_path, [Scenario(series, at, values=values)])


@needs_promtool
def test_ratios_are_those_of_the_sums_of_two_workers(tmp_path: Path) -> None:
    """The first worker has four of five events and its forecasts are too high. The second's are too low.

    Rules read what is ten seconds old: after 21 steps of a minute, what there was after 20.
    """
    life = {"stream": "cards", "kind": "calibrated", "window": "life"}
    n, forecasts, outcomes = 50 * 20, 40 * 20 * 0.5 + 10 * 20 * 0.6, 40 * 20 * 0.3 + 10 * 20 * 0.8
    said = forecasts / n
    values = {
        record("stream_kind:trueup_events:sum", **life): n,
        record("stream_kind:trueup_ece:ratio", **life): abs(forecasts - outcomes) / n,
        record("stream_kind_bin:trueup_mean_forecast:ratio", **life): said,
        record("stream_kind_bin:trueup_base_rate:ratio", **life): outcomes / n,
        record("stream_kind:trueup_ece_noise:ratio", **life): math.sqrt(2 / math.pi * n * said * (1 - said)) / n,
        record("stream:trueup_calibration_error:ratio", stream="cards"): (300 * 0.1 + 100 * 0.3) / 400,
    }
    series = healthy() | healthy(V) | bins(40, 0.5, 0.3) | bins(10, 0.6, 0.8, worker=V)
    series |= guarantee(0.1, 0.5, 300) | guarantee(0.3, 0.5, 100, V)
    judge(tmp_path, [Scenario(series, 21, values=values)])


@needs_promtool
def test_the_lowest_tenth_is_the_sum_of_its_bands(tmp_path: Path) -> None:
    """Neither over bands nor over two workers do errors add up that cancel."""
    series = healthy() | bins(10, 0.02, 0.03, which=0.3) | bins(10, 0.04, 0.03, which=0.4, worker=V)
    lowest = {"stream": "cards", "kind": "calibrated", "window": "life"}
    values = {
        record("stream_kind_bin:trueup_bin_events:sum", bin="0", **lowest): 400,
        record("stream_kind_bin:trueup_mean_forecast:ratio", bin="0", **lowest): 0.03,
        record("stream_kind:trueup_ece:ratio", **lowest): 0.0,
    }
    judge(tmp_path, [Scenario(series | healthy(V), 21, values=values)])


@needs_promtool
def test_two_applications_do_not_add_up(tmp_path: Path) -> None:
    """They have one job and one name of a stream, and the second one's forecasts are too high."""
    life = {"stream": "cards", "kind": "calibrated", "window": "life"}
    series = healthy() | healthy(STAGING) | bins(40, 0.5, 0.5) | bins(10, 0.6, 0.2, worker=STAGING)
    values = {
        record("stream_kind:trueup_events:sum", **life, app=""): 800,
        record("stream_kind:trueup_events:sum", **life, app="staging"): 200,
        record("stream_kind:trueup_ece:ratio", **life, app=""): 0,
        record("stream_kind:trueup_ece:ratio", **life, app="staging"): 0.4,
    }
    judge(tmp_path, [Scenario(series, 21, frozenset({"TrueupMeanOff"}), values=values)])


@needs_promtool
def test_wrong_labels_are_outcomes_1_below_one_half_and_outcomes_0_from_it_on(tmp_path: Path) -> None:
    life = {"stream": "cards", "kind": "calibrated", "window": "life", "loss": "misclassification"}
    wrong = 20 * (10 * 0.25 + 30 * (1 - 0.75))
    series = healthy() | bins(10, 0.2, 0.25, which=4) | bins(30, 0.8, 0.75, which=5)
    judge(tmp_path, [Scenario(series, 21, values={record("stream_kind_loss:trueup_loss:sum", **life): wrong})])
