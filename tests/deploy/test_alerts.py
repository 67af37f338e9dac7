"""Every alert fires when it should, and stays quiet one step before."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.promtool import PROMETHEUS, Scenario, judge, needs_promtool

W: Final = 'job="trueup",instance="w0"'
V: Final = 'job="trueup",instance="w1"'
INTAKE: Final = 'job="trueup-intake",instance="i0"'
#: A worker of another application that the same Prometheus scrapes.
STAGING: Final = 'app="staging",job="trueup",instance="s0"'
#: More samples than any scenario looks at.
LONG: Final = 500


def only(name: str, values: float | str, worker: str = W, **labels: object) -> dict[str, str]:
    """Return one series by its name without ``trueup_``; a number is its value throughout."""
    named = name if name in {"up", "process_start_time_seconds"} else f"trueup_{name}"
    matched = ",".join([worker, *(f'{label}="{value}"' for label, value in labels.items())])
    return {f"{named}{{{matched}}}": values if isinstance(values, str) else f"{values}x{LONG}"}


def cards(name: str, values: float | str, worker: str = W, **labels: object) -> dict[str, str]:
    """Return one series of the stream."""
    return only(name, values, worker, stream="cards", **labels)


def lag(values: str) -> dict[str, str]:
    return only("lag_records", values, topic="forecasts", partition=0)


def healthy(worker: str = W, step: int = 1) -> dict[str, str]:
    """Return a worker that is well and has nothing to do."""
    return {
        **only("up", 1, worker),
        **only("ready", 1, worker),
        **only("pending_events", 0, worker),
        **only("recovery_remaining_records", 0, worker),
        **only("process_start_time_seconds", 0, worker),
        **only("last_update_timestamp_seconds", f"0+{60 * step}x{LONG}", worker),
        **only("lag_records", 0, worker, topic="forecasts", partition=0),
    }


def until(minutes: int) -> dict[str, str]:
    """Return a worker whose series end."""
    return {series: f"{values.split('x')[0]}x{minutes} stale" for series, values in healthy().items()}


def router(ready: str = "1", instance: str = "r0") -> dict[str, str]:
    """Return a router."""
    labels = f'job="trueup-router",instance="{instance}"'
    return only("ready", f"{ready}x{LONG}", labels) | only("routed_events", 0, labels)


def intake(ready: str = "1") -> dict[str, str]:
    """Return an intake of two sources."""
    found = only("ready", f"{ready}x{LONG}", INTAKE)
    for source in "ab":
        found |= only("mapped_records_total", 0, INTAKE, source=source, fate="sent")
    return found


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
    sums = {"events": n, "forecasts": n * said, "outcomes": n * came}
    each = [
        cards(f"resolved_bin_{noun}", at.format(sum_, LONG), worker, kind=kind, bin=which)
        for noun, sum_ in sums.items()
    ]
    return {series: values for one in each for series, values in one.items()}


def losses(n: float, raw: float, calibrated: float, loss: str = "brier") -> dict[str, str]:
    """Return a stream that gains ``n`` events a step, with the mean losses of both kinds."""
    return {
        **cards("resolved", f"0+{n}x{LONG}"),
        **cards(loss, raw, kind="raw"),
        **cards(loss, calibrated, kind="calibrated"),
        **bins(n, 0.5, 0.5, kind="raw"),
    }


def guarantee(error: float, bound: float, learnt: float, worker: str = W) -> dict[str, str]:
    return {
        **cards("calibration_error", error, worker),
        **cards("calibration_bound", bound, worker),
        **cards("learnt_outcomes", learnt, worker),
    }


def alarm(kind: str, level: float, worker: str = W, name: str = "alarm_log10") -> dict[str, str]:
    return cards(name, level, worker, kind=kind) | cards("scored_partitions", 1, worker)


def recent(kind: str, level: float, worker: str = W) -> dict[str, str]:
    return alarm(kind, level, worker, "alarm_recent_log10")


def warm_up(partitions: int, evidence: float) -> dict[str, str]:
    return cards("warm_up_partitions", partitions) | cards("warm_up_alarm_log10", evidence)


def harmed(loss: str, difference: float, error: float, n: int, worker: str = W) -> dict[str, str]:
    """Return a stream of classes or numbers whose raw pinball loss, if it has one, is 2."""
    raw = cards("pinball_loss", 2, worker, kind="raw") if loss == "pinball" else {}
    return raw | {
        **cards("loss_difference", difference, worker, loss=loss),
        **cards("loss_difference_error", error, worker, loss=loss),
        **cards("resolved_vectors", n, worker),
    }


def challenged(difference: float, error: float, n: int, worker: str = W) -> dict[str, str]:
    """Return a stream whose challenger's log loss differs from that of what serves."""
    of: dict[str, object] = {"calibrator": "platt", "config": "0a1b2c3d"}
    return {
        **cards("shadow_events", n, worker, **of),
        **cards("shadow_difference", difference, worker, **of, loss="log"),
        **cards("shadow_difference_error", error, worker, **of, loss="log"),
    }


def ranked(raw: float, served: float, error: float, worker: str = W) -> dict[str, str]:
    """Return a stream whose AUCs are these, over outcomes that keep coming."""
    return {
        **cards("auc", raw, worker, kind="raw"),
        **cards("auc", served, worker, kind="calibrated"),
        **cards("auc_error", error, worker, kind="raw"),
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


def moved(by: str) -> dict[str, str]:
    return cards("band_moved", by, band="review") | cards("band_moved", 1, V, band="review")


def reported(one: str, other: str = "", zeros: str = "0x600") -> dict[str, str]:
    """Return how many outcomes were reported, by the state of one worker or of two: a value in an hour."""
    found: dict[str, str] = {}
    for worker, ones in ((W, one), (V, other)):
        if ones:
            found |= cards("reported_outcomes", zeros, worker, label=0) | cards(
                "reported_outcomes", ones, worker, label=1
            )
    return found


def labels(answered: float, scored: str) -> dict[str, str]:
    return cards("answered_forecasts_total", f"0+{answered}x{LONG}") | cards("scored_events_total", scored)


def latency(within: int, late: int) -> dict[str, str]:
    name, total = "forecast_latency_seconds", f"0+{within + late}x{LONG}"
    found = only(f"{name}_count", total)
    for le in ("1.0", "30.0", "60.0", "+Inf"):
        found |= only(f"{name}_bucket", f"0+{within}x{LONG}" if le in {"1.0", "30.0"} else total, le=le)
    return found


def letters(dead: float, records: float, topic: str = "forecasts") -> dict[str, str]:
    return {
        **only("dead_letters_total", f"0+{dead}x{LONG}", topic=topic, reason="not_json"),
        **only("records_total", f"0+{records}x{LONG}", topic=topic, fate="issued"),
    }


def mapped(source: str, sent: float | str = 0, passed: float | str = 0, dead: float | str = 0) -> dict[str, str]:
    """Return an intake's source whose records became this."""
    found = only("dead_letters_total", dead, INTAKE, topic=source, reason="label")
    for fate, values in (("sent", sent), ("passed", passed), ("dead", dead)):
        found |= only("mapped_records_total", values, INTAKE, source=source, fate=fate)
    return found


def read(topic: str, values: str, fate: str = "waiting") -> dict[str, str]:
    return only("records_total", values, topic=topic, fate=fate)


def early(waiting: str, labels: str, expired: float | str = 0) -> dict[str, str]:
    """Return a router with so many labels that wait for a forecast, of so many that came."""
    router = 'job="trueup-router",instance="r0"'
    return {
        **only("unrouted_events", waiting, router),
        **only("expired_routes_total", expired, router, kind="labels"),
        **only("routed_records_total", labels, router, topic="labels", fate="routed"),
    }


def conflicts(values: float | str) -> dict[str, str]:
    return only("dead_letters_total", values, topic="forecasts", reason="conflict")


def quiet(*parts: dict[str, str], at: int, also: str = "", step: int = 1) -> Scenario:
    """Return a healthy worker, with the series of the parts in place of its own; ``also``: another alert that fires."""
    series = healthy(step=step)
    for part in parts:
        series |= part
    return Scenario(series, at, frozenset(also.split()), step)


def fires(*parts: dict[str, str], at: int, also: str = "", step: int = 1) -> Scenario:
    """Return a scene in which the alert fires that it is listed under."""
    return replace(quiet(*parts, at=at, also=also, step=step), due=True)


#: Ten bins of 110 events an hour, off by .06 to alternating sides: the ECE is .06, where chance alone makes .04.
NOISY: Final[dict[str, str]] = {
    series: values
    for i in range(10)
    for series, values in bins(110 / 60, 0.5, 0.56 if i % 2 else 0.44, which=i).items()
}
DAY: Final = 24 * 60

#: By alert: scenes in which it fires, alone unless others are named, and quiet ones just below its threshold.
SCENES: Final[dict[str, list[Scenario]]] = {
    "TrueupCalibrationErrorAboveBound": [
        fires(guarantee(0.21, 0.2, 1000), at=15),
        quiet(guarantee(0.2, 0.2, 1000), at=15),
        quiet(guarantee(0.21, 0.2, 999), at=15),
        quiet(guarantee(0.21, 0.2, 1000), at=8),
        # 100 outcomes of a worker above its bound, and 900 of one below: the mean over outcomes is below.
        quiet(guarantee(0.25, 0.2, 100), guarantee(0.19, 0.2, 900, V), at=15),
    ],
    "TrueupCalibrationErrorHigh": [
        fires(bins(20, 0.5, 0.44), at=70),
        # An hour brings 600 events, too few; the day has enough.
        fires(bins(10, 0.5, 0.44), at=180),
        quiet(bins(20, 0.5, 0.46), at=70),
        quiet(bins(10, 0.5, 0.44), at=95),
        quiet(bins(20, 0.5, 0.44, kind="raw"), at=70),
        quiet(NOISY, at=65),
        # Two workers err to opposite sides: the mean of their errors is .06, and the error of both together is 0.
        quiet(bins(20, 0.5, 0.44), bins(20, 0.5, 0.56, worker=V), healthy(V), at=70),
    ],
    "TrueupMeanOff": [
        # .4 % happens: 0 is served for ever, at 100 events a minute, or a half, or half as much again.
        fires(rare(100, 0.0, 0.004), at=75),
        fires(rare(500, 0.002, 0.004), at=75),
        fires(rare(1000, 0.006, 0.004), at=75),
        # A slow stream, a dozen outcomes in half a day.
        fires(rare(10, 0.0, 0.004), at=13 * 60, step=2),
        # No event happened, where 60 were expected.
        fires(rare(20, 0.05, 0.0), at=75),
        # Four frauds a day, and none since day 8: no day says it, the week does.
        fires(slow("0+0.18x192 34.56x300"), at=15 * DAY, step=60),
        quiet(slow("0+0.18x192 34.56x300"), at=10 * DAY, step=60),
        quiet(slow("0+0.18x192 34.56+0.09x300"), at=15 * DAY, step=60),
        quiet(rare(500, 0.003, 0.004), at=75),
        quiet(rare(500, 0.005, 0.004), at=75),
        # Six outcomes are no evidence, and neither is the hour of a slow stream.
        quiet(rare(20, 0.0, 0.004), at=75),
        quiet(rare(500, 0.002, 0.004), at=8),
        # The model's own forecasts may be off: recalibration is for that.
        quiet(bins(500, 0.1, 0.004, kind="raw", which=1), at=75),
    ],
    "TrueupServedNotCalibrated": [
        fires(alarm("calibrated", 3.1), at=5),
        # The alert fires for as long as the trouble lasts.
        fires(recent("calibrated", 3.1), at=7 * DAY + 60, step=30),
        fires(alarm("calibrated", 3.1), at=7 * DAY - 30, step=30),
        quiet(alarm("calibrated", 2.9), recent("calibrated", 2.9), at=5),
        quiet(recent("raw", 9.0), at=5),
        quiet(recent("calibrated", 3.1), recent("calibrated", 0.0, V), healthy(V), at=5),
        # Two places are looked at, so each needs twice the evidence.
        quiet(alarm("calibrated", 3.1), alarm("calibrated", 0.0, V), healthy(V), at=5),
        # The evidence never falls, so the alert ends after a week.
        quiet(alarm("calibrated", 3.1), at=7 * DAY + 60, step=30),
    ],
    "TrueupModelNotCalibrated": [
        fires(alarm("raw", 3.1), at=5),
        fires(warm_up(0, 3.1), at=5),
        quiet(alarm("raw", 2.9), at=5),
        quiet(warm_up(0, 2.9), at=5),
    ],
    "TrueupWarmingUp": [
        fires(warm_up(1, 0.0), at=5),
        quiet(warm_up(0, 0.0), at=5),
        quiet(warm_up(1, 0.0), at=1),
    ],
    "TrueupSegmentsOff": [
        fires(cards("segments_off", 1), cards("segments_scored", 20), at=35),
        quiet(cards("segments_off", 1), cards("segments_scored", 20), at=25),
        quiet(cards("segments_off", 0), cards("segments_scored", 20), at=60),
    ],
    "TrueupSegmentsOffLately": [
        fires(cards("segments_off_recently", 2), at=5),
        quiet(cards("segments_off_recently", 0), at=60),
        quiet(cards("segments_off_recently", f"1x10 0x{LONG}"), at=30),
    ],
    "TrueupSegmentsSilent": [
        fires(cards("segments_silent", 1), at=32),
        quiet(cards("segments_silent", 0), at=60),
        quiet(cards("segments_silent", f"1x20 0x{LONG}"), at=60),
    ],
    "TrueupOrderLost": [
        fires(ranked(0.83, 0.80, 0.01), at=40),
        quiet(ranked(0.83, 0.815, 0.001), at=40),
        quiet(ranked(0.83, 0.80, 0.02), at=40),
        quiet(ranked(0.83, 0.80, 0.01), at=25),
        quiet(ranked(0.80, 0.83, 0.01), at=40),
        # One worker ranks worse and one better: each counts by its number of outcomes.
        quiet(ranked(0.83, 0.80, 0.01), ranked(0.80, 0.83, 0.01, V), healthy(V), at=40),
    ],
    "TrueupRecalibrationHarms": [
        fires(harmed("pinball", 0.03, 0.005, 5000), at=40),
        fires(harmed("log", 0.02, 0.002, 5000), at=40),
        fires(harmed("brier", 0.004, 0.001, 5000), at=40),
        quiet(harmed("pinball", 0.03, 0.005, 5000), at=25),
        quiet(harmed("pinball", 0.03, 0.011, 5000), at=40),
        quiet(harmed("pinball", 0.019, 0.001, 5000), at=40),
        quiet(harmed("pinball", -0.03, 0.001, 5000), at=40),
        quiet(harmed("pinball", 0.03, 0.005, 4000), at=40),
        quiet(harmed("log", 0.009, 0.001, 5000), at=40),
        # One worker loses and one gains: each counts by its number of outcomes.
        quiet(harmed("log", 0.02, 0.002, 5000), harmed("log", -0.02, 0.002, 5000, V), healthy(V), at=40),
    ],
    "TrueupChallengerBetter": [
        fires(challenged(-0.01, 0.004, 5000), at=7 * DAY + 120, step=120),
        quiet(challenged(-0.01, 0.004, 5000), at=7 * DAY - 120, step=120),
        quiet(challenged(-0.01, 0.006, 5000), at=7 * DAY + 120, step=120),
        quiet(challenged(-0.01, 0.004, 4999), at=7 * DAY + 120, step=120),
        # One worker's partitions gain, the other's lose: each counts by its number of events.
        quiet(challenged(-0.01, 0.004, 5000), challenged(0.01, 0.004, 5000, V), healthy(V, 120), at=8 * DAY, step=120),
    ],
    "TrueupRegretGrowing": [
        fires(losses(100, 0.2, 0.203), at=140, step=2),
        fires(losses(100, 0.5, 0.52, "log_loss"), at=140, step=2),
        quiet(losses(100, 0.2, 0.2015), at=140, step=2),
        quiet(losses(70, 0.2, 0.203), at=140, step=2),
        quiet(losses(100, 0.203, 0.2), at=140, step=2),
        quiet(losses(100, 0.5, 0.505, "log_loss"), at=140, step=2),
    ],
    "TrueupLabelsMisread": [
        fires(cards("label_finding", 1, finding="classes"), at=65),
        quiet(cards("label_finding", 1, finding="ttl"), at=55),
    ],
    "TrueupForecastsShifted": [
        fires(cards("forecast_shift", "0.3x500"), at=65),
        fires(cards("forecast_shift", "0.2x340 0.5x150"), at=8 * DAY, step=30),
        quiet(cards("forecast_shift", "0.3x500"), at=55),
        quiet(cards("forecast_shift", "0.2x500"), at=140),
        quiet(cards("forecast_shift", "0.3x340 0.5x150"), at=8 * DAY, step=30),
    ],
    "TrueupBandMoved": [
        fires(moved("1x60 3x440"), at=125),
        fires(moved("0.5x500"), at=65),
        quiet(moved("1x500"), at=400),
        quiet(moved("3x500"), at=55),
        quiet(moved("3x30 1x470"), at=100),
    ],
    "TrueupInputSilent": [
        # The feed of labels stopped on day 8; an hour a step.
        fires(read("outcomes", "0+2x192 384x200"), at=10 * DAY, step=60),
        # It has not come back for ten days.
        fires(read("outcomes", "0+2x192 384x300"), at=18 * DAY, step=60),
        # Another value in the field that `when` asks for: all is passed over.
        fires(mapped("scores", sent="0+18x192 3456x200", passed="0x192 0+18x200"), at=10 * DAY, step=60),
        # It never held: the first hours of a source.
        fires(mapped("scores", passed="0+18x100"), at=12 * 60, step=60),
        # One of several streams gets no forecast any more.
        fires(cards("answered_forecasts_total", "0+80x192 15360x200"), at=10 * DAY, step=60),
        # Nothing at weekends: a week before the second one there were none either.
        quiet(read("outcomes", "0+2x120 240x47 240+2x120 480x47 480+2x100"), at=13 * DAY + 720, step=60),
        # What a source sends on is rare, as it shares its topic with others.
        quiet(mapped("scores", sent="0x50 1x300", passed="0+18x300"), at=4 * DAY, step=60),
        quiet(read("outcomes", "0+0.04x192 8x200"), at=10 * DAY, step=60),
        quiet(mapped("scores"), at=10 * DAY, step=60),
    ],
    "TrueupLabelsSilent": [
        # 24 frauds a day are reported for 16 days, then none.
        fires(reported("0+3x128 384x70"), at=18 * DAY, step=180),
        # Of all labels the ones stop: the feed sends zeros only.
        fires(reported("0+1x384 384x200", zeros="0+9x600"), at=18 * DAY, step=60),
        # Six in a day are too few for a day, and enough for three.
        fires(reported("0+0.25x384 96x200"), at=20 * DAY, step=60),
        quiet(reported("0+3x200"), at=18 * DAY, step=180),
        # Another worker took over the partition.
        quiet(reported("0+1x384 _x200", "_x385 385+1x200"), healthy(V, 60), at=18 * DAY, step=60),
        # A file a week: none is due, or it is two hours late.
        quiet(reported("0x119 200x167 400x170 600x200"), at=18 * DAY, step=60),
        quiet(reported("0x119 200x167 400x170 600x200"), at=19 * DAY + 120, step=60),
        # A file a month, and a week later.
        quiet(reported("0x263 900x400"), at=19 * DAY, step=60),
        # Two in a day are too few to say.
        quiet(reported("0+0.083x384 32x200"), at=20 * DAY, step=60),
    ],
    "TrueupLabelsUnmatched": [
        # A prefix in the ids, since noon: the labels wait for forecasts.
        fires(early("0x24 0+3x100", "0+3x200"), at=DAY, step=30),
        # For longer than they are waited for: as many are given up as come.
        fires(early("500x400", "0+3x400", "0+3x400"), at=3 * DAY, step=30),
        # A worker without a router.
        fires(
            only("early_outcomes", "0+3x200"),
            only("expired_total", 0, kind="outcome"),
            read("outcomes", "0+3x200", "early"),
            at=DAY,
            step=30,
        ),
        quiet(early("0+0.3x200", "0+3x200"), at=DAY, step=30),
        quiet(early("500x200", "0+3x200"), at=DAY, step=30),
        quiet(early("0+0.1x200", "0+0.1x200"), at=DAY, step=30),
    ],
    "TrueupExpiredEarly": [
        fires(only("expired_early_total", "0x30 5x100"), at=40),
        quiet(only("expired_early_total", "0x100"), at=40),
        quiet(only("expired_early_total", "5x100"), at=40),
    ],
    "TrueupLabelCoverageFallen": [
        # Of 120 forecasts in half an hour 96 had outcomes, for a day; then 48.
        fires(labels(120, "0+96x48 4656+48x400"), at=31 * 60, step=30),
        # 1,200 forecasts a day; labels have been gone for two days, which a comparison with yesterday does not see.
        fires(labels(50, "0+40x192 7680x200"), at=10 * DAY, step=60),
        quiet(labels(50, "0+40x192 7680+30x200"), at=10 * DAY, step=60),
        quiet(labels(40, "0+40x192 7680x200"), at=10 * DAY, step=60),
        quiet(labels(120, "0+96x48 4680+72x400"), at=31 * 60, step=30),
        quiet(labels(80, "0+60x48 2910+30x400"), at=31 * 60, step=30),
    ],
    "TrueupPendingGrowing": [
        fires(only("pending_events", "1000x85 1600x40"), at=8 * DAY, step=120),
        quiet(only("pending_events", "1000x340 1400x150"), at=8 * DAY, step=30),
        quiet(only("pending_events", "500x340 990x150"), at=8 * DAY, step=30),
        quiet(only("pending_events", "0+40x100"), at=3 * DAY, step=120),
    ],
    "TrueupNoWorkerReady": [
        fires(only("ready", 0), at=6),
        # The router and the intake are ready.
        fires(only("ready", 0), router(), intake(), at=6),
        # Another application is; and so it is where nobody shows the workers any more.
        fires(only("ready", 0), healthy(STAGING), at=6),
        fires(until(2), healthy(STAGING), at=15),
        quiet(only("ready", "0x4 1x20"), at=6),
        quiet(only("ready", 0), healthy(V), at=6),
    ],
    "TrueupStageNotReady": [
        fires(router("0"), intake(), at=6),
        fires(router(), intake("0"), at=6),
        quiet(router(), intake(), at=6),
        quiet(router("0"), router("1", "r1"), intake(), at=6),
        quiet(router("0x4 1"), intake(), at=6),
    ],
    "TrueupWorkerDown": [
        fires(only("up", 0), at=3),
        fires(only("up", 0, 'job="trueup-router",instance="r0"'), at=3),
        quiet(only("up", "0 0 1x20"), at=3),
        quiet(only("up", 0, 'job="prometheus",instance="p"'), at=3),
    ],
    "TrueupWorkerRestarting": [
        fires(only("process_start_time_seconds", "0 0 100 100 200 200 300x20"), at=10),
        quiet(only("process_start_time_seconds", "0 0 100 100 200x20"), at=10),
        quiet(only("process_start_time_seconds", "0 0 100 100 200 200 300x60"), at=40),
    ],
    "TrueupRecoveryLong": [
        fires(only("ready", 0), only("recovery_remaining_records", f"9000-10x{LONG}"), healthy(V), at=16),
        quiet(only("recovery_remaining_records", f"9000-10x{LONG}"), at=14),
    ],
    "TrueupStandbyBehind": [
        fires(only("standby_missing_partitions", 1), at=31),
        fires(
            healthy(),
            only("standby_lag_records", 0, partition=0),
            only("standby_lag_records", 200000, partition=1),
            at=31,
        ),
        # A copy is made, and is whole before the half hour is over.
        quiet(
            healthy(),
            only("standby_lag_records", f"9000000-400000x22 0x{LONG}", partition=1),
            only("standby_missing_partitions", f"1x2 0x{LONG}"),
            at=40,
        ),
    ],
    "TrueupDiskFilling": [
        fires(only("disk_free_ratio", 0.09), at=12),
        quiet(only("disk_free_ratio", 0.1), at=12),
        quiet(only("disk_free_ratio", 0.09), at=9),
    ],
    "TrueupMemoryFilling": [
        fires(only("memory_free_ratio", 0.09), at=12),
        quiet(only("memory_free_ratio", 0.1), at=12),
        quiet(only("memory_free_ratio", f"0.09x8 0.5x{LONG}"), at=12),
    ],
    "TrueupDiskDamaged": [
        fires(healthy(), only("set_aside_total", "0x3 1x90", what="damaged"), at=5),
        # Another disk, mounted on purpose; damage of yesterday.
        quiet(only("set_aside_total", "0x3 1x90", what="foreign"), at=5),
        quiet(only("set_aside_total", "0x3 1x90", what="damaged"), at=70),
    ],
    "TrueupWorkerNotReady": [
        fires(only("ready", 0), healthy(V), at=11),
        # There is no other worker, so nothing is served.
        fires(only("ready", 0), at=11, also="TrueupNoWorkerReady"),
        quiet(only("ready", "0x9 1x20"), healthy(V), at=11),
        # It waits for the schema registry, and that has an alert of its own.
        quiet(
            only("ready", 0),
            only("registry_waiting_seconds", "0+60x30"),
            healthy(V),
            at=11,
            also="TrueupRegistryAway",
        ),
    ],
    "TrueupRegistryAway": [
        fires(only("registry_waiting_seconds", 61), at=2),
        quiet(only("registry_waiting_seconds", 59), at=20),
        quiet(at=20),
    ],
    "TrueupGaugesStale": [
        fires(only("last_update_timestamp_seconds", 0), lag("5x20"), at=7),
        # A worker that never committed has no time of its last commit.
        fires(only("last_update_timestamp_seconds", f"_x{LONG}"), lag("5x20"), at=11),
        quiet(only("last_update_timestamp_seconds", 0), at=7),
        quiet(lag("5x20"), at=7),
        quiet(only("last_update_timestamp_seconds", f"_x{LONG}"), lag("5x20"), at=5),
    ],
    "TrueupTransactionHanging": [
        fires(only("held_back_seconds", "0 60 120 180", topic="forecasts", partition=0), at=3),
        quiet(only("held_back_seconds", "0 60 0 60 0 60", topic="forecasts", partition=0), at=5),
        quiet(at=5),
    ],
    "TrueupLagGrowing": [
        fires(lag("10001+100x60"), at=32),
        quiet(lag("20000x60"), at=32),
        quiet(lag("0+100x60"), at=32),
        quiet(lag("20000-100x60"), at=32),
    ],
    "TrueupAnswersLate": [
        fires(latency(90, 10), at=25),
        quiet(latency(9, 1), at=25),
        quiet(latency(1000, 1), at=25),
        quiet(latency(90, 10), at=10),
    ],
    "TrueupTimesFarOff": [
        fires(only("far_off_times_total", "0x30 3x40", topic="outcomes"), at=62),
        quiet(only("far_off_times_total", "0x30 2x40", topic="outcomes"), at=62),
        quiet(only("far_off_times_total", "3x70", topic="outcomes"), at=65),
    ],
    "TrueupDeadLetters": [
        fires(letters(2, 100), at=17),
        # All of a few labels, beside a thousand times as many forecasts.
        fires(letters(2, 2, "outcomes"), letters(0, 2000), at=17),
        # One in ten minutes, of an intake's source: no ten minutes have ten.
        fires(mapped("scores", sent="0+60x100", dead="0+3x100"), at=DAY + 60, step=30),
        # Five chargebacks in a day and a half, all with a status that no table has.
        fires(mapped("disputes", dead="0x10 1x10 2x10 3x10 4x10 5x40"), at=36 * 60, step=30),
        quiet(letters(2, 250), at=17),
        quiet(letters(0.5, 10), at=17),
        quiet(mapped("scores", sent="0+400x100", dead="0+3x100"), at=DAY + 60, step=30),
        quiet(mapped("disputes", sent="0+4x100", dead="0x10 1x10 2x10 3x10 4x10 5x40"), at=36 * 60, step=30),
    ],
    "TrueupIdConflicts": [
        fires(conflicts("0x3 1x60"), at=12),
        quiet(conflicts(0), at=12),
        quiet(conflicts("0x3 1x60"), at=25),
    ],
    "TrueupOutcomesContradict": [
        fires(only("contradicting_outcomes_total", "0x3 1x60"), at=12),
        quiet(only("contradicting_outcomes_total", 0), at=12),
        quiet(only("contradicting_outcomes_total", "0x3 1x90"), at=80),
    ],
    "TrueupRecordsLost": [
        fires(only("lost_records_total", "0x5 40x60", topic="forecasts"), at=12),
        quiet(only("lost_records_total", 0, topic="forecasts"), at=12),
        quiet(only("lost_records_total", 40, topic="forecasts"), at=12),
    ],
    "TrueupStreamsHidden": [
        fires(only("hidden_streams", 1), at=16),
        quiet(only("hidden_streams", 0), at=16),
        quiet(only("hidden_streams", 1), at=14),
    ],
    "TrueupMapsOld": [
        fires(only("maps_age_seconds", 201), at=2),
        quiet(only("maps_age_seconds", 199), at=20),
        quiet(at=20),
    ],
}
SCENARIOS: Final = {
    alert: [replace(each, fires=each.fires | {alert}) if each.due else each for each in scenes]
    for alert, scenes in SCENES.items()
}


def alerts() -> dict[str, dict[str, Any]]:
    """Return the alert rules by name."""
    document = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())
    return {rule["alert"]: rule for group in document["groups"] for rule in group["rules"]}


def shortest(scenes: Sequence[Scenario]) -> list[Scenario]:
    """Return of both kinds the scenario that is evaluated least often."""
    return [
        min((each for each in scenes if each.due == due), key=lambda each: each.at / each.step) for due in (True, False)
    ]


def test_every_alert_has_scenarios_of_both_kinds() -> None:
    assert SCENARIOS.keys() == alerts().keys()
    assert all({each.due for each in scenes} == {True, False} for scenes in SCENARIOS.values())


@needs_promtool
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    judge(tmp_path, [each for scenes in SCENARIOS.values() for each in shortest(scenes)])


@needs_promtool
@pytest.mark.parametrize("alert", SCENARIOS)
def test_an_alert_fires_in_these_scenes_too_and_not_in_those(alert: str, tmp_path: Path) -> None:
    judge(tmp_path, [each for each in SCENARIOS[alert] if each not in shortest(SCENARIOS[alert])])


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
            series: f"_x44 {40 * step}+{step}x{LONG}"
            for noun, step in (("events", 10), ("forecasts", 5), ("outcomes", 4))
            for series in cards(f"resolved_bin_{noun}", "", V, kind="calibrated", bin=5)
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
