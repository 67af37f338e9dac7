"""The metrics of a stream: its scores, its calibrators, its labels, segments and bands."""

from typing import Final

from state import kinds  # noqa: F401 - declares them
from state.bands import MOST as MOST_BANDS
from state.kind import KINDS
from state.policy_checks import MOST_CHALLENGERS
from state.scoring import vector_history
from state.scoring.history import WINDOW
from state.scoring.warm_up import LONGEST
from state.scoring.windows import RECENT
from streams.metrics import functions, served_map
from streams.metrics.figures import of_figure
from streams.metrics.metric import Metric, counter, shown
from streams.metrics.segments import SERIES
from streams.metrics.vectors import OF_VECTORS
from streams.metrics.versions import SERIES as MODELS
from streams.metrics.weights import SERIES as WEIGHTED_SERIES

#: Place of a stream's challengers.
_SHADOWS: Final = f"shadows/[calibrator:challenger.calibrator, config:challenger.config; {MOST_CHALLENGERS}]"
#: The metrics, in the order of the reference.
STREAMS: Final[tuple[Metric, ...]] = (
    counter(
        "answered_forecasts{stream}",
        "Forecasts answered, duplicates included, those folded again not; without a stream: of all hidden streams",
        "if scored_events falls behind, outcomes are missing or late",
    ),
    counter("scored_events{stream}", "Resolved events scored by this worker; without a stream: of all hidden streams"),
    counter(
        "untaught_events{stream}",
        "Events whose outcome taught nothing and counts in no score: their entity had taught, or their label "
        "stands for few forecasts; without a stream: of all hidden streams",
    ),
    shown(
        "resolved",
        "probabilities/resolved",
        "Resolved events scored over the life of the state, without those of a warm-up",
    ),
    shown(
        "scored_partitions",
        "scored/partitions",
        "Partitions of this worker that have scored the stream; rules combine the alarms of workers by it",
    ),
    shown(
        "resolved_bin_events",
        "probabilities/{kind}/cells/{bin; 19}/events",
        "Resolved events by tenths of the forecast, over the life of the state, the lowest tenth by ten bands of "
        "log-odds, 0.0 to 0.9; empty bins are left out",
        "add each of the three sums over workers, then divide; the recording rules do so",
    ),
    shown(
        "resolved_bin_forecasts",
        "probabilities/{kind}/cells/{bin; 19}/forecasts",
        "Sum of the forecasts of these events",
    ),
    shown(
        "resolved_bin_outcomes", "probabilities/{kind}/cells/{bin; 19}/outcomes", "Sum of the outcomes of these events"
    ),
    of_figure(
        "certificate",
        "Bound on the distance to calibration: how far forecasts are, on average and at most, from perfectly "
        "calibrated ones; over the life of the state",
        "trueup audit --certificate computes it again from the topic resolved, the warm-up included; below .01 "
        "the width of the cells is most of it",
    ),
    shown(
        "two_bin_error",
        "probabilities/{kind=calibrated}/two_bin_error",
        "Averaged two-bin calibration error, squared: the mean over all thresholds of the squared errors below and "
        "above; over the life of the state",
        "no bins to choose; forecasts that are all too high by b have b² or a little less",
    ),
    shown(
        "two_bin_gain",
        "probabilities/calibrated/two_bin_gain/{end; 3}",
        "two_bin_error of raw minus that of what was served: value, low and high end of its 95 % interval",
        "chance does not move it one way; low above 0: served is better calibrated; high below 0: worse",
    ),
    of_figure(
        "auc",
        f"Chance that what happened was ranked above what did not, within the last windows of {WINDOW:,} events",
        "if calibrated is far below raw, recalibration spoils the model's ranking; Gini is 2 auc - 1",
    ),
    shown(
        "served_score",
        f"served/[raw; {len(served_map.RAW)}]/served",
        "What is served at present for this raw probability, features at 0: the mean over the partitions",
        "far from raw, the model is off there; trueup streams map has more scores and each partition",
    ),
    shown(
        "served_interval",
        f"served/[raw; {len(served_map.RAW)}]/{{end=low|high}}",
        "The interval of served_score where the stream has intervals, without segments: low and high end, the means "
        "over the partitions",
        "wide: few outcomes have come of such scores, or they contradict what is served",
    ),
    shown(
        "frozen",
        "frozen",
        "1 where the stream's map stays as it is: what serves learns nothing",
        "trueup streams thaw lets it learn again",
    ),
    of_figure("auc_error", "Standard error of auc, as if events were independent"),
    shown(
        "recall",
        "probabilities/{kind}/top/[volume=0.01]/recall",
        "Share of the events that happened that is among the highest forecasts of the last windows; volume: which "
        "share of them",
        "precision is recall * base rate / volume",
    ),
    shown(
        "worst_window_ece",
        "probabilities/{kind=calibrated}/worst_window/ece",
        f"Largest ECE of any complete window of {WINDOW:,} resolved events of a partition",
        "trueup streams show names the window; with --json it has the reliability of the window",
    ),
    shown(
        "alarm_log10",
        "scored/{kind}/alarm/log10",
        "Evidence that forecasts are not calibrated: log10 of an e-value, valid however often it is read",
        "3 or more says broken, wrongly for one stream in a thousand; raw: the model is off, which calibration "
        "mends; calibrated: see worst_window_ece or _error, and whether ones are reported before zeros",
    ),
    shown(
        "alarm_recent_log10",
        "scored/{kind=calibrated}/alarm/recent_log10",
        f"The same of the last {RECENT} windows of {WINDOW:,} resolved events of a partition and the present one; "
        f"windows of classes and numbers have {vector_history.WINDOW}",
        "3 or more says broken now, wrongly once in five million events; it falls when the trouble ends",
    ),
    of_figure("brier", "Mean squared error, over the life of the state"),
    of_figure("log_loss", "Mean log loss, nats, over the life of the state"),
    *OF_VECTORS,
    shown(
        "calibration_error",
        "learning/error",
        "Calibration error (l1) of the calibrator's draws, by grid point; behind certified, as it is by default, "
        "how far p is at most from calibrated scores on average, by its cells",
    ),
    shown(
        "calibration_bound",
        "learning/bound",
        "Upper bound of the theorem for the expected calibration_error, late outcomes included; 1 says nothing. "
        "Behind certified it holds whoever sees p",
        "an error above it means a broken assumption, such as outcomes that depend on the draw, or a defect",
    ),
    shown(
        "calibration_noise",
        "learning/noise",
        "The calibration_error to expect by chance if the draws were the true chances of the outcomes",
        "an error near it says nothing against the calibrator",
    ),
    shown(
        "learnt_outcomes",
        "learning/learnt",
        "Outcomes learnt by the calibrators that serve now; calibration_error of several workers is weighed by it",
    ),
    shown(
        "shadow_events",
        f"{_SHADOWS}/events",
        "Resolved events that both a challenger and its present champion have answered",
        "only forecasts that came while it was configured count; if it stays at 0, no outcomes come",
    ),
    shown(
        "shadow_difference",
        f"{_SHADOWS}/difference/{{loss; 2}}/mean",
        "Mean loss of the challenger minus that of the champion, on the same events",
        "if it is below 0 by more than twice its error, consider trueup streams promote",
    ),
    shown(
        "shadow_difference_error",
        f"{_SHADOWS}/difference/{{loss; 2}}/error",
        "Standard error of shadow_difference, as if events were independent",
    ),
    shown(
        "reported_outcomes",
        "ages/outcomes/{label=0|1}/n",
        "Events whose first outcome was reported with this label, since the state began; labels from silence "
        "are not counted; numbers count under label 0; of classes the first two are shown",
        "it stops rising when a feed of labels stops, or sends only other labels; see TrueupLabelsSilent",
    ),
    shown(
        "outcome_age_seconds",
        "ages/outcomes/{label=0|1}/most_s/share=0.99",
        "Event time after the forecast within which this share of the outcomes of a label comes",
        "set matures above it for both labels, and ttl well above matures",
    ),
    shown(
        "label_finding",
        "ages/findings/[finding:name; 3]",
        "1 where outcomes do not come as the configuration says: ttl, silence, unlabelled, classes, matures, entity",
        "trueup streams show STREAM says in words what was seen and what to set",
    ),
    shown(
        "withheld_partitions",
        "withheld/partitions/{reason; 1}",
        "Partitions that answer a stream as if nothing had been learnt, so by default with the raw forecast. "
        "unlabelled: most forecasts get no label, and nothing says what that means",
        "trueup streams show STREAM says what to set; soon after a stream began, labels that take long may still come",
    ),
    *(
        shown(name, f"gauges/{name}", figure.help, figure.remedy)
        for each in KINDS.values()
        for name, figure in each.figures.items()
    ),
    shown(
        "function_bias",
        f"biases/[along:name; {functions.SERIES}]/bias",
        "Mean of f (p - y) over what calibrated_regression served, along the features and functions f nearest to "
        "their bound; over the life of its state",
        "beyond function_bias_bound, outcomes are late, or depend on what is served",
    ),
    shown(
        "function_bias_bound",
        f"biases/[along:name; {functions.SERIES}]/bound",
        "What no sequence of prompt outcomes makes function_bias exceed, in either direction",
    ),
    shown(
        "warm_up_partitions",
        "warm_up/partitions",
        "Partitions in the warm-up of a stream: they serve raw scores until outcomes support others, or for "
        f"{LONGEST:,} outcomes",
    ),
    shown(
        "warm_up_events",
        "warm_up/resolved",
        "Resolved events that were answered in a warm-up; they count in no other score",
    ),
    shown(
        "warm_up_bias",
        "warm_up/bias",
        "Mean of raw minus outcome over these events: how far the model's own scores are off",
    ),
    shown(
        "warm_up_alarm_log10",
        "warm_up/alarm_log10",
        "Evidence that raw is off over these events, as alarm_log10 has it",
        "3 or more: the model is off, which calibration mends as soon as labels support it",
    ),
    shown("segments_scored", "segments/scored", "Segments that have resolved events, without those in a warm-up"),
    shown(
        "segments_off",
        "segments/off",
        "Segments whose served forecasts are off by .03, or by .3 of what happened, beyond what chance explains",
        "trueup streams show STREAM and the status page name them; a calibrator that uses segments corrects them",
    ),
    shown(
        "segment_events",
        f"segments/worst/[segment, value; {SERIES}]/events",
        f"Resolved events of the {SERIES} segments that are most off",
    ),
    shown(
        "segment_error",
        f"segments/worst/[segment, value; {SERIES}]/calibrated/ece",
        "Calibration error (ECE) of what was served in these segments, over the life of the state; of classes that "
        "of the likeliest one, of numbers the error of coverage",
        "they are the worst of one worker's partitions; which they are may change",
    ),
    shown(
        "segment_bias",
        f"segments/worst/[segment, value; {SERIES}]/off/mean",
        "Mean served forecast minus the share of events that happened in these segments; for classes that of the "
        "likeliest one, for numbers the worst level minus its coverage",
    ),
    shown(
        "segments_silent",
        "segments/silent",
        "Segments whose forecasts wait while none of the outcomes comes that were to be expected of them lately",
        "trueup streams show names them; see TrueupSegmentsSilent",
    ),
    shown(
        "segments_off_recently",
        "segments/recently_off",
        "Segments whose last windows are off by .03, or by .3 of what happened, beyond chance; of numbers by .03 "
        "of coverage",
        "wrongly once in five million events, however many segments there are; it falls when the trouble ends",
    ),
    shown(
        "segment_alarm_recent_log10",
        f"segments/recent/[segment, value; {SERIES}]/alarm_log10",
        f"Evidence that the last windows of a segment are off, log10 of an e-value over the number of segments; of "
        f"the {SERIES} with most evidence, and of none below 0",
        "3 or more says off now",
    ),
    shown(
        "segment_recent_bias",
        f"segments/recent/[segment, value; {SERIES}]/off/mean",
        "Mean served forecast minus the share of events that happened in these segments, over the windows with the "
        "most evidence; for the class with most evidence, or its level minus its coverage",
    ),
    shown(
        "model_version_forecasts",
        f"versions/[model_version:version; {MODELS}]/forecasts",
        f"Forecasts of each version of the model, of the {MODELS} that came last; only where model_version is set",
    ),
    shown(
        "model_version_bias",
        f"versions/[model_version:version; {MODELS}]/bias/{{kind}}",
        "Mean forecast minus the share of events that happened, over the outcomes of each of these versions",
        "streams show and the status page have outcomes, and the line by which the version began",
    ),
    shown(
        "model_version_gain",
        f"versions/[model_version:version; {MODELS}]/log_loss_gain",
        "Mean log loss of the raw scores of each of these versions minus that of what was served, nats",
        "below 0 raw scores were better",
    ),
    shown(
        "band_forecasts",
        f"bands/bands/[band; {MOST_BANDS}]/{{kind}}/forecasts",
        "Forecasts in each band of the stream, by the raw and by the served score; an empty band is below all",
    ),
    shown(
        "band_labels",
        f"bands/bands/[band; {MOST_BANDS}]/calibrated/known",
        "Forecasts served in each band that have a label; with label_rate as many as the labels stand for",
    ),
    shown(
        "band_ones",
        f"bands/bands/[band; {MOST_BANDS}]/calibrated/ones",
        "Those of them whose label is 1: over band_labels it is the precision of the band",
    ),
    shown(
        "band_caught",
        f"bands/bands/[band; {MOST_BANDS}]/calibrated/caught",
        "Labels that are 1 in the band and those above: over the band_ones of all bands it is the recall",
    ),
    shown(
        "band_cost",
        f"bands/bands/[band; {MOST_BANDS}]/calibrated/cost",
        "What it costs to look at this band and above, of forecasts with labels: cost_miss for each one below, "
        "cost_alert for each that is looked at",
    ),
    shown(
        "band_moved",
        f"bands/bands/[band; {MOST_BANDS}]/moved",
        "By which factor the share of served forecasts in the band changed on the last whole day, if it is beyond "
        "chance and the rate of outcomes did not go with it; else 1",
        "see TrueupBandMoved",
    ),
    shown(
        "weighted_outcomes",
        "weighted/happened",
        "Weight of the events that happened: by the stream's weight, times the forecasts that a label stands for",
    ),
    shown(
        "weighted_forecasts",
        "weighted/{kind}/expected",
        "Weight that was expected to happen, of the events with a label, by raw and by served forecasts",
        "far from weighted_outcomes while the scores are right: what weighs most is scored differently from "
        "the rest; give the stream segments by weight",
    ),
    shown(
        "segment_weighted_off",
        f"weighted/segments/[segment, value; {WEIGHTED_SERIES}]/off",
        "Weight that was expected by what was served minus weight that happened, in the segments where it is most",
    ),
)
