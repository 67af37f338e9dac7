"""*Stream*: what one stream's forecasts are worth, raw against calibrated."""

from typing import Final, Literal

from deploy.grafana.panels import (
    BAD,
    CALIBRATED,
    JOB,
    MUTED,
    RAW,
    WORKER,
    Dashboard,
    Level,
    Panel,
    Query,
    Row,
    of,
    over,
)

_COLORS: Final = {"raw": RAW, "calibrated": CALIBRATED}
_PLAIN: Final[tuple[Level, ...]] = ((None, "text"),)


def _here(name: str, **labels: str) -> str:
    return of(name, stream="$stream", **labels)


def _window(name: str, **labels: str) -> str:
    return _here(name, window="$window", **labels)


def _rate(name: str) -> str:
    return f'sum(rate({name}{{{WORKER}, stream="$stream"}}[$__rate_interval]))'


def _bins(name: str, kind: str) -> str:
    return over("sum", _window(name, kind=kind), "bin")


def _band(kind: str, sign: str) -> str:
    """Return how often it happened, two standard errors up or down, within [0, 1]."""
    rate, events = (
        _bins("stream_kind_bin:trueup_base_rate:ratio", kind),
        _bins("stream_kind_bin:trueup_bin_events:sum", kind),
    )
    return f"clamp({rate} {sign} 2 * sqrt({rate} * (1 - {rate}) / {events}), 0, 1)"


def _said(kind: str) -> str:
    return _bins("stream_kind_bin:trueup_mean_forecast:ratio", kind)


def _diagram(kind: str) -> list[Query]:
    color = _COLORS[kind]
    return [
        Query(_said(kind), f"said, {kind}", MUTED, "dashed"),
        Query(_bins("stream_kind_bin:trueup_base_rate:ratio", kind), kind, color),
        Query(_band(kind, "-"), f"{kind}, low", color, "dashed"),
        Query(_band(kind, "+"), f"{kind}, high", color, "dashed"),
    ]


def _curves(kind: str) -> list[tuple[str, str]]:
    """Return what is drawn over what was said; over itself it is the diagonal."""
    said = f"said, {kind}"
    return [(said, said), *((said, name) for name in (kind, f"{kind}, low", f"{kind}, high"))]


def _number(
    title: str,
    description: str,
    expr: str,
    *levels: Level,
    unit: str = "none",
    decimals: int | None = 3,
    alert: str = "",
) -> Panel:
    return Panel(
        "stat", title, description, [Query(expr)], unit, 3, 4, decimals=decimals, levels=levels or _PLAIN, alert=alert
    )


def _both(name: str, **labels: str) -> list[Query]:
    return [
        Query(over("max", of(name, stream="$stream", kind=kind, **labels)), kind, color)
        for kind, color in _COLORS.items()
    ]


def _quiet(name: str, words: str = "", style: Literal["line", "dashed"] = "line") -> list[Query]:
    """Return both kinds of a figure that streams of probabilities do not have."""
    return [
        Query(over("max", _here(name, kind=kind)), words + kind, color, style, quiet=True)
        for kind, color in _COLORS.items()
    ]


def _difference(moved: str) -> str:
    """Return what a loss changed by, by loss; ``moved`` by its standard error, such as "+ 2 * "."""
    mean = over("max", _here("stream_loss:trueup_loss_difference:ratio"), "loss")
    error = over("max", _here("stream_loss:trueup_loss_difference_error:ratio"), "loss")
    return f"{mean} {moved}{error}" if moved else mean


def _precision(kind: str) -> str:
    recall = over("max", _here("stream_kind_volume:trueup_recall:ratio", kind=kind, volume="0.01"))
    return f"{recall} * {over('max', _here('stream:trueup_base_rate:ratio', window='life'))} / 0.01"


def _alarm(name: str, kind: str, style: Literal["line", "dashed"] = "line") -> Query:
    life = ", life" if style == "dashed" else ""
    return Query(f"clamp_max({over('max', _here(name, kind=kind))}, 10)", kind + life, _COLORS[kind], style)


STREAM: Final = Dashboard(
    uid="trueup-stream",
    title="trueup / Stream",
    description="One stream: its reliability diagram, its error against noise and bound, what recalibration is worth.",
    variables=(
        (
            "stream",
            "Stream",
            f'label_values({{__name__=~"trueup_resolved|trueup_resolved_vectors", {JOB}}}, stream)',
        ),
        ("window", "Window", ("1d", "1h", "life")),
    ),
    rows=(
        Row(
            "$stream, $window",
            (
                _number(
                    "Events",
                    "Forecasts that met their outcome in the window. Below a thousand or so, chance is most of what "
                    "is seen.",
                    over("sum", _window("stream_kind:trueup_events:sum", kind="raw")),
                    (None, "orange"),
                    (1000, "green"),
                    unit="locale",
                    decimals=0,
                ),
                _number(
                    "Error raw",
                    "Expected calibration error of the model's own forecasts.",
                    over("max", _window("stream_kind:trueup_ece:ratio", kind="raw")),
                ),
                _number(
                    "Error calibrated",
                    "Expected calibration error of what was served. From .05 on, and three times the noise, an alert "
                    "fires.",
                    over("max", _window("stream_kind:trueup_ece:ratio", kind="calibrated")),
                    (None, "green"),
                    (0.03, "orange"),
                    (0.05, "red"),
                    alert="TrueupCalibrationErrorHigh",
                ),
                _number(
                    "Noise",
                    "The error that chance alone would show over as many events; an error near it is as good as it "
                    "gets.",
                    over("max", _window("stream_kind:trueup_ece_noise:ratio", kind="calibrated")),
                ),
                _number(
                    "Alarm calibrated",
                    "Evidence that what is served is not calibrated, log10, of the last eight windows; 3: no doubt.",
                    over("max", _here("stream_kind:trueup_alarm_recent_log10:max", kind="calibrated")),
                    (None, "green"),
                    (2, "orange"),
                    (3, "red"),
                    decimals=1,
                    alert="TrueupServedNotCalibrated",
                ),
                _number(
                    "Alarm raw",
                    "The same of the model's own forecasts, over the life of the stream. From 3 on, those who own the "
                    "model want to know.",
                    over("max", _here("stream_kind:trueup_alarm_log10:max", kind="raw")),
                    (None, "green"),
                    (3, "blue"),
                    decimals=1,
                    alert="TrueupModelNotCalibrated",
                ),
                _number(
                    "Regret / event",
                    "Brier score of the calibrated forecasts less that of the raw ones; below zero is a gain.",
                    over("max", _window("stream_loss:trueup_regret:ratio", loss="brier")),
                    (None, "green"),
                    (0.0005, "orange"),
                    (0.002, "red"),
                    decimals=4,
                    alert="TrueupRegretGrowing",
                ),
                _number(
                    "Coverage",
                    "Outcomes that came in six hours for each forecast answered in them.",
                    over("max", _here("stream:trueup_label_coverage:ratio6h")),
                    (None, "orange"),
                    (0.5, "green"),
                    unit="percentunit",
                    decimals=1,
                    alert="TrueupLabelCoverageFallen",
                ),
                Panel(
                    "xychart",
                    "Reliability: how often it happened, against what was said",
                    "One point a bin of the forecast. On the diagonal, what was said is what happened; dashed, two "
                    "standard "
                    "errors. Raw off the diagonal is the model's fault, calibrated off it is ours.",
                    [*_diagram("raw"), *_diagram("calibrated")],
                    "none",
                    width=12,
                    height=14,
                    decimals=2,
                    low=0,
                    high=1,
                    by="bin",
                    curves=[*_curves("raw"), *_curves("calibrated")],
                    alert="TrueupCalibrationErrorHigh",
                ),
                Panel(
                    "table",
                    "Bins",
                    "The same in numbers. A bin with few events says little.",
                    [
                        query
                        for kind in _COLORS
                        for query in (
                            Query(_bins("stream_kind_bin:trueup_bin_events:sum", kind), f"{kind}: events"),
                            Query(_said(kind), f"{kind}: said"),
                            Query(_bins("stream_kind_bin:trueup_base_rate:ratio", kind), f"{kind}: happened"),
                        )
                    ],
                    "none",
                    width=12,
                    height=14,
                    decimals=3,
                    by="bin",
                    units={"raw: events": "locale", "calibrated: events": "locale"},
                ),
            ),
        ),
        Row(
            "Error",
            (
                Panel(
                    "timeseries",
                    "Error, raw against calibrated",
                    "Expected calibration error in the window, and the noise below which it cannot be told from "
                    "chance.",
                    [
                        *_both("stream_kind:trueup_ece:ratio", window="$window"),
                        Query(
                            over("max", _window("stream_kind:trueup_ece_noise:ratio", kind="calibrated")),
                            "noise",
                            MUTED,
                            "dashed",
                        ),
                    ],
                    "none",
                    decimals=3,
                    low=0,
                    levels=((None, "green"), (0.05, "red")),
                    alert="TrueupCalibrationErrorHigh",
                ),
                Panel(
                    "timeseries",
                    "Error against bound",
                    "What the calibrator measures of itself, over its life: the error, what the theorem allows, and "
                    "the noise. Behind certified (the default) the error is how far p is at most from calibrated "
                    "scores, and has no noise. The bound is drawn where it is below 1; empty where the calibrator has "
                    "no theorem.",
                    [
                        Query(
                            f"{over('max', _here('stream:trueup_calibration_bound:ratio'))} < 1",
                            "bound",
                            BAD,
                            "dashed",
                            quiet=True,
                        ),
                        Query(over("max", _here("stream:trueup_calibration_error:ratio")), "error", CALIBRATED),
                        Query(
                            over("max", _here("stream:trueup_calibration_noise:ratio")),
                            "noise",
                            MUTED,
                            "dashed",
                            quiet=True,
                        ),
                    ],
                    "none",
                    decimals=3,
                    low=0,
                    alert="TrueupCalibrationErrorAboveBound",
                ),
                Panel(
                    "timeseries",
                    "Alarm",
                    "Evidence against calibration, log10, drawn up to 10: of the last eight windows of 5,000 outcomes "
                    "(500 of classes and numbers), which falls when the trouble ends, and dashed of the whole life, "
                    "which stays once found.",
                    [
                        _alarm("stream_kind:trueup_alarm_recent_log10:max", "calibrated"),
                        _alarm("stream_kind:trueup_alarm_log10:max", "calibrated", "dashed"),
                        _alarm("stream_kind:trueup_alarm_log10:max", "raw", "dashed"),
                    ],
                    "none",
                    decimals=1,
                    levels=((None, "green"), (3, "red")),
                    alert="TrueupServedNotCalibrated",
                ),
                Panel(
                    "timeseries",
                    "Distance to calibration, at most",
                    "How far what is served is, on average and at most, from forecasts that are perfectly calibrated; "
                    "over the life of the stream, of the worst worker. Below .01 the width of the cells is most of it.",
                    [
                        Query(
                            f'max(trueup_certificate{{{WORKER}, stream="$stream", kind="calibrated"}})',
                            "calibrated",
                            CALIBRATED,
                        )
                    ],
                    "none",
                    decimals=3,
                    low=0,
                    alert="TrueupCalibrationErrorHigh",
                ),
                Panel(
                    "timeseries",
                    "Two-bin error, raw less served",
                    "How much better calibrated what is served is than raw, squared, with its 95 % interval; over the "
                    "life of the stream, of the worst worker. Below 0: worse than raw. Dashed: what is left.",
                    [
                        Query(
                            f'min(trueup_two_bin_gain{{{WORKER}, stream="$stream", end="value"}})', "gained", CALIBRATED
                        ),
                        Query(
                            f'min(trueup_two_bin_gain{{{WORKER}, stream="$stream", end="low"}})',
                            "at least",
                            CALIBRATED,
                            "dashed",
                        ),
                        Query(
                            f'max(trueup_two_bin_error{{{WORKER}, stream="$stream", kind="calibrated"}})',
                            "left",
                            "",
                            "dashed",
                        ),
                    ],
                    "none",
                    decimals=5,
                    alert="TrueupCalibrationErrorHigh",
                ),
                Panel(
                    "timeseries",
                    "Worst window",
                    "Largest error of any 5,000 outcomes in a row of a partition; empty until a partition has had as "
                    "many. "
                    "`trueup streams show` says which window it was.",
                    [
                        Query(
                            over("max", _here("stream_kind:trueup_worst_window_ece:max", kind="calibrated")),
                            "calibrated",
                            CALIBRATED,
                        )
                    ],
                    "none",
                    decimals=3,
                    low=0,
                    alert="TrueupServedNotCalibrated",
                ),
                Panel(
                    "timeseries",
                    "Regret",
                    "Losses of the calibrated forecasts less those of the raw ones, over the life of the stream. "
                    "Falling is a "
                    "gain; growing without end, the calibrator hurts.",
                    [
                        Query(over("sum", _here("stream_loss:trueup_regret:sum", window="life"), "loss"), "{{loss}}"),
                    ],
                    "short",
                    alert="TrueupRegretGrowing",
                ),
                Panel(
                    "timeseries",
                    "Brier score",
                    "Mean squared error in the window; lower is better.",
                    _both("stream_kind_loss:trueup_loss:ratio", window="$window", loss="brier"),
                    "none",
                    decimals=4,
                ),
            ),
        ),
        Row(
            "Segments",
            (
                Panel(
                    "timeseries",
                    "Segments that are off",
                    "How many segments have an error that chance does not explain, of .03 or .3 of what happened; over "
                    "the life of the stream, of the worst worker. `trueup streams show` names 20. Empty without "
                    "segments.",
                    [
                        Query(over("max", _here("stream:trueup_segments_off:max")), "off", BAD, quiet=True),
                        Query(
                            over("max", _here("stream:trueup_segments_scored:max")), "all", MUTED, "dashed", quiet=True
                        ),
                    ],
                    "none",
                    decimals=0,
                    low=0,
                    alert="TrueupSegmentsOff",
                ),
                Panel(
                    "timeseries",
                    "Error of the worst segments",
                    "Calibration error of what was served in the five segments of each worker that are most off. Which "
                    "they are may change.",
                    [
                        Query(
                            f'max by (segment, value) (trueup_segment_error{{{WORKER}, stream="$stream"}})',
                            "{{segment}} = {{value}}",
                            quiet=True,
                        )
                    ],
                    "none",
                    decimals=3,
                    low=0,
                    alert="TrueupSegmentsOff",
                ),
                Panel(
                    "timeseries",
                    "Served less observed in the worst segments",
                    "Above zero, too much is served there. Of segments with at least 100 outcomes.",
                    [
                        Query(
                            f'max by (segment, value) (trueup_segment_bias{{{WORKER}, stream="$stream"}} '
                            f'and trueup_segment_events{{{WORKER}, stream="$stream"}} >= 100)',
                            "{{segment}} = {{value}}",
                            quiet=True,
                        ),
                    ],
                    "none",
                    decimals=3,
                    alert="TrueupSegmentsOff",
                ),
                Panel(
                    "timeseries",
                    "Segments that are off lately",
                    "How many segments have an error in their last windows that chance does not explain, of .03 or "
                    ".3 of what happened; of the worst worker. It falls when the trouble ends.",
                    [Query(over("max", _here("stream:trueup_segments_off_recently:max")), "off", BAD, quiet=True)],
                    "none",
                    decimals=0,
                    low=0,
                    alert="TrueupSegmentsOffLately",
                ),
                Panel(
                    "timeseries",
                    "Evidence against segments lately",
                    "log10 of the evidence that what was served in the last windows of a segment is off, over the "
                    "number of segments; of the five of each worker with most. 3 says off. Empty below 0.",
                    [
                        Query(
                            "max by (segment, value) "
                            f'(trueup_segment_alarm_recent_log10{{{WORKER}, stream="$stream"}})',
                            "{{segment}} = {{value}}",
                            quiet=True,
                        ),
                    ],
                    "none",
                    decimals=1,
                    low=0,
                    alert="TrueupSegmentsOffLately",
                ),
                Panel(
                    "timeseries",
                    "Served less observed lately, in the segments with evidence",
                    "Above zero, too much is served there; of numbers, the quantile is too low. Over the windows with "
                    "the most evidence.",
                    [
                        Query(
                            f'max by (segment, value) (trueup_segment_recent_bias{{{WORKER}, stream="$stream"}})',
                            "{{segment}} = {{value}}",
                            quiet=True,
                        ),
                    ],
                    "none",
                    decimals=3,
                    alert="TrueupSegmentsOffLately",
                ),
            ),
        ),
        Row(
            "Bias along features",
            (
                Panel(
                    "timeseries",
                    "Bias along features",
                    "Mean of f times what was served less the outcome, for the features and functions f that come "
                    "nearest to their bound; dashed the bounds, in both directions. Over the life of the calibrator, "
                    "of the worst worker. Of `calibrated_regression` only.",
                    [
                        Query(
                            f'max by (along) (trueup_function_bias{{{WORKER}, stream="$stream"}})',
                            "{{along}}",
                            quiet=True,
                        ),
                        *(
                            Query(
                                f'{sign}max by (along) (trueup_function_bias_bound{{{WORKER}, stream="$stream"}})',
                                f"{{{{along}}}}, {word}",
                                MUTED,
                                "dashed",
                                quiet=True,
                            )
                            for sign, word in (("", "at most"), ("-", "at least"))
                        ),
                    ],
                    "none",
                    decimals=4,
                    alert="TrueupCalibrationErrorAboveBound",
                ),
            ),
        ),
        Row(
            "Classes and numbers",
            (
                Panel(
                    "timeseries",
                    "Error of coverage, or of the likeliest class",
                    "Numbers: largest difference between how often outcomes lay at or below a quantile and its level. "
                    "Classes: calibration error of the highest probability. Over the life of the configuration, of the "
                    "worst worker; dashed, of the worst 500 outcomes in a row. Empty for probabilities.",
                    [
                        *_quiet("stream_kind:trueup_coverage_error:max"),
                        *_quiet("stream_kind:trueup_top_label_ece:max"),
                        *_quiet("stream_kind:trueup_worst_window_error:max", "worst, ", "dashed"),
                    ],
                    "none",
                    decimals=3,
                    low=0,
                    alert="TrueupServedNotCalibrated",
                ),
                Panel(
                    "timeseries",
                    "Loss, served less raw",
                    "Mean loss of what was served less that of the raw forecasts, dashed with two standard errors: "
                    "below zero, recalibration was worth it. Numbers: pinball loss, in units of the outcome. Classes: "
                    "Brier score and log loss.",
                    [
                        Query(_difference(""), "{{loss}}", quiet=True),
                        Query(_difference("- 2 * "), "{{loss}}, low", MUTED, "dashed", quiet=True),
                        Query(_difference("+ 2 * "), "{{loss}}, high", MUTED, "dashed", quiet=True),
                    ],
                    "short",
                    alert="TrueupRecalibrationHarms",
                ),
                Panel(
                    "timeseries",
                    "CRPS and pinball loss",
                    "Of numbers, in units of the outcome, over the life of the configuration; lower is better. Dashed, "
                    "the mean pinball loss over the levels.",
                    [
                        *_quiet("stream_kind:trueup_crps:ratio"),
                        *_quiet("stream_kind:trueup_pinball_loss:ratio", "pinball, ", "dashed"),
                    ],
                    "short",
                    decimals=4,
                ),
                Panel(
                    "timeseries",
                    "Width of the widest interval",
                    "Of numbers: mean distance of the outermost quantiles, in units of the outcome. Narrower is better "
                    "where coverage is right.",
                    _quiet("stream_kind:trueup_interval_width:ratio"),
                    "short",
                    decimals=3,
                    low=0,
                ),
                Panel(
                    "timeseries",
                    "Accuracy and AUC of the likeliest class",
                    "Of classes: how often the class of the highest probability occurred; dashed, the chance that a "
                    "right answer had a higher probability than a wrong one, within windows of 500.",
                    [
                        *_quiet("stream_kind:trueup_accuracy:ratio"),
                        *_quiet("stream_kind:trueup_top_label_auc:ratio", "AUC, ", "dashed"),
                    ],
                    "none",
                    decimals=3,
                ),
                Panel(
                    "timeseries",
                    "Error of single classes",
                    "Of classes: mean over the classes of their calibration error against the rest, of the worst "
                    "worker.",
                    _quiet("stream_kind:trueup_classwise_ece:max"),
                    "none",
                    decimals=3,
                    low=0,
                ),
            ),
        ),
        Row(
            "Rare events and order",
            (
                Panel(
                    "timeseries",
                    "Mean off by",
                    "How far the mean forecast is above what happened in the window, as a share of it: 100 % is twice "
                    "too much, -100 % is nothing served. Dashed, what chance does.",
                    [
                        *_both("stream_kind:trueup_relative_bias:ratio", window="$window"),
                        Query(
                            over("max", _window("stream_kind:trueup_relative_bias_noise:ratio", kind="calibrated")),
                            "noise",
                            MUTED,
                            "dashed",
                        ),
                    ],
                    "percentunit",
                    alert="TrueupMeanOff",
                ),
                Panel(
                    "timeseries",
                    "AUC",
                    "Chance that an event that happened was ranked above one that did not, within the last windows of "
                    "5,000 events; Gini is twice that less 1. What is served should keep the model's order.",
                    _both("stream_kind:trueup_auc:ratio"),
                    "none",
                    decimals=3,
                    high=1,
                    alert="TrueupOrderLost",
                ),
                Panel(
                    "timeseries",
                    "Recall and precision in the top 1 %",
                    "Of the events that happened, the share that is found when the highest 1 % of the forecasts are "
                    "looked at; dashed, the share of those looked at that happened. Within the last windows. "
                    "`trueup streams show` and the status page show other shares, and KS.",
                    [
                        *_both("stream_kind_volume:trueup_recall:ratio", volume="0.01"),
                        *(
                            Query(_precision(kind), f"{kind}, precision", color, "dashed")
                            for kind, color in _COLORS.items()
                        ),
                    ],
                    "percentunit",
                    low=0,
                    alert="TrueupOrderLost",
                ),
            ),
        ),
        Row(
            "Outcomes",
            (
                Panel(
                    "timeseries",
                    "Age of outcomes",
                    "How old forecasts are when their first outcome comes, by label: 99 of 100 come within. "
                    "Far apart, the calibrator learns one label first: set matures.",
                    [
                        Query(
                            f'max by (label, share) (trueup_outcome_age_seconds{{{WORKER}, stream="$stream"}})',
                            "{{label}}, {{share}}",
                        )
                    ],
                    "s",
                    low=0,
                    alert="TrueupLabelsMisread",
                ),
                Panel(
                    "timeseries",
                    "Outcomes reported in a day",
                    "Events whose first outcome was reported in a day, by label; silence is not counted. A feed that "
                    "stops falls to 0 here long before scores show it.",
                    [Query(over("sum", _here("stream_label:trueup_reported_outcomes:delta1d"), "label"), "{{label}}")],
                    "short",
                    low=0,
                    alert="TrueupLabelsSilent",
                ),
                Panel(
                    "timeseries",
                    "Labels misread",
                    "1 for each finding: outcomes come too near to ttl, one label comes later than the other, only "
                    "one label is reported, most forecasts get none, or outcomes come after matures. `trueup streams "
                    "show` says what to set. Withheld: partitions that serve nothing of what they have learnt.",
                    [
                        Query(
                            over("max", _here("stream_finding:trueup_label_finding:max"), "finding"),
                            "{{finding}}",
                            quiet=True,
                        ),
                        Query(
                            f'sum by (reason) (trueup_withheld_partitions{{{WORKER}, stream="$stream"}})',
                            "withheld: {{reason}}",
                            quiet=True,
                        ),
                    ],
                    "none",
                    low=0,
                    alert="TrueupLabelsMisread",
                ),
                Panel(
                    "timeseries",
                    "Warm-up",
                    "Partitions that serve raw scores until outcomes support others, and the mean of raw less outcome "
                    "over what they answered until then. It counts in no other figure.",
                    [
                        Query(
                            over("sum", _here("stream:trueup_warm_up_partitions:sum")),
                            "partitions",
                            quiet=True,
                        ),
                        Query(over("max", _here("stream:trueup_warm_up_bias:ratio")), "raw − outcome", quiet=True),
                    ],
                    "none",
                    alert="TrueupWarmingUp",
                ),
                Panel(
                    "timeseries",
                    "Shift of the raw forecasts",
                    "How far the raw forecasts of the last week are from those of the weeks before: population "
                    "stability index, less chance, of the worst worker. It needs no outcome. Below .1: the same.",
                    [Query(over("max", _here("stream:trueup_forecast_shift:max")), "shift", quiet=True)],
                    "none",
                    decimals=2,
                    low=0,
                    levels=((None, "green"), (0.1, "yellow"), (0.25, "red")),
                    alert="TrueupForecastsShifted",
                ),
                Panel(
                    "timeseries",
                    "Shares of bands",
                    "Which share of the forecasts of a day were in each band, by the raw and the served score. Dashed: "
                    "the share of ones among the labels of what was served in it.",
                    [
                        Query(
                            f"sum by (kind, band) (delta({series}[1d]))"
                            f" / ignoring (band) group_left sum by (kind) (delta({series}[1d])) > 0",
                            "{{band}} {{kind}}",
                            quiet=True,
                        )
                        for series in (_here("stream_kind_band:trueup_band_forecasts:sum"),)
                    ]
                    + [
                        Query(
                            over("max", _here("stream_band:trueup_band_precision:ratio"), "band"),
                            "precision of {{band}}",
                            style="dashed",
                            quiet=True,
                        )
                    ],
                    "percentunit",
                    low=0,
                    alert="TrueupBandMoved",
                ),
                Panel(
                    "timeseries",
                    "Base rate, and what was said",
                    "How often it happened, and the mean of the forecasts. Apart from each other: all bins are off "
                    "to one side.",
                    [
                        Query(over("max", _window("stream:trueup_base_rate:ratio")), "happened", MUTED),
                        *_both("stream_kind:trueup_mean_forecast:ratio", window="$window"),
                    ],
                    "percentunit",
                    log=True,
                ),
                Panel(
                    "timeseries",
                    "Forecasts answered, outcomes scored",
                    "Of this stream, a second. Their quotient is the coverage.",
                    [
                        Query(
                            _rate("trueup_answered_forecasts_total"),
                            "answered",
                            CALIBRATED,
                        ),
                        Query(
                            _rate("trueup_scored_events_total"),
                            "scored",
                            MUTED,
                        ),
                    ],
                    "reqps",
                    low=0,
                    alert="TrueupLabelCoverageFallen",
                ),
                Panel(
                    "timeseries",
                    "Label delay, all streams",
                    "Event time from a forecast to its outcome; half, and 95 of 100, of the outcomes come within.",
                    [
                        Query(
                            f"histogram_quantile({quantile}, "
                            f"sum by (le) (rate(trueup_label_delay_seconds_bucket{{{WORKER}}}[$__rate_interval])))",
                            name,
                        )
                        for quantile, name in ((0.5, "half"), (0.95, "95 of 100"))
                    ],
                    "s",
                    low=0,
                    alert="TrueupPendingGrowing",
                ),
            ),
        ),
    ),
)
