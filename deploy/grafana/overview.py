"""*Overview*: whether it is healthy, and whether it is honest."""

from typing import Final

from deploy.grafana.panels import ALERTS, BAD, CALIBRATED, MUTED, RAW, WORKER, Dashboard, Panel, Query, Row, of, over

_GREEN: Final = (None, "green")
_RED_FROM_1: Final = (_GREEN, (1, "red"))


def _by_stream(name: str, **labels: str) -> str:
    return over("sum", of(name, **labels), "stream")


_WORST: Final = _by_stream("stream_kind:trueup_ece:ratio", kind="calibrated", window="$window")

OVERVIEW: Final = Dashboard(
    uid="trueup-overview",
    title="trueup / Overview",
    description="Is it healthy, is it honest? One look at all workers and all streams.",
    variables=(("window", "Window", ("1d", "1h", "life")),),
    rows=(
        Row(
            "Is it healthy?",
            (
                Panel(
                    "stat",
                    "Alerts firing",
                    "Alerts of trueup that fire now, without those that only inform. Zero is well.",
                    [Query(f'count({ALERTS}, severity!="info"}}) or vector(0)')],
                    "none",
                    width=4,
                    height=4,
                    levels=_RED_FROM_1,
                ),
                Panel(
                    "stat",
                    "Workers ready",
                    "Workers that are assigned, restored and serving.",
                    [Query(f"sum(trueup_ready{{{WORKER}}} and trueup_pending_events{{{WORKER}}})")],
                    "none",
                    width=4,
                    height=4,
                    levels=((None, "red"), (1, "green")),
                    alert="TrueupNoWorkerReady",
                ),
                Panel(
                    "stat",
                    "Workers not ready",
                    "Workers, routers and intakes that serve nothing: restoring, stuck, or without partitions.",
                    [Query(f"count(trueup_ready{{{WORKER}}} == 0) or vector(0)")],
                    "none",
                    width=4,
                    height=4,
                    levels=(_GREEN, (1, "orange")),
                    alert="TrueupWorkerNotReady",
                ),
                Panel(
                    "stat",
                    "Time to drain",
                    "How long the records that wait would take at the rate of the last minute.",
                    [Query(over("max", of("job:trueup_drain_seconds:ratio")))],
                    "s",
                    width=4,
                    height=4,
                    decimals=1,
                    levels=(_GREEN, (30, "orange"), (300, "red")),
                    alert="TrueupLagGrowing",
                ),
                Panel(
                    "stat",
                    "99 of 100 answered within",
                    "From a forecast's Kafka timestamp to the acknowledgement of its answer. Replayed history shows "
                    "its age.",
                    [Query(over("max", of("job:trueup_forecast_latency_seconds:quantile5m", quantile="0.99")))],
                    "s",
                    width=4,
                    height=4,
                    levels=(_GREEN, (5, "orange"), (30, "red")),
                    alert="TrueupAnswersLate",
                ),
                Panel(
                    "stat",
                    "Dead letters",
                    "Share of the records of ten minutes that could not be used, in the topic or source with most.",
                    [Query(over("max", of("job_topic:trueup_dead_letters:ratio10m")))],
                    "percentunit",
                    width=4,
                    height=4,
                    decimals=2,
                    levels=(_GREEN, (0.001, "orange"), (0.01, "red")),
                    alert="TrueupDeadLetters",
                ),
                Panel(
                    "table",
                    "What fires",
                    "Alerts that fire, by stream and worker; the runbook says what to do. Empty is well.",
                    [
                        Query(
                            f"sum by (alertname, severity, stream, instance) ({ALERTS}}})",
                            "firing",
                            quiet=True,
                        )
                    ],
                    "none",
                    width=8,
                    height=7,
                    by="alertname",
                    links={"alertname": "${runbooks}#${__value.text}"},
                ),
                Panel(
                    "timeseries",
                    "Records a second",
                    "Records applied, by topic. Outcomes that fall away while forecasts go on: nothing is learnt.",
                    [Query(over("sum", of("job_topic:trueup_records:rate5m"), "topic"), "{{topic}}")],
                    "reqps",
                    height=7,
                    low=0,
                    alert="TrueupLabelCoverageFallen",
                ),
                Panel(
                    "timeseries",
                    "Waiting",
                    "Records not yet applied (lag), forecasts without an outcome (pending), outcomes without a "
                    "forecast (early).",
                    [
                        Query(over("sum", of("job_topic:trueup_lag_records:sum")), "lag", BAD),
                        Query(over("sum", of("job:trueup_pending_events:sum")), "pending", CALIBRATED),
                        Query(over("sum", of("job:trueup_early_outcomes:sum")), "early", MUTED),
                        Query(over("sum", of("job:trueup_waiting_outcomes:sum")), "until maturity", RAW),
                    ],
                    "short",
                    height=7,
                    low=0,
                    alert="TrueupPendingGrowing",
                ),
            ),
        ),
        Row(
            "Is it honest?",
            (
                Panel(
                    "table",
                    "Streams",
                    "One line a stream, of the window above: what the model says, what came true, what is served; how "
                    "much of what came true the highest 1 % of the scores hold, and the model's. Alarm raw is of its "
                    "life, AUC of the last windows. "
                    "Calibrated should lie below raw and near the noise, regret below zero. "
                    "Follow a stream's name to see it closely.",
                    [
                        Query(
                            _by_stream("stream_kind:trueup_mean_forecast:ratio", kind="raw", window="$window"),
                            "model says",
                        ),
                        Query(_by_stream("stream:trueup_base_rate:ratio", window="$window"), "came true"),
                        Query(
                            _by_stream("stream_kind:trueup_mean_forecast:ratio", kind="calibrated", window="$window"),
                            "served",
                        ),
                        Query(
                            _by_stream("stream_kind:trueup_relative_bias:ratio", kind="calibrated", window="$window"),
                            "mean off by",
                        ),
                        Query(
                            _by_stream("stream_kind_volume:trueup_recall:ratio", kind="calibrated", volume="0.01"),
                            "in the highest 1 %",
                        ),
                        Query(
                            _by_stream("stream_kind_volume:trueup_recall:ratio", kind="raw", volume="0.01"),
                            "the model's",
                        ),
                        Query(_by_stream("stream_kind:trueup_events:sum", kind="raw", window="$window"), "events"),
                        Query(_by_stream("stream_kind:trueup_ece:ratio", kind="raw", window="$window"), "error raw"),
                        Query(
                            _by_stream("stream_kind:trueup_ece:ratio", kind="calibrated", window="$window"),
                            "error calibrated",
                        ),
                        Query(
                            _by_stream("stream_kind:trueup_ece_noise:ratio", kind="calibrated", window="$window"),
                            "noise",
                        ),
                        Query(
                            _by_stream("stream_loss:trueup_regret:ratio", loss="brier", window="$window"),
                            "regret / event",
                        ),
                        Query(_by_stream("stream_kind:trueup_alarm_log10:max", kind="raw"), "alarm raw"),
                        Query(
                            _by_stream("stream_kind:trueup_alarm_recent_log10:max", kind="calibrated"),
                            "alarm calibrated",
                        ),
                        Query(_by_stream("stream_kind:trueup_auc:ratio", kind="raw"), "AUC raw"),
                        Query(_by_stream("stream_kind:trueup_auc:ratio", kind="calibrated"), "AUC calibrated"),
                        Query(_by_stream("stream:trueup_label_coverage:ratio6h"), "coverage"),
                    ],
                    "none",
                    width=24,
                    height=9,
                    decimals=3,
                    by="stream",
                    alert="TrueupCalibrationErrorHigh",
                    links={
                        "stream": "/d/trueup-stream?var-stream=${__value.text}"
                        "&${app:queryparam}&${datasource:queryparam}"
                    },
                    units={
                        "events": "locale",
                        "coverage": "percentunit",
                        **dict.fromkeys(("model says", "came true", "served"), "percentunit"),
                        **dict.fromkeys(("in the highest 1 %", "the model's"), "percentunit"),
                        "mean off by": "percentunit",
                    },
                    limits={
                        "error calibrated": (_GREEN, (0.03, "orange"), (0.05, "red")),
                        "regret / event": (_GREEN, (0.0005, "orange"), (0.002, "red")),
                        "alarm calibrated": (_GREEN, (2, "orange"), (3, "red")),
                        "alarm raw": (_GREEN, (3, "blue")),
                        "coverage": ((None, "orange"), (0.5, "green")),
                    },
                ),
                Panel(
                    "timeseries",
                    "Calibration error of the worst streams",
                    "Expected calibration error of the calibrated forecasts in the window, of the five streams where "
                    "it is "
                    "largest. From .05 on, and three times the noise, an alert fires.",
                    [
                        Query(
                            f"topk(5, {_WORST})",
                            "{{stream}}",
                        )
                    ],
                    "none",
                    width=12,
                    decimals=3,
                    low=0,
                    levels=(_GREEN, (0.05, "red")),
                    alert="TrueupCalibrationErrorHigh",
                ),
                Panel(
                    "timeseries",
                    "Brier score, raw against calibrated",
                    "Mean squared error over all streams in the window; lower is better. The gap is what "
                    "recalibration is worth.",
                    [
                        Query(
                            over(
                                "sum", of("stream_kind_loss:trueup_loss:sum", loss="brier", kind=kind, window="$window")
                            )
                            + " / "
                            + over("sum", of("stream_kind:trueup_events:sum", kind=kind, window="$window")),
                            kind,
                            color,
                        )
                        for kind, color in (("raw", RAW), ("calibrated", CALIBRATED))
                    ],
                    "none",
                    width=12,
                    decimals=4,
                    alert="TrueupRegretGrowing",
                ),
            ),
        ),
    ),
)
