"""Every metric trueup exports: its name, what it counts, and what to do about it."""

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from state import kinds  # noqa: F401 - declares them
from state.bands import MOST as MOST_BANDS
from state.kind import KINDS
from state.policy import MOST_CHALLENGERS
from state.scoring import vector_history
from state.scoring.history import WINDOW
from state.scoring.warm_up import LONGEST
from state.scoring.windows import RECENT
from streams.metrics import functions
from streams.metrics.segments import SERIES
from streams.metrics.versions import SERIES as MODELS

#: What the name of every metric begins with.
PREFIX: Final = "trueup_"
#: Buckets of the label delay: a minute to two months, s.
DELAYS: Final = (60, 600, 3600, 6 * 3600, 86_400, 3 * 86_400, 7 * 86_400, 14 * 86_400, 30 * 86_400, 60 * 86_400)
#: Buckets of the time a batch takes from fold to acknowledgement, s.
LATENCIES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
#: Buckets of the time from a forecast to its answer, s: a batch is milliseconds, a backlog minutes.
WAITS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
#: What the numbered steps of a batch are called, see the operations page.
STAGES: Final = {1: "decode", 2: "fold", 3: "journal", 4: "produce"}
#: What the client library exports of a process.
_PROCESS: Final = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
#: The namespace of the same metrics of the process that serves readers.
READERS: Final = f"{PREFIX}readers"
#: Metrics of the process, and of the one that serves its readers.
PROCESS: Final = (*_PROCESS, *(f"{READERS}_{name}" for name in _PROCESS))
#: Buckets of the number of records in a batch.
SIZES: Final = (1, 3, 10, 30, 100, 300, 1000, 2000, 4000)

#: The values of ``fate`` for each input topic, with the fates of the state they count.
RECORD_FATES: Final = {
    "forecasts": {
        "issued": ("forecasts_issued",),
        "duplicate": ("forecasts_duplicate",),
        "dead": ("forecasts_dead",),
    },
    "outcomes": {
        "resolved": ("outcomes_resolved",),
        "waiting": ("outcomes_waiting",),
        "early": ("outcomes_early",),
        "duplicate": ("outcomes_duplicate",),
        "revised": ("outcomes_revised",),
        "stale": ("outcomes_stale",),
        "dead": ("outcomes_dead",),
    },
}


@dataclass(frozen=True)
class Metric:
    """A metric that is exported.

    Attributes
    ----------
    name
        Without the prefix.
    kind
        How Prometheus reads it.
    labels
        Names of its labels, in the order in which samples give their values.
    help
        What it counts or measures.
    remedy
        What an operator does with it.
    series
        Most series that one stream has of it, its challengers' together; 0 where it has no label ``stream``.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    remedy: str = ""
    series: int = 0


def _declared(
    kind: Literal["counter", "gauge", "histogram"], of: str, says: str, remedy: str = "", series: int = 0
) -> Metric:
    """Return a metric by its name with its labels, as Prometheus writes them; the rest as `Metric` has it."""
    name, _, labels = of.rstrip("}").partition("{")
    return Metric(name, kind, tuple(labels.split(", ")) if labels else (), says, remedy, series)


counter, gauge, histogram = partial(_declared, "counter"), partial(_declared, "gauge"), partial(_declared, "histogram")

CATALOGUE: Final = {
    metric.name: metric
    for metric in (
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
            "withheld_letters",
            "Dead letters beyond a stream's rate: they name topic, partition and offset, and leave out the record",
            "read the records where the dead letters say, as long as the input topic keeps them",
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
            "refused_records{stream}",
            "Records beyond their stream's quota, which are dead letters; without a stream: of unknown events, and of "
            "all hidden streams",
            "find out who floods; else raise the quota and send again what the dead letters name",
            series=1,
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
            "Records in the output topics that are not what their inputs bring about when applied again after a crash",
            "above 0: machines of one group compute differently; audit the partition",
        ),
        histogram(
            "forecast_latency_seconds",
            "From the Kafka timestamp of a forecast to the acknowledgement of its answer; each forecast counts",
            "if it rises with lag, the workers are too slow; replayed history counts with its age",
        ),
        counter(
            "answered_forecasts{stream}",
            "Forecasts answered, duplicates included, those folded again not; without a stream: of all hidden streams",
            "if scored_events falls behind, outcomes are missing or late",
            series=1,
        ),
        counter(
            "opened_partitions",
            "Partitions opened; a rebalance opens all partitions of a worker again",
            "if it keeps rising, the group rebalances again and again: look for workers that restart",
        ),
        counter(
            "scored_events{stream}",
            "Resolved events scored by this worker; without a stream: of all hidden streams",
            series=1,
        ),
        gauge(
            "resolved{stream}",
            "Resolved events scored over the life of the state, without those of a warm-up",
            series=1,
        ),
        gauge(
            "scored_partitions{stream}",
            "Partitions of this worker that have scored the stream; rules combine the alarms of workers by it",
            series=1,
        ),
        gauge(
            "resolved_bin_events{stream, kind, bin}",
            "Resolved events by bin of the forecast, over the life of the state; empty bins are left out",
            "add each of the three sums over workers, then divide; the recording rules do so",
            series=20,
        ),
        gauge("resolved_bin_forecasts{stream, kind, bin}", "Sum of the forecasts of these events", series=20),
        gauge("resolved_bin_outcomes{stream, kind, bin}", "Sum of the outcomes of these events", series=20),
        gauge(
            "certificate{stream, kind}",
            "Bound on the distance to calibration: how far forecasts are, on average and at most, from perfectly "
            "calibrated ones; over the life of the state",
            "trueup audit --certificate computes it again from the topic resolved, the warm-up included; below .01 "
            "the width of the cells is most of it",
            series=1,
        ),
        gauge(
            "two_bin_error{stream, kind}",
            "Averaged two-bin calibration error, squared: the mean over all thresholds of the squared errors below and "
            "above; over the life of the state",
            "no bins to choose; forecasts that are all too high by b have b² or a little less",
            series=1,
        ),
        gauge(
            "two_bin_gain{stream, end}",
            "two_bin_error of raw less that of what was served: value, low and high end of its 95 % interval",
            "chance does not move it one way; low above 0: served is better calibrated; high below 0: worse",
            series=3,
        ),
        gauge(
            "auc{stream, kind}",
            f"Chance that what happened was ranked above what did not, within the last windows of {WINDOW:,} events",
            "if calibrated is far below raw, recalibration spoils the model's ranking; Gini is 2 auc - 1",
            series=2,
        ),
        gauge("auc_error{stream, kind}", "Standard error of auc, as if events were independent", series=1),
        gauge(
            "recall{stream, kind, volume}",
            "Share of the events that happened that is among the highest forecasts of the last windows; volume: which "
            "share of them",
            "precision is recall * base rate / volume",
            series=2,
        ),
        gauge(
            "worst_window_ece{stream, kind}",
            f"Largest ECE of any complete window of {WINDOW:,} resolved events of a partition",
            "trueup streams show names the window; with --json it has the reliability of the window",
            series=1,
        ),
        gauge(
            "alarm_log10{stream, kind}",
            "Evidence that forecasts are not calibrated: log10 of an e-value, valid however often it is read",
            "3 or more says broken, in error for one stream in a thousand; raw: the model is off, which calibration "
            "mends; calibrated: see worst_window_ece or _error, and whether ones are reported before zeros",
            series=2,
        ),
        gauge(
            "alarm_recent_log10{stream, kind}",
            f"The same of the last {RECENT} windows of {WINDOW:,} resolved events of a partition and the present one; "
            f"windows of classes and numbers have {vector_history.WINDOW}",
            "3 or more says broken now, in error once in five million events; it falls when the trouble ends",
            series=1,
        ),
        gauge("brier{stream, kind}", "Mean squared error, over the life of the state", series=2),
        gauge("log_loss{stream, kind}", "Mean log loss, nats, over the life of the state", series=2),
        gauge("resolved_vectors{stream}", "Resolved events whose forecasts were of classes or of a number", series=1),
        gauge("classwise_ece{stream, kind}", "Mean over the classes of their ECE against the rest", series=2),
        gauge("top_label_ece{stream, kind}", "ECE of the highest probability of a forecast of classes", series=2),
        gauge(
            "top_label_auc{stream, kind}",
            "Chance that a right answer had a higher probability than a wrong one, within windows of "
            f"{vector_history.WINDOW}; an answer is the class of the highest probability",
            "if calibrated is far below raw, recalibration spoils which answers can be trusted",
            series=2,
        ),
        gauge("accuracy{stream, kind}", "Share of events whose class had the highest probability", series=2),
        gauge(
            "coverage_error{stream, kind}",
            "Largest difference between how often outcomes lay at or below a quantile and its level",
            "if calibrated is above raw, outcomes are too few yet, or the stream drifts faster than the rate allows",
            series=2,
        ),
        gauge("pinball_loss{stream, kind}", "Mean quantile loss over the levels, in units of y", series=2),
        gauge(
            "crps{stream, kind}",
            "Continuous ranked probability score by the levels served, in units of y: twice the integral of the "
            "pinball loss over the levels",
            series=2,
        ),
        gauge(
            "worst_window_error{stream, kind}",
            "Largest coverage error (numbers), or ECE of the highest probability (classes), of any complete window of "
            f"{vector_history.WINDOW} resolved events of a partition",
            "trueup streams show names the window and says what chance gives; the worst of a hundred has two to four "
            "times that",
            series=2,
        ),
        gauge(
            "loss_difference{stream, loss}",
            "Of classes and numbers: mean loss of what was served minus that of the raw forecast, on the same events",
            "above 0 by more than twice its error, recalibration does harm: serve raw, or compare by replay",
            series=2,
        ),
        gauge(
            "loss_difference_error{stream, loss}",
            "Standard error of loss_difference, as if events were independent",
            series=2,
        ),
        gauge("interval_width{stream, kind}", "Mean width of the outermost central interval", series=2),
        gauge(
            "saturated_answers{stream}",
            "Answers that were learnt of which a quantile lay at the end of its range; the bound counts it as played",
            "while it grows, compare coverage_error with calibration_error: what is served covers less than is proven",
            series=1,
        ),
        gauge(
            "calibration_error{stream}",
            "Calibration error (l1) of the calibrator's draws, by grid point; behind certified, as it is by default, "
            "how far p is at most from calibrated scores on average, by its cells",
            series=1,
        ),
        gauge(
            "calibration_bound{stream}",
            "Upper bound of the theorem for the expected calibration_error, late outcomes included; 1 says nothing. "
            "Behind certified it holds whoever sees p",
            "an error above it means a broken assumption, such as outcomes that depend on the draw, or a defect",
            series=1,
        ),
        gauge(
            "calibration_noise{stream}",
            "The calibration_error to expect by chance if the draws were the true chances of the outcomes",
            "an error near it says nothing against the calibrator",
            series=1,
        ),
        gauge(
            "learnt_outcomes{stream}",
            "Outcomes learnt by the calibrators that serve now; calibration_error of several workers is weighed by it",
            series=1,
        ),
        gauge(
            "shadow_events{stream, calibrator, config}",
            "Resolved events that both a challenger and its present champion have answered",
            "only forecasts that came while it was configured count; if it stays at 0, no outcomes come",
            series=MOST_CHALLENGERS,
        ),
        gauge(
            "shadow_difference{stream, calibrator, config, loss}",
            "Mean loss of the challenger minus that of the champion, on the same events",
            "if it is below 0 by more than twice its error, consider trueup streams promote",
            series=2 * MOST_CHALLENGERS,
        ),
        gauge(
            "shadow_difference_error{stream, calibrator, config, loss}",
            "Standard error of shadow_difference, as if events were independent",
            series=2 * MOST_CHALLENGERS,
        ),
        gauge(
            "reported_outcomes{stream, label}",
            "Events whose first outcome was reported with this label, since the state began; what silence says is not "
            "counted, numbers are under label 0, and of classes the first two are shown",
            "it stands still when a feed of labels stops, or sends another label only; see TrueupLabelsSilent",
            series=2,
        ),
        gauge(
            "outcome_age_seconds{stream, label, share}",
            "Event time after the forecast within which this share of the outcomes of a label comes",
            "set matures above it for both labels, and ttl well above matures",
            series=2,
        ),
        gauge(
            "label_finding{stream, finding}",
            "1 where outcomes do not come as the configuration says: ttl, silence, unlabelled, classes, matures, "
            "entity",
            "trueup streams show STREAM says in words what was seen and what to set",
            series=3,
        ),
        gauge(
            "withheld_partitions{stream, reason}",
            "Partitions that answer a stream as if nothing had been learnt, so by default with the raw forecast. "
            "unlabelled: most forecasts get no label, and nothing says what that means",
            'set silence, or unlabelled = "alike"; soon after a stream began, labels that take long may still come',
            series=1,
        ),
        *(
            gauge(f"{name}{{stream}}", figure.help, figure.remedy, series=1)
            for each in KINDS.values()
            for name, figure in each.figures.items()
        ),
        gauge(
            "function_bias{stream, along}",
            "Mean of f (p - y) over what calibrated_regression served, along the features and functions f nearest to "
            "their bound; over the life of its state",
            "beyond function_bias_bound, outcomes are late, or depend on what is served",
            series=functions.SERIES,
        ),
        gauge(
            "function_bias_bound{stream, along}",
            "What no sequence of prompt outcomes makes function_bias exceed, in either direction",
            series=functions.SERIES,
        ),
        gauge(
            "warm_up_partitions{stream}",
            "Partitions in the warm-up of a stream: they serve raw scores until outcomes support others, or for "
            f"{LONGEST:,} outcomes",
            series=1,
        ),
        gauge(
            "warm_up_events{stream}",
            "Resolved events that were answered in a warm-up; they count in no other score",
            series=1,
        ),
        gauge(
            "warm_up_bias{stream}",
            "Mean of raw minus outcome over these events: how far the model's own scores are off",
            series=1,
        ),
        gauge(
            "warm_up_alarm_log10{stream}",
            "Evidence that raw is off over these events, as alarm_log10 has it",
            "3 or more: the model is off, which calibration mends as soon as labels support it",
            series=1,
        ),
        gauge("segments_scored{stream}", "Segments that have resolved events, without those in a warm-up", series=1),
        gauge(
            "segments_off{stream}",
            "Segments whose served forecasts are off by .03, or by .3 of what happened, beyond what chance explains",
            "trueup streams show STREAM and the status page name them; a calibrator that uses segments corrects them",
            series=1,
        ),
        gauge(
            "segment_events{stream, segment, value}",
            f"Resolved events of the {SERIES} segments that are most off",
            series=SERIES,
        ),
        gauge(
            "segment_error{stream, segment, value}",
            "Calibration error (ECE) of what was served in these segments, over the life of the state; of classes that "
            "of the likeliest one, of numbers the error of coverage",
            "they are the worst of one worker's partitions; which they are may change",
            series=SERIES,
        ),
        gauge(
            "segment_bias{stream, segment, value}",
            "Mean served forecast less the share of events that happened in these segments; of classes the likeliest "
            "one's, of numbers the level that is most off less its coverage",
            series=SERIES,
        ),
        gauge(
            "segments_off_recently{stream}",
            "Segments whose last windows are off by .03, or by .3 of what happened, beyond chance; of numbers by .03 "
            "of coverage",
            "in error once in five million events, however many segments there are; it falls when the trouble ends",
            series=1,
        ),
        gauge(
            "segment_alarm_recent_log10{stream, segment, value}",
            f"Evidence that the last windows of a segment are off, log10 of an e-value over the number of segments; of "
            f"the {SERIES} with most evidence, and of none below 0",
            "3 or more says off now",
            series=SERIES,
        ),
        gauge(
            "segment_recent_bias{stream, segment, value}",
            "Mean served forecast less the share of events that happened in these segments, over the windows with the "
            "most evidence; of the class with most evidence, or of its level less its coverage",
            series=SERIES,
        ),
        gauge(
            "model_version_forecasts{stream, model_version}",
            f"Forecasts of each version of the model, of the {MODELS} that came last; only where model_version is set",
            series=MODELS,
        ),
        gauge(
            "model_version_bias{stream, model_version, kind}",
            "Mean forecast less the share of events that happened, of the outcomes of each of these versions",
            "streams show and the status page have outcomes, and the line by which the version began",
            series=2 * MODELS,
        ),
        gauge(
            "model_version_gain{stream, model_version}",
            "Mean log loss of the raw scores of each of these versions less that of what was served, nats",
            "below 0 raw scores were better",
            series=MODELS,
        ),
        gauge(
            "band_forecasts{stream, kind, band}",
            "Forecasts in each band of the stream, by the raw and by the served score; an empty band is below all",
            series=2 * MOST_BANDS,
        ),
        gauge("band_labels{stream, band}", "Forecasts served in each band that have a label", series=MOST_BANDS),
        gauge(
            "band_ones{stream, band}",
            "Those of them whose label is 1: over band_labels it is the precision of the band",
            series=MOST_BANDS,
        ),
        gauge(
            "band_cost{stream, band}",
            "What it costs to look at this band and above, of forecasts with labels: cost_miss for each one below, "
            "cost_alert for each that is looked at",
            series=MOST_BANDS,
        ),
        gauge(
            "band_moved{stream, band}",
            "By which factor the share of served forecasts in the band changed on the last whole day, if it is beyond "
            "chance and the rate of outcomes did not go with it; else 1",
            "see TrueupBandMoved",
            series=MOST_BANDS,
        ),
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
            "untaught_events",
            "Events whose outcome taught nothing and counts in no score, because their entity had taught",
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
            "Records appended and not yet applied",
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
        gauge("buffered_records{topic, partition}", "Records fetched and not yet applied"),
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
            "Copies that are to be kept here and are not",
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
            "the rows come from a copy or from the changelog; if some are damaged, check the disk; see Disks on the "
            "operations page",
        ),
        counter("written_maps", "Maps written to TRUEUP_MAPS and acknowledged"),
        counter(
            "map_failures",
            "Looks at which maps could not be written; it is tried again at the next",
            "the log says why; the worker itself does not depend on it",
        ),
        gauge(
            "maps_age_seconds",
            "Since all maps were last as the state is; absent without TRUEUP_MAPS",
            "from the max_age of their reader on, services decide by raw scores: read the log, ask the brokers",
        ),
        gauge(
            "registry_waiting_seconds",
            "How long the schema registry has been waited for; 0 if it is not",
            "what needs a schema stands still: see that the registry runs and lets the worker in; the log says what it "
            "answers",
        ),
        gauge("ready", "1 when partitions are assigned, restored and served, and no schema is waited for"),
        gauge("build_info{version}", "Always 1"),
    )
}

#: What only streams of classes and of numbers have. Of probabilities they have less.
OF_VECTORS: Final = (
    "resolved_vectors",
    "classwise_ece",
    "top_label_ece",
    "top_label_auc",
    "accuracy",
    "coverage_error",
    "pinball_loss",
    "crps",
    "interval_width",
    "worst_window_error",
    "loss_difference",
    "loss_difference_error",
    "saturated_answers",
)
#: Most series that one stream has: it is of probabilities, and has as many challengers as may be. Prometheus's
#: ``sample_limit`` must hold as many for each of ``TRUEUP_METRICS_STREAMS``, and a worker's own.
STREAM_SERIES: Final = sum(metric.series for name, metric in CATALOGUE.items() if name not in OF_VECTORS)
