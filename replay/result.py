"""What a replay found: plain values, for the terminal, for JSON, and for a report.

A `Result` is a function of the records and the options alone. Nothing in it depends on the clock or the number of
processes: the same replay gives the same bytes of `Result.encode`. How fast it went is a `Pace`, and no part of it.

Where to look: ``result.contenders[i].overall`` is what a report shows first; ``.streams`` the same for each stream;
``result.differences`` says which of two contenders is better and how sure that is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import orjson

#: What a row of figures is about: the model's forecasts, or what a contender served, its deterministic ``p``.
Kind = Literal["raw", "calibrated"]

#: The name of raw forecasts where contenders are named.
RAW = "raw"

#: Metrics that differences are given for.
COMPARED = ("ece", "ece_smooth", "brier", "log_loss", "auc", "recall")
#: Those of them that are better when larger; all others are when smaller.
LARGER = frozenset({"auc", "recall"})


@dataclass(frozen=True)
class Scorecard:
    """Scores of resolved forecasts of one kind. NaN where there are no events.

    Attributes
    ----------
    n
        Resolved forecasts.
    ece
        Expected calibration error in ten bins of width .1, in [0, 1] (`state.scoring.scores.Scores.error`).
    ece_noise
        The ``ece`` to expect by chance if every forecast were the chance of its outcome. An ``ece`` near it is as good
        as can be measured with ``n``.
    ece_smooth
        The same under hat weights (`state.scoring.scores.Scores.smooth_ece`), which no bin's edge can make jump.
    certificate
        Bound on the distance to calibration (`state.scoring.certificate`), from 0 up.
    two_bin, two_bin_noise, two_bin_error
        Averaged two-bin calibration error, squared, what chance alone gives, and its standard error or more
        (`state.scoring.two_bin`).
    worst_window_ece
        Largest ``ece`` of a full window of 5,000 outcomes on one partition, as live; None before the first.
    brier, log_loss
        Means; log loss in nats, forecasts clipped to [1e-6, 1 - 1e-6].
    misclassification
        Share of forecasts that lie on the wrong side of 1/2.
    mean_forecast, base_rate
        Means of forecasts and of outcomes.
    relative_error
        mean_forecast / base_rate - 1: .5 is half too high, whatever the rate. NaN without ones.
    auc, ks
        How well forecasts rank: share of pairs of a one and a zero in order, and the largest distance between the
        distributions of both. Only forecasts of one window count, some 200 neighbours in time that one calibrator
        answered (`replay.ranking.windows`): maps of other times serve another scale. Equal raw forecasts of one window
        count as served alike. NaN where no window has both.
    recall, precision
        Of the highest forecasts, as many as the volume of the replay says, in each window.
    caught
        The same at several volumes.
    distinct
        Different forecasts.
    """

    n: int
    ece: float
    ece_noise: float
    ece_smooth: float
    certificate: float
    two_bin: float
    two_bin_noise: float
    two_bin_error: float
    worst_window_ece: float | None
    brier: float
    log_loss: float
    misclassification: float
    mean_forecast: float
    base_rate: float
    relative_error: float
    auc: float
    ks: float
    recall: float
    precision: float
    caught: Sequence["Caught"]
    distinct: int


@dataclass(frozen=True)
class Caught:
    """What the highest forecasts catch: of the share ``volume``, recall and precision (`Scorecard.recall`)."""

    volume: float
    recall: float
    precision: float


@dataclass(frozen=True)
class Phase:
    """A part of the history, scored apart.

    `state.served.Served.warms` says which forecasts belong to the warm-up of a contender. After it means: not in
    that of any contender, so that all are scored on the same forecasts.

    Attributes
    ----------
    issued, resolved
        Forecasts, and those of them with an outcome.
    start_ms, end_ms
        Times of the first and the last forecast, ms since the epoch; None without any.
    raw, calibrated, draw
        Scores; ``draw`` is None where nothing is drawn.
    """

    issued: int
    resolved: int
    start_ms: int | None
    end_ms: int | None
    raw: Scorecard
    calibrated: Scorecard
    draw: Scorecard | None


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability diagram. Bins without events are left out.

    Attributes
    ----------
    low, high
        Edges of the forecast: ``low <= p < high``, and 1.0 in the last.
    n
        Events.
    forecast, observed
        Mean forecast and share of ones.
    observed_low, observed_high
        Wilson's 95 % interval of ``observed``: the band.
    """

    low: float
    high: float
    n: int
    forecast: float
    observed: float
    observed_low: float
    observed_high: float


@dataclass(frozen=True)
class Window:
    """Some resolved forecasts in a row, in the order of resolution; all windows of a series hold equally many, +-1.

    Attributes
    ----------
    start_ms, end_ms
        Times at which its first and last forecast were resolved, ms since the epoch.
    n
        Forecasts.
    base_rate, mean_raw, mean_calibrated
        Means of outcomes and forecasts of the window: drift of the base rate, and who follows it.
    ece_raw, ece_calibrated, ece_noise
        Of the window; ``ece_noise`` is what chance alone gives the calibrated ones.
    brier_raw, brier_calibrated
        Of the window.
    regret_brier
        Σ Brier calibrated − raw from the beginning up to and with this window; below 0 is better than raw.
    error, bound
        What the calibrators of all partitions measured of themselves up to ``end_ms``, and the theorem's bound on it,
        both means weighted by outcomes learnt; see `state.calibrators.base.Recalibrator.error`. None where no
        calibrator has them. They are of the calibrator's own points or cells and cumulative: compare them with each
        other, not with ``ece``.
    """

    start_ms: int
    end_ms: int
    n: int
    base_rate: float
    mean_raw: float
    mean_calibrated: float
    ece_raw: float
    ece_calibrated: float
    ece_noise: float
    brier_raw: float
    brier_calibrated: float
    regret_brier: float
    error: float | None
    bound: float | None


@dataclass(frozen=True)
class WorstWindow:
    """The window of `Scorecard.worst_window_ece`. Windows do not overlap, and the last one counts only if it is full.

    Attributes
    ----------
    stream
        Whose they were.
    start_ms, end_ms
        Times at which its first and last forecast were resolved, ms since the epoch.
    n
        Forecasts.
    ece, ece_noise
        Of the window; ``ece_noise`` is what chance alone gives one window, not the worst of many.
    mean_forecast, base_rate
        Means of forecasts and of outcomes.
    """

    stream: str
    start_ms: int
    end_ms: int
    n: int
    ece: float
    ece_noise: float
    mean_forecast: float
    base_rate: float


@dataclass(frozen=True)
class Delays:
    """How long outcomes took: ``counts[i]`` of them from ``edges_ms[i]`` up to ``edges_ms[i + 1]``, and quantiles.

    The first edge may be negative: outcomes whose time is before their forecast's.

    Attributes
    ----------
    edges_ms
        len(counts) + 1 increasing edges; they grow roughly in steps of 1, 2, 5.
    counts
        Resolved forecasts.
    median_ms, p90_ms, p99_ms
        Quantiles, by linear interpolation; None without resolved forecasts.
    """

    edges_ms: tuple[int, ...]
    counts: tuple[int, ...]
    median_ms: float | None
    p90_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class Ages:
    """How long outcomes took, by label; those that silence gives are not among them.

    Attributes
    ----------
    label
        0 or 1.
    n
        Outcomes.
    median_ms, p99_ms, largest_ms
        Quantiles of the time from forecast to outcome, by linear interpolation.
    """

    label: int
    n: int
    median_ms: float
    p99_ms: float
    largest_ms: float


@dataclass(frozen=True)
class Late:
    """How the reported outcomes of a stream stand to its ``ttl``.

    Attributes
    ----------
    outcomes
        Those that came in time, and those whose forecast had expired: of the first 300,000 that expire on a partition.
    missed
        Those whose forecast had expired. They were not learnt.
    share
        Share of the outcomes that took longer than the ttl; NaN without any.
    p99_ms, largest_ms
        Quantiles of the time from forecast to outcome, by linear interpolation; None without any.
    expired
        Forecasts that expired without an outcome.
    """

    outcomes: int
    missed: int
    share: float
    p99_ms: float | None
    largest_ms: float | None
    expired: int


@dataclass(frozen=True)
class Coverage:
    """How many forecasts of one band of the raw score got an outcome within the replay.

    Attributes
    ----------
    low, high
        The band: ``low <= raw < high``, and 1.0 in the last.
    issued, resolved
        Forecasts, and those of them with an outcome.
    share
        resolved / issued; NaN if none was issued.
    identifiable
        False where so few are known that no metric says anything of the band (less than half, though there are at
        least 50): calibration there rests on those that happened to get a label. Warn, and name the band.
    """

    low: float
    high: float
    issued: int
    resolved: int
    share: float
    identifiable: bool


@dataclass(frozen=True)
class FeatureBias:
    """Σx(p − y) / sqrt(n Σx²) along one feature, in [-1, 1], of both kinds; 0 is unbiased (`state.scoring.bias`)."""

    feature: str
    raw: float
    calibrated: float


@dataclass(frozen=True)
class FunctionBias:
    """Mean of f (p - y) along one test function f of the calibrator, a feature as a rule, and its bound."""

    function: str
    bias: float
    bound: float


@dataclass(frozen=True)
class Alerts:
    """What a threshold does, before (`raw`) and after: an alert is a forecast of at least ``threshold``.

    Attributes
    ----------
    threshold
        In [0, 1].
    issued
        Forecasts, with or without an outcome.
    raw, calibrated
        Alerts among them.
    raw_precision, calibrated_precision
        Share of ones among the alerts that have an outcome; None without any.
    raw_recall, calibrated_recall
        Share of alerts among the ones; None without ones.
    equal_threshold
        The calibrated forecast at which as many alerts are raised as ``raw``; None if that is none.
    equal_precision, equal_recall
        Of the ``raw`` largest calibrated forecasts. Those that lie at ``equal_threshold`` count in proportion, as if
        the alerts still wanted were drawn from them; None as above.
    """

    threshold: float
    issued: int
    raw: int
    calibrated: int
    raw_precision: float | None
    calibrated_precision: float | None
    raw_recall: float | None
    calibrated_recall: float | None
    equal_threshold: float | None
    equal_precision: float | None
    equal_recall: float | None


@dataclass(frozen=True)
class Fit:
    """Intercept and slope of the outcomes on the log-odds of forecasts: 0 and 1 of calibrated ones; NaN where none."""

    intercept: float
    slope: float


@dataclass(frozen=True)
class Month:
    """Forecasts of a calendar month, UTC, that have an outcome: means, and ``shift``, the PSI of raw against the first.

    ``chance`` is half the 95 % interval of ``observed`` if what was served is right.
    """

    month: str
    n: int
    raw: float
    calibrated: float
    observed: float
    chance: float
    shift: float


@dataclass(frozen=True)
class Cut:
    """The score from which on the highest forecasts lie, of a volume.

    Attributes
    ----------
    volume
        Their share, in (0, 1).
    raw, calibrated
        The cut-offs, of the last quarter of the forecasts, as is all else.
    n, raw_hits, calibrated_hits
        The highest of the forecasts with an outcome, and the ones among them.
    ones
        All ones; those that are no hits are missed.
    """

    volume: float
    raw: float
    calibrated: float
    n: int
    raw_hits: int
    calibrated_hits: int
    ones: int


@dataclass(frozen=True)
class Review:
    """What a review asks of the forecasts after the warm-up, see `replay.review`.

    Attributes
    ----------
    quantiles
        By kind, bins of equal weight (`state.scoring.ranking.Ranking.bins`).
    fits, months, cuts
        See their classes.
    lookup
        Round raw scores, and what was served for them at the end.
    """

    quantiles: Mapping[Kind, Sequence[Mapping[str, float]]]
    fits: Mapping[Kind, Fit]
    months: Sequence[Month]
    cuts: Sequence[Cut]
    lookup: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Scored:
    """What one contender did on some forecasts: of one stream, or of all that are probabilities.

    Attributes
    ----------
    stream
        Its name; ``*`` for all.
    issued
        Forecasts answered; ``raw.n`` of them have an outcome.
    raw, calibrated, draw
        Their scores, over the same resolved forecasts; ``draw`` is None where nothing is drawn.
    warmup, settled
        Scores of the warm-up, and of what came after it: the choice rests on these.
    regret_brier, regret_log
        Σ loss calibrated − Σ loss raw; below 0 is better than raw.
    l1, bound
        Own error and the theorem's bound at the end, as `Window.error` and `Window.bound`; None without.
    reliability
        By kind; bins from low to high.
    windows
        At most 60, in time order; none below 40 resolved forecasts.
    worst
        By kind; None before the first complete window.
    ages
        Of the labels that were seen.
    implied, reversed
        Labels that silence gave, and those of them that an outcome has replaced since.
    ttl_ms, matures_ms
        Of its configuration; the shortest ttl and the longest maturity of all streams together.
    delays, coverage, features, alerts
        See their classes. ``features`` is empty for streams without, ``alerts`` None if no threshold was given.
    late
        None of all streams together.
    segments
        Of a stream with segments: what `streams.metrics.segments.describe` returns; ``expired`` counts all forecasts
        without an outcome. None without segments, and of all streams together.
    functions
        The nearest to its bound first; empty where the calibrator bounds none, and of all streams together.
    review
        Of the forecasts after its own warm-up.
    bands
        Of a stream with bands: what `replay.bands.described` returns, over all forecasts. None without, and of all
        streams together.
    intervals
        Of a stream with intervals: what `replay.intervals.described` returns of the first configuration. None likewise.
    """

    stream: str
    issued: int
    raw: Scorecard
    calibrated: Scorecard
    draw: Scorecard | None
    warmup: Phase
    settled: Phase
    regret_brier: float
    regret_log: float
    l1: float | None
    bound: float | None
    reliability: Mapping[Kind, Sequence[Bin]]
    windows: Sequence[Window]
    worst: Mapping[Kind, WorstWindow | None]
    delays: Delays
    ages: Sequence[Ages]
    implied: int
    reversed: int
    ttl_ms: int
    matures_ms: int
    coverage: Sequence[Coverage]
    features: Sequence[FeatureBias]
    review: Review
    alerts: Alerts | None
    late: Late | None = None
    segments: Mapping[str, Any] | None = None
    functions: Sequence[FunctionBias] = ()
    bands: Mapping[str, Any] | None = None
    intervals: Mapping[str, Any] | None = None

    @property
    def judged(self) -> Phase:
        """Scores after the warm-up, with the worst window of all; of a warm-up that did not end, its own."""
        phase = self.settled if self.settled.resolved else self.warmup
        return replace(
            phase,
            raw=replace(phase.raw, worst_window_ece=self.raw.worst_window_ece),
            calibrated=replace(phase.calibrated, worst_window_ece=self.calibrated.worst_window_ece),
        )


@dataclass(frozen=True)
class Vectors:
    """Scores of a stream of classes or numbers: a few named figures of each kind, better when smaller unless said.

    ``figures[kind]`` maps names such as ``log_loss``, ``classwise_ece``, ``accuracy`` and ``auc`` (larger is better),
    or ``coverage_error``, ``pinball`` and ``crps``, to values. ``worst_window`` is the error of the worst 500 outcomes
    in a row, ``worst_window_noise`` what chance gives one window, ``alarm_log10`` the evidence against calibration.
    ``segments`` is what `streams.metrics.segments.describe` returns, as in `Scored`.
    """

    stream: str
    resolved: int
    figures: Mapping[Kind, Mapping[str, float]]
    segments: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Contender:
    """One configuration under one delay.

    Attributes
    ----------
    name
        As given on the command line; with a sweep of delays, `` delay <d>`` behind it. Unique.
    delay
        ``as-is``, ``none``, or the added time such as ``+2d``.
    calibrators
        Name of the calibrator of each stream that was seen.
    configs
        The hash of each stream's configuration, as in calibrated records.
    recipes
        What each of the hashes stands for: calibrator, every option, seed and features (`state.policy.Policy.recipe`).
    fates
        Records and rows by `state.fence.FATES`, all partitions together; they add up as `state.fence.Fence` says.
    pending, early
        Forecasts that still wait for an outcome at the end, and outcomes that wait for a forecast.
    immature
        Forecasts that are younger at the end than the age at which they mature; some have an outcome.
    untaught
        Forecasts whose outcome is in no figure, because their entity had taught (`state.entities`).
    overall
        All streams of probabilities together; None if there are none.
    turned
        Share of neighbours in time whose order was changed although one map answered them, of probabilities after the
        warm-up (`replay.ranking.turned`). NaN without any.
    streams, vectors
        Each stream by name, the 200 with most forecasts; those of classes and numbers in ``vectors``.
    """

    name: str
    delay: str
    calibrators: Mapping[str, str]
    configs: Mapping[str, str]
    recipes: Mapping[str, str]
    fates: Mapping[str, int]
    pending: int
    early: int
    immature: int
    untaught: int
    overall: Scored | None
    turned: float
    streams: Mapping[str, Scored]
    vectors: Mapping[str, Vectors]


@dataclass(frozen=True)
class Difference:
    """A metric of ``name`` minus that of ``against``, on the same resolved forecasts, over all streams.

    Attributes
    ----------
    name, against
        Contenders, or their draws (`drawn`); ``against`` may be ``raw``.
    metric
        One of `COMPARED`; of numbers ``pinball``.
    value, low, high
        The difference and its 95 % interval. ``name`` is better where it is below 0 throughout, or above for `LARGER`.
    """

    name: str
    against: str
    metric: str
    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0.0 or self.high < 0.0

    @property
    def sign(self) -> int:
        """-1 where ``name`` is clearly better, 1 where it is clearly worse, else 0."""
        if not self.clear:
            return 0
        return -1 if (self.high < 0.0) != (self.metric in LARGER) else 1


@dataclass(frozen=True)
class Interval:
    """A metric of a contender, of its draw (`drawn`) or of raw, after the warm-up, with its 95 % interval."""

    name: str
    delay: str
    metric: str
    value: float
    low: float
    high: float


def drawn(name: str) -> str:
    """Return what a contender's draw is called among differences."""
    return f"{name}, draw"


@dataclass(frozen=True)
class Bootstrap:
    """How the intervals were made: moving blocks of ``block`` resolved forecasts in a row, ``resamples`` times.

    Attributes
    ----------
    step
        Blocks begin at multiples of this.
    seed
        Of the drawing.
    """

    block: int
    step: int
    resamples: int
    seed: int


@dataclass(frozen=True)
class Result:
    """All of a replay.

    Attributes
    ----------
    version
        Of trueup.
    run
        Twelve hex digits that name the replay: a hash of sources and options. Also in the header ``trueup-replay`` of
        records that go to a topic.
    manifest
        What was read, as `replay --manifest` writes it down.
    taken
        How a table was read where it leaves a choice, in sentences.
    records
        Read in all, of both topics, dead ones included.
    start_ms, end_ms
        Smallest and largest timestamp of a record; None without records.
    read
        Records of each topic, dead ones included.
    dead
        Records that could not be used, by topic and reason (`streams.records.decoding.REASONS`).
    out_of_order
        Records of each topic whose time is before that of an earlier record of their partition. They are played where
        they stand, as a worker does; many of them in a file mean that it was not sorted.
    contenders
        In the order of the command line.
    volume
        Share of the forecasts that `Scorecard.recall` is of.
    differences, bootstrap
        Every contender and its draw against raw, then every pair, after the warm-up; none below 200 resolved forecasts.
        A pair is compared only where both resolved the same forecasts, so not across delays.
    warming
        Every contender against raw in its own warm-up; none below 200 resolved forecasts.
    intervals
        Of each metric of `COMPARED`, of raw, every contender and its draw.
    vector_differences
        By stream of classes or numbers: every contender against raw, and against each before it that serves the same
        classes or levels, in ``brier`` and ``log_loss`` or in ``pinball``; none below 200 resolved forecasts.
    """

    version: str
    run: str
    manifest: Mapping[str, Any]
    taken: Sequence[str]
    records: int
    start_ms: int | None
    end_ms: int | None
    read: Mapping[str, int]
    dead: Mapping[str, Mapping[str, int]]
    out_of_order: Mapping[str, int]
    contenders: Sequence[Contender]
    volume: float
    differences: Sequence[Difference]
    warming: Sequence[Difference]
    intervals: Sequence[Interval]
    vector_differences: Mapping[str, Sequence[Difference]]
    bootstrap: Bootstrap | None

    def contender(self, name: str) -> Contender:
        """Return a contender by name; KeyError if there is none."""
        for each in self.contenders:
            if each.name == name:
                return each
        raise KeyError(name)

    def encode(self) -> bytes:
        """Return everything as one line of JSON; NaN becomes null."""
        return orjson.dumps(_plain(asdict(self)))


@dataclass(frozen=True)
class Pace:
    """How fast a replay went: wall-clock seconds of the pass, processes, and records a second of all together."""

    seconds: float
    processes: int
    records_per_s: float


def _plain(value: Any) -> Any:  # noqa: ANN401 - any part of a result
    """Return a value that JSON has."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
