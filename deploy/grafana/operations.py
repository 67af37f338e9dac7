"""*Operations*: what the workers do, and where their time goes."""

from collections.abc import Sequence
from typing import Final

from deploy.grafana.panels import BAD, CALIBRATED, MUTED, RAW, WORKER, Dashboard, Level, Panel, Query, Row, of, over

_ONE: Final[tuple[Level, ...]] = ((None, "green"),)


def _rate(name: str) -> str:
    return f"rate({name}{{{WORKER}}}[$__rate_interval])"


def _now(name: str) -> str:
    return f"{name}{{{WORKER}}}"


def _quantile(quantile: float, name: str, *by: str) -> str:
    return f"histogram_quantile({quantile}, {over('sum', _rate(name + '_bucket'), *by, 'le')})"


def _lines(
    title: str, description: str, queries: Sequence[Query], unit: str, levels: Sequence[Level] = _ONE, alert: str = ""
) -> Panel:
    return Panel("timeseries", title, description, queries, unit, low=0, levels=levels, alert=alert)


OPERATIONS: Final = Dashboard(
    uid="trueup-operations",
    title="trueup / Operations",
    description="Throughput, latency, lag, rebalances, state and the process, worker by worker.",
    rows=(
        Row(
            "Throughput and lag",
            (
                _lines(
                    "Records applied a second",
                    "By worker. Uneven: partitions are uneven, or one key is hot.",
                    [Query(over("sum", _rate("trueup_records_total"), "instance"), "{{instance}}")],
                    "reqps",
                ),
                _lines(
                    "What became of records",
                    "By topic and fate: issued and resolved is what should be; early outcomes wait for their forecast.",
                    [Query(over("sum", _rate("trueup_records_total"), "topic", "fate"), "{{topic}} {{fate}}")],
                    "reqps",
                ),
                _lines(
                    "Outputs a second",
                    "Records produced and acknowledged, by topic.",
                    [Query(over("sum", _rate("trueup_outputs_total"), "topic"), "{{topic}}")],
                    "reqps",
                ),
                _lines(
                    "Lag",
                    "Records appended and not yet applied, by topic and partition. One partition alone: a hot key.",
                    [Query(over("max", _now("trueup_lag_records"), "topic", "partition"), "{{topic}} {{partition}}")],
                    "short",
                    alert="TrueupLagGrowing",
                ),
                _lines(
                    "Held back",
                    "Offsets behind an open transaction, by topic and partition: no lag counts them. Empty if none is.",
                    [
                        Query(
                            over("max", _now("trueup_held_back_records"), "topic", "partition"),
                            "{{topic}} {{partition}}",
                            quiet=True,
                        )
                    ],
                    "short",
                    alert="TrueupTransactionHanging",
                ),
                _lines(
                    "Time to drain",
                    "How long what waits would take at the rate of the last minute.",
                    [Query(over("max", of("job:trueup_drain_seconds:ratio"), "job"), "{{job}}", BAD)],
                    "s",
                    alert="TrueupLagGrowing",
                ),
                _lines(
                    "Fetched and not yet applied",
                    "Records buffered in a worker. Full of one topic: its partner is behind, or cannot be read.",
                    [
                        Query(
                            over("sum", _now("trueup_buffered_records"), "topic", "instance"), "{{topic}} {{instance}}"
                        )
                    ],
                    "short",
                ),
            ),
        ),
        Row(
            "Latency",
            (
                _lines(
                    "Forecast to answer",
                    "From a forecast's Kafka timestamp to the acknowledgement of its answer; half, 95 and 99 of 100 "
                    "within.",
                    [
                        Query(
                            over("max", of("job:trueup_forecast_latency_seconds:quantile5m", quantile=quantile)),
                            name,
                            color,
                        )
                        for quantile, name, color in (
                            ("0.5", "half", MUTED),
                            ("0.95", "95 of 100", CALIBRATED),
                            ("0.99", "99 of 100", BAD),
                        )
                    ],
                    "s",
                    levels=((None, "green"), (30, "red")),
                    alert="TrueupAnswersLate",
                ),
                _lines(
                    "A batch",
                    "From decoding to the acknowledgement of its outputs; half and 99 of 100 within.",
                    [
                        Query(_quantile(0.5, "trueup_batch_seconds"), "half", MUTED),
                        Query(_quantile(0.99, "trueup_batch_seconds"), "99 of 100", BAD),
                    ],
                    "s",
                ),
                _lines(
                    "Steps of a batch, mean",
                    "Decode and fold are this machine; journal and produce are the brokers and the network.",
                    [Query(over("max", of("job_stage:trueup_stage_seconds:mean5m"), "stage"), "{{stage}}")],
                    "s",
                    alert="TrueupGaugesStale",
                ),
                _lines(
                    "Steps of a batch, 99 of 100",
                    "The slow ones.",
                    [Query(_quantile(0.99, "trueup_stage_seconds", "stage"), "{{stage}}")],
                    "s",
                ),
                _lines(
                    "Records a batch",
                    "Half and 99 of 100 batches hold at most as many; it grows with load up to 4,000.",
                    [
                        Query(_quantile(0.5, "trueup_batch_records"), "half", MUTED),
                        Query(_quantile(0.99, "trueup_batch_records"), "99 of 100", BAD),
                    ],
                    "short",
                ),
                _lines(
                    "Since the last commit",
                    "Rises while a worker has nothing to do. While records wait, it is stuck.",
                    [
                        Query(
                            f"time() - {over('max', _now('trueup_last_update_timestamp_seconds'), 'instance')}",
                            "{{instance}}",
                        )
                    ],
                    "s",
                    alert="TrueupGaugesStale",
                ),
            ),
        ),
        Row(
            "Group and recovery",
            (
                _lines(
                    "Partitions held",
                    "By worker; their sum should be the number of partitions at all times.",
                    [Query(over("max", _now("trueup_held_partitions"), "instance"), "{{instance}}")],
                    "short",
                    alert="TrueupWorkerNotReady",
                ),
                _lines(
                    "Partitions taken up",
                    "In five minutes: all that are held are taken up anew in a rebalance. It should be zero nearly "
                    "always.",
                    [
                        Query(
                            f"sum by (instance) (increase(trueup_opened_partitions_total{{{WORKER}}}[5m]))",
                            "{{instance}}",
                        )
                    ],
                    "short",
                    alert="TrueupWorkerNotReady",
                ),
                _lines(
                    "Ready",
                    "1 while a worker, a router or an intake is assigned, restored and serving.",
                    [Query(over("max", _now("trueup_ready"), "instance"), "{{instance}}")],
                    "none",
                    alert="TrueupStageNotReady",
                ),
                _lines(
                    "Still to restore",
                    "Changelog records a worker has yet to read before it serves.",
                    [Query(over("max", _now("trueup_recovery_remaining_records"), "instance"), "{{instance}}")],
                    "short",
                    alert="TrueupRecoveryLong",
                ),
                _lines(
                    "Copies behind",
                    "Changelog records that the copies of a worker have yet to write; empty without TRUEUP_STANDBYS.",
                    [Query(over("max", _now("trueup_standby_lag_records"), "instance"), "{{instance}}", quiet=True)],
                    "short",
                    alert="TrueupStandbyBehind",
                ),
                _lines(
                    "Redelivered",
                    "Records that came again and were answered from the ledger; a burst after each restart is right.",
                    [Query(over("sum", _rate("trueup_redelivered_records_total"), "topic"), "{{topic}}")],
                    "reqps",
                ),
                _lines(
                    "Starts",
                    "Starts of a worker's process in half an hour.",
                    [Query(f"changes(process_start_time_seconds{{{WORKER}}}[30m])", "{{instance}}")],
                    "short",
                    levels=((None, "green"), (3, "red")),
                    alert="TrueupWorkerRestarting",
                ),
            ),
        ),
        Row(
            "State: RocksDB and the ledger",
            (
                _lines(
                    "Bytes in RocksDB",
                    "By worker, as the store estimates them.",
                    [Query(over("sum", _now("trueup_state_bytes"), "instance"), "{{instance}}")],
                    "bytes",
                ),
                _lines(
                    "Rows in RocksDB",
                    "By partition, as the store estimates them; bounded by traffic times ttl.",
                    [Query(over("max", _now("trueup_state_rows"), "partition"), "{{partition}}")],
                    "short",
                ),
                _lines(
                    "Set aside",
                    "Directories of rows that were not used, in an hour: damaged, or unfit for the changelog. The rows "
                    "come from a copy or from the changelog.",
                    [
                        Query(
                            f"sum by (instance, what) (increase(trueup_set_aside_total{{{WORKER}}}[1h]))",
                            "{{instance}} {{what}}",
                        )
                    ],
                    "short",
                    alert="TrueupDiskDamaged",
                ),
                _lines(
                    "Waiting in the ledger",
                    "Forecasts without an outcome, outcomes until their forecast matures, outcomes without a forecast.",
                    [
                        Query(over("sum", _now("trueup_pending_events")), "pending", CALIBRATED),
                        Query(over("sum", _now("trueup_waiting_outcomes")), "until maturity", RAW),
                        Query(over("sum", _now("trueup_early_outcomes")), "early", MUTED),
                    ],
                    "short",
                    alert="TrueupPendingGrowing",
                ),
                _lines(
                    "Matured",
                    "Events learnt at maturity, a second: with a reported outcome, or with the label of silence.",
                    [Query(over("sum", _rate("trueup_matured_events_total"), "label"), "{{label}}")],
                    "reqps",
                    alert="TrueupLabelsMisread",
                ),
                _lines(
                    "Expired",
                    "Rows whose time to live passed, a second: outcomes come later than ttl, or under other keys or "
                    "ids.",
                    [Query(over("sum", _rate("trueup_expired_total"), "kind"), "{{kind}}")],
                    "reqps",
                    alert="TrueupLabelCoverageFallen",
                ),
                _lines(
                    "Used in a day",
                    "Records of each topic and source in a day that were neither dead nor passed over: a feed that "
                    "stops, or a source whose `when` no longer holds, falls to 0.",
                    [Query(over("sum", of("job_topic:trueup_used_records:increase1d"), "topic"), "{{topic}}")],
                    "short",
                    alert="TrueupInputSilent",
                ),
                _lines(
                    "Labels without a forecast",
                    "Share of a day's labels that find no forecast: other ids, scopes or keys.",
                    [Query(of("job:trueup_unmatched_labels:ratio1d"), "{{job}}")],
                    "percentunit",
                    levels=((None, "green"), (0.2, "orange")),
                    alert="TrueupLabelsUnmatched",
                ),
                _lines(
                    "Expired before their time",
                    "Events a second that expired, or were labelled by silence, ten minutes or more before they were "
                    "due by the worker's clock: records of the future moved stream time.",
                    [Query(over("sum", _rate("trueup_expired_early_total"), "instance"), "{{instance}}")],
                    "reqps",
                    levels=((None, "green"), (0.001, "red")),
                    alert="TrueupExpiredEarly",
                ),
                _lines(
                    "Streams without metrics",
                    "Streams that came to a worker and have no series of their own; no alert can fire for them.",
                    [Query(over("max", _now("trueup_hidden_streams"), "instance"), "{{instance}}")],
                    "short",
                    levels=((None, "green"), (1, "orange")),
                    alert="TrueupStreamsHidden",
                ),
                _lines(
                    "Maps",
                    "Since all maps of a worker were last as its state is; nothing where none are written.",
                    [Query(over("max", _now("trueup_maps_age_seconds"), "instance"), "{{instance}}", quiet=True)],
                    "s",
                    levels=((None, "green"), (200, "orange")),
                    alert="TrueupMapsOld",
                ),
                _lines(
                    "Schema registry waited for",
                    "How long a worker has waited for a schema that it has not seen; 0 where it waits for none.",
                    [
                        Query(
                            over("max", _now("trueup_registry_waiting_seconds"), "instance"), "{{instance}}", quiet=True
                        )
                    ],
                    "s",
                    levels=((None, "green"), (60, "red")),
                    alert="TrueupRegistryAway",
                ),
                _lines(
                    "Dead letters by reason",
                    "A second. The reference page explains each reason; the letter names its place.",
                    [
                        Query(
                            over("sum", _rate("trueup_dead_letters_total"), "topic", "reason") + " > 0",
                            "{{topic}} {{reason}}",
                        )
                    ],
                    "reqps",
                    alert="TrueupDeadLetters",
                ),
                _lines(
                    "Times far off",
                    "Records whose ts lies twenty years or more before their Kafka timestamp; in ten minutes.",
                    [
                        Query(
                            over("sum", f"increase(trueup_far_off_times_total{{{WORKER}}}[10m])", "topic") + " > 0",
                            "{{topic}}",
                            quiet=True,
                        )
                    ],
                    "short",
                    alert="TrueupTimesFarOff",
                ),
                _lines(
                    "Ids of other events",
                    "Forecasts under an id that was answered for another stream or another forecast; in ten minutes.",
                    [
                        Query(
                            over("sum", f'increase(trueup_dead_letters_total{{{WORKER}, reason="conflict"}}[10m])'),
                            "conflicts",
                        )
                    ],
                    "short",
                    levels=((None, "green"), (1, "orange")),
                    alert="TrueupIdConflicts",
                ),
                _lines(
                    "Records beyond a quota",
                    "A second, by stream; each is a dead letter. Withheld: dead letters that leave out their record.",
                    [
                        Query(
                            over("sum", _rate("trueup_refused_records_total"), "stream") + " > 0",
                            "{{stream}}",
                            quiet=True,
                        ),
                        Query(over("sum", _rate("trueup_withheld_letters_total")) + " > 0", "withheld", quiet=True),
                    ],
                    "reqps",
                    alert="TrueupQuotaExceeded",
                ),
                _lines(
                    "Records lost",
                    "Deleted before they were read, in an hour.",
                    [Query(over("sum", f"increase(trueup_lost_records_total{{{WORKER}}}[1h])", "topic"), "{{topic}}")],
                    "short",
                    levels=((None, "green"), (1, "red")),
                    alert="TrueupRecordsLost",
                ),
            ),
        ),
        Row(
            "Process",
            (
                _lines(
                    "CPU",
                    "Cores in use by worker; one is all a worker can use, beside the threads of RocksDB. Readers of "
                    "metrics and pages are served by a process of their own.",
                    [
                        Query(over("sum", _rate("process_cpu_seconds_total"), "instance"), "{{instance}}"),
                        Query(
                            over("sum", _rate("trueup_readers_process_cpu_seconds_total"), "instance"),
                            "{{instance}}, readers",
                        ),
                    ],
                    "none",
                ),
                _lines(
                    "Memory",
                    "Resident, by worker, and by the process that serves its readers. Some pages are in both.",
                    [
                        Query(over("max", _now("process_resident_memory_bytes"), "instance"), "{{instance}}"),
                        Query(
                            over("max", _now("trueup_readers_process_resident_memory_bytes"), "instance"),
                            "{{instance}}, readers",
                        ),
                    ],
                    "bytes",
                    alert="TrueupWorkerRestarting",
                ),
                _lines(
                    "Open files",
                    "Share of the limit; RocksDB opens many.",
                    [
                        Query(
                            f"max by (instance) (process_open_fds{{{WORKER}}} / process_max_fds{{{WORKER}}})",
                            "{{instance}}",
                        ),
                        Query(
                            f"max by (instance) (trueup_readers_process_open_fds{{{WORKER}}}"
                            f" / trueup_readers_process_max_fds{{{WORKER}}})",
                            "{{instance}}, readers",
                        ),
                    ],
                    "percentunit",
                    levels=((None, "green"), (0.8, "red")),
                ),
            ),
        ),
    ),
)
