"""The result of a replay: plain values, for the terminal, for JSON, and for a report.

A `Result` is a function of the records and the options alone. Nothing in it depends on the clock or the number of
processes: the same replay gives the same bytes of `Result.encode`. Its `ReplayPace` is not part of it.

A comment is about the fields below it, up to the next comment.

Where to look: ``result.contenders[i].overall`` is what a report shows first; ``.streams`` has the same for each stream;
``result.differences`` says which of two contenders is better and how sure that is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from replay import figures
from replay.figures import Kind

#: The name of raw forecasts among contenders.
RAW = "raw"

#: Metrics whose differences are given.
COMPARED = ("ece", "ece_smooth", "brier", "log_loss", "auc", "recall")
#: Metrics that are better when larger; all others are better when smaller.
LARGER = frozenset({"auc", "recall"})


@dataclass(frozen=True)
class Scored:
    """The figures of one contender, for one stream or for all streams of probabilities."""

    #: Its name; ``*`` for all.
    stream: str
    #: Forecasts answered. ``raw.n`` of them have an outcome that counts, and ``untaught`` one that taught nothing.
    issued: int
    untaught: int
    #: The latter after the warm-up; None without any.
    told: figures.Told | None
    #: Scores of the former, over the same resolved forecasts; ``draw`` is None where nothing is drawn.
    raw: figures.Scorecard
    calibrated: figures.Scorecard
    draw: figures.Scorecard | None
    #: Scores of the warm-up; and scores after it, on which the choice rests.
    warmup: figures.Phase
    settled: figures.Phase
    #: Σ loss calibrated − Σ loss raw; below 0 is better than raw.
    regret_brier: float
    regret_log: float
    #: The calibrator's own error and the theorem's bound at the end, see `ScoredWindow.error`; None if it has none.
    l1: float | None
    bound: float | None
    #: At most 60, in time order; none with fewer than 40 resolved forecasts.
    windows: Sequence[figures.ScoredWindow]
    #: By kind; None before the first complete window.
    worst: Mapping[figures.Kind, figures.WorstWindow | None]
    delays: figures.Delays
    #: For the labels that were seen.
    ages: Sequence[figures.OutcomeAges]
    #: Labels that silence gave; and how many of these an outcome has replaced since then.
    implied: int
    reversed: int
    #: From its configuration; for all streams together, the shortest ttl and the longest maturity.
    ttl_ms: int
    matures_ms: int
    coverage: Sequence[figures.BandCoverage]
    #: Empty for streams without features.
    features: Sequence[figures.FeatureBias]
    #: For the forecasts after its own warm-up.
    review: figures.Review
    #: None for all streams together.
    late: figures.Late | None = None
    #: Segments of the stream: the result of `streams.metrics.segments.describe`. None without segments, and for all
    #: streams together.
    segments: Mapping[str, Any] | None = None
    #: Biases, the nearest to its bound first; empty if the calibrator bounds none, or for all streams together.
    functions: Sequence[figures.FunctionBias] = ()
    #: Versions of the stream's model: the result of `streams.metrics.versions.describe` for the first configuration.
    #: Empty without versions, or for all streams together.
    versions: Sequence[Mapping[str, Any]] = ()
    #: Bands of the stream: the result of `replay.bands.described`, over all forecasts. None without bands, and for all
    #: streams together.
    bands: Mapping[str, Any] | None = None
    #: Intervals of the stream: the result of `replay.intervals.described` for the first configuration.
    #: None without intervals, and for all streams together.
    intervals: Mapping[str, Any] | None = None
    #: Weights of the stream: the result of `streams.metrics.weights.describe`, over all labels. None
    #: without weights, and for all streams together.
    weighted: Mapping[str, Any] | None = None

    @property
    def judged(self) -> figures.Phase:
        """Scores after the warm-up, with the worst window of all; if the warm-up did not end, its scores."""
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
    in a row, ``worst_window_noise`` what chance gives for one window, ``alarm_log10`` the evidence against calibration.
    ``segments`` is as in `Scored`.
    """

    stream: str
    resolved: int
    figures: Mapping[Kind, Mapping[str, float]]
    segments: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Contender:
    """One configuration."""

    #: Name, as given on the command line. Unique.
    name: str
    #: Name of the calibrator of each stream that was seen.
    calibrators: Mapping[str, str]
    #: The hash of each stream's configuration, as in calibrated records. For forecasts that name a version of the
    #: model, see ``versions``.
    configs: Mapping[str, str]
    #: What each hash stands for: calibrator, every option, seed and features (`state.policy.Policy.recipe`).
    recipes: Mapping[str, str]
    #: Records and rows by `state.fence.FATES`, over all partitions; they add up as `state.fence.Fence` says.
    fates: Mapping[str, int]
    #: Forecasts that still wait for an outcome at the end; and outcomes that wait for a forecast.
    pending: int
    early: int
    #: Forecasts that have not matured at the end. Some have an outcome.
    immature: int
    #: Forecasts whose outcome taught nothing (`state.ledger.UNTAUGHT`). They count only in ``Scored.weighted`` and, if
    #: chances of labels are known, in ``Scored.bands``.
    untaught: int
    #: All streams of probabilities together; None if there are none.
    overall: Scored | None
    #: Share of neighbours in time whose order was changed although one map answered them (`replay.ranking.turned`).
    #: Only for probabilities after the warm-up. NaN without any.
    turned: float
    #: The 200 streams with most forecasts, by name. Streams of classes and numbers are in ``vectors``.
    streams: Mapping[str, Scored]
    vectors: Mapping[str, Vectors]
    #: For each stream whose model has versions: the hash of each version's configuration.
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class MetricDifference:
    """A metric of ``name`` minus that of ``against``, on the same resolved forecasts, over all streams."""

    #: Names of two contenders, or of their draws (`drawn`). ``against`` may be ``raw``.
    name: str
    against: str
    #: One of `COMPARED`; for numbers ``pinball``.
    metric: str
    #: The difference and its 95 % interval. ``name`` is better if all of the interval is below 0; for `LARGER`,
    #: above 0.
    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0.0 or self.high < 0.0

    @property
    def sign(self) -> int:
        """-1 if ``name`` is clearly better, 1 if it is clearly worse, otherwise 0."""
        if not self.clear:
            return 0
        return -1 if (self.high < 0.0) != (self.metric in LARGER) else 1


@dataclass(frozen=True)
class MetricInterval:
    """A metric of a contender, of its draw (`drawn`) or of raw, after the warm-up, with its 95 % interval."""

    name: str
    metric: str
    value: float
    low: float
    high: float


def drawn(name: str) -> str:
    """Return the name of a contender's draw."""
    return f"{name}, draw"


@dataclass(frozen=True)
class Bootstrap:
    """How intervals were made: ``resamples`` times, from circular blocks of ``block`` resolved forecasts in a row."""

    block: int
    #: Blocks begin at multiples of this.
    step: int
    resamples: int
    #: Seed of the draws.
    seed: int


@dataclass(frozen=True)
class Result:
    """Everything about a replay."""

    #: Version of trueup.
    version: str
    #: Twelve hex digits that name the replay: a hash of sources and options. It is also in the header ``trueup-replay``
    #: of records that go to a topic.
    run: str
    #: The input, as `replay --manifest` writes it.
    manifest: Mapping[str, Any]
    #: Assumptions made in reading a table, in sentences.
    taken: Sequence[str]
    #: Records read from both topics, dead ones included.
    records: int
    #: Smallest and largest timestamp of a record; None without records.
    start_ms: int | None
    end_ms: int | None
    #: Records of each topic, dead ones included.
    read: Mapping[str, int]
    #: Records that could not be used, by topic and reason (`streams.records.decoding.REASONS`).
    dead: Mapping[str, Mapping[str, int]]
    #: Records of each topic whose time is before that of an earlier record in their partition. They are played in
    #: place, as in a worker. If a file has many, it was not sorted.
    out_of_order: Mapping[str, int]
    #: In the order of the command line.
    contenders: Sequence[Contender]
    #: The volume of `Scorecard.recall`, a share of the forecasts.
    volume: float
    #: Differences after the warm-up: every contender and its draw against raw, then every pair. None with fewer than
    #: 200 resolved forecasts. A pair is compared only if both resolved the same forecasts.
    differences: Sequence[MetricDifference]
    #: Differences of every contender to raw in its own warm-up; none with fewer than 200 resolved forecasts.
    warming: Sequence[MetricDifference]
    #: Each metric of `COMPARED`, for raw, every contender and its draw.
    intervals: Sequence[MetricInterval]
    #: Differences for each stream of classes or numbers, in ``brier`` and ``log_loss`` or in ``pinball``: every
    #: contender against raw, and against each earlier contender that serves the same classes or levels. None with fewer
    #: than 200 resolved forecasts.
    vector_differences: Mapping[str, Sequence[MetricDifference]]
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
class ReplayPace:
    """The speed of a replay: wall-clock seconds, processes, and records a second over all processes."""

    seconds: float
    processes: int
    records_per_s: float


def _plain(value: Any) -> Any:  # noqa: ANN401 - any part of a result
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
