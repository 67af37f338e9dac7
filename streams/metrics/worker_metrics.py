"""The metrics of a worker: of what happens to records, then of its partitions, its state and its copies."""

from typing import Final

from streams.metrics.metric import Metric, counter, gauge, histogram

#: Metrics of records and turns.
RECORDS: Final[tuple[Metric, ...]] = (
    counter(
        "records{topic, fate}",
        "Records applied, by what became of them; those folded again after a crash are not counted again",
    ),
    counter("redelivered_records{topic}", "Records that were folded again after a crash, along the journal"),
    counter(
        "passed_records{topic}",
        "Records that their source says to pass over: its when does not hold, or its labels say to skip",
    ),
    counter(
        "lost_records{topic}",
        "Input records that were deleted before they were read, under TRUEUP_DATA_LOSS=continue",
        "lengthen the topic's retention, and find out why the worker was that far behind",
    ),
    counter(
        "failed_logins",
        "Requests for metrics or pages with a wrong name or password",
        "the log names an address once a minute: a scraper has an old password, or somebody guesses passwords",
    ),
    counter(
        "dead_letters{topic, reason}",
        "Records sent to the dead-letter topic",
        "read the dead-letter topic: each dead letter names its reason, topic, partition and offset",
    ),
    counter(
        "far_off_times{topic}",
        "Records whose ts lies twenty years or more before their Kafka timestamp, since the process began",
        "is ts in another unit? Set `unit` for ts of the source; log and page say which it seems to be",
    ),
    counter(
        "raw_answers",
        "Forecasts that are dead letters and were answered with their raw score, as on_error says; again after a "
        "restart",
        "read the dead letters: they have the reasons",
    ),
    counter(
        "uncarried{what}",
        "Headers and fields that an answer could not carry, each time their record was read: header or field",
        "carry fewer or shorter ones: 16 of each, and 2,048 bytes of each",
    ),
    counter(
        "expired{kind}",
        "Rows whose time to live passed: forecasts without an outcome, outcomes without a forecast",
        "if it rises, outcomes come later than ttl, or have other keys or ids than their forecasts",
    ),
    counter(
        "expired_early",
        "Events that expired, or were labelled by silence, although by this worker's clock they were not due for "
        "another ten minutes",
        "a clock ran ahead: several records moved stream time beyond now; see the runbook, TrueupExpiredEarly",
    ),
    counter("outputs{topic}", "Records produced and acknowledged"),
    histogram(
        "label_delay_seconds",
        "Event time from a forecast to its outcome; 0 where the outcome's timestamp is the earlier one",
    ),
    histogram(
        "batch_seconds",
        "Time of a turn, a batch of each partition, from its decoding to the acknowledgement of its outputs",
        "if it rises while turns stay small, the brokers are slow to acknowledge",
    ),
    histogram("batch_records", "Records in a turn, of all partitions; the number grows with load"),
    histogram(
        "stage_seconds{stage}",
        "Time of each step: of a batch in decode and fold, of a turn in journal and produce",
        "decode and fold depend on this machine, journal and produce on the brokers and the network",
    ),
    counter(
        "unlike_outputs",
        "Records in the output topics that differ from what their inputs give when applied again after a crash",
        "above 0: machines of one group compute differently; audit the partition",
    ),
    histogram(
        "forecast_latency_seconds",
        "From the Kafka timestamp of a forecast to the acknowledgement of its answer; each forecast counts",
        "if it rises with lag, the workers are too slow; replayed history counts with its age",
    ),
    counter(
        "opened_partitions",
        "Partitions opened; a rebalance opens all partitions of a worker again",
        "if it keeps rising, the group rebalances again and again: look for workers that restart",
    ),
)
#: Metrics of waiting events, of partitions, and of background work.
WORKER: Final[tuple[Metric, ...]] = (
    counter(
        "matured_events{label}",
        "Events learnt at maturity: with the outcome that was reported, or with the label that silence implies",
    ),
    counter(
        "overdue_labels",
        "First outcomes that came after silence had labelled their event; until then it counted as silence says",
        "set matures above the ages of outcomes; of a first start on a history see 'Sources of any key'",
    ),
    counter(
        "belated_forecasts",
        "Forecasts that were as old as their stream's ttl when they came: one that was sent before is taken for "
        "new, and learnt again with its outcome",
        "set ttl above the longest time after which producers send something again",
    ),
    counter(
        "contradicting_outcomes",
        "Outcomes that say another label than an earlier one of the same time and revision; without one the last to "
        "come counts, with equal ones the first",
        "give outcomes a time or a revision of their own; see TrueupOutcomesContradict",
    ),
    gauge("pending_events", "Issued forecasts that wait for their outcome"),
    gauge("waiting_outcomes", "Outcomes that wait until their forecast matures"),
    gauge("early_outcomes", "Outcomes that wait for their forecast"),
    gauge("held_partitions", "Partitions this worker holds"),
    gauge(
        "hidden_streams",
        "Streams that came since the start and have no series of their own; at most 10,000 are counted",
        "name those that matter in the TOML file, or raise TRUEUP_METRICS_STREAMS and Prometheus's sample_limit",
    ),
    gauge(
        "lag_records{topic, partition}",
        "Records appended but not yet applied",
        "if it grows, add partitions and workers",
    ),
    gauge(
        "held_back_records{topic, partition}",
        "Offsets behind an open transaction, from its first record to the end: they cannot be read yet, and no lag "
        "counts them",
    ),
    gauge(
        "held_back_seconds{topic, partition}",
        "How long the same open transaction has held back what is behind it; absent while none is open",
        "the log and the page name its producer and the command that ends it; see TrueupTransactionHanging",
    ),
    gauge("buffered_records{topic, partition}", "Records fetched but not yet applied"),
    gauge("buffered_bytes{topic, partition}", "Bytes of their keys and values"),
    gauge(
        "fetch_paused{topic, partition}",
        "1 while fetching is stopped because enough is buffered",
        "normal while a backlog is drained; if it stays 1, add partitions and workers, or look at batch_seconds",
    ),
    gauge(
        "oldest_row_seconds",
        "Event time since the oldest row of an event was made; a row stays for its stream's ttl, joined or not",
        "if it is far above the longest ttl, rows expire faster than they are removed: two for each record applied",
    ),
    gauge("state_rows{partition}", "Rows of the state table, as the store estimates them"),
    gauge("state_bytes{partition}", "Bytes of the state table, as the store estimates them"),
    gauge(
        "last_update_timestamp_seconds",
        "When a batch was last committed",
        "if it does not change while lag grows, the worker is stuck: read its log",
    ),
    gauge(
        "recovery_remaining_records",
        "Changelog offsets still to restore; compaction may have left fewer records",
        "if it does not change while ready is 0, the brokers do not deliver the changelog",
    ),
    counter("recovery_restored_rows", "Rows restored from the changelog"),
    gauge("recovery_seconds", "How long the present recovery has taken, or the last one took"),
    gauge(
        "recovery_left_seconds",
        "Time until the present recovery is done, at its present rate; absent while nothing is restored",
        "if it is too long, start more workers: they share the partitions and restore them at the same time",
    ),
    gauge("standby_partitions", "Copies of other workers' partitions that are kept here"),
    gauge(
        "standby_missing_partitions",
        "Copies that should be kept here but are not",
        "if it stays above 0, the disk has no room for them: read the log, and enlarge it",
    ),
    gauge(
        "standby_lag_records{partition}",
        "Offsets of the changelog that a copy kept here lacks",
        "while it is large, a partition that moves here is restored for as long; if it grows, the disk is too slow",
    ),
    counter("standby_rows", "Rows written to copies"),
    counter(
        "set_aside{what}",
        "Directories of rows that were not used, and were renamed: foreign, ahead of the changelog, old or damaged",
        "the rows come from a copy or from the changelog; if some are damaged, check the disk; see Disks in "
        "docs/explanation/guarantees.md",
    ),
    gauge(
        "disk_free_ratio",
        "Share of the disk of TRUEUP_DATA_DIR that is free",
        "below a tenth enlarge it: when it is full, the worker ends; see TrueupDiskFilling",
    ),
    gauge(
        "memory_free_ratio",
        "Share of the memory limit of the control group that is free, caches of files aside; of the machine's memory "
        "where there is no limit",
        "below a tenth raise the limit, or start another worker; see TrueupMemoryFilling",
    ),
    counter("written_maps", "Maps written to TRUEUP_MAPS and acknowledged"),
    counter(
        "map_failures",
        "Looks that could not write the maps; the next look tries again",
        "the log says why; the worker itself does not depend on it",
    ),
    gauge(
        "maps_age_seconds",
        "Time since all maps were last up to date; absent without TRUEUP_MAPS",
        "from the max_age of their reader on, services decide by raw scores: read the log, ask the brokers",
    ),
    gauge(
        "registry_waiting_seconds",
        "How long the process has waited for the schema registry; 0 if it does not",
        "what needs a schema waits: check that the registry runs and lets the worker in; the log has its answer",
    ),
    gauge("ready", "1 when partitions are assigned, restored, folded again and served, and no schema is waited for"),
    gauge("build_info{version}", "Always 1"),
)
