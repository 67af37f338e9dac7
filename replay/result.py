"""What a replay found: plain values, for the terminal, for JSON, and for a report.

A `Result` is a function of the records and the options alone. Nothing in it depends on the clock or the number of
processes: the same replay gives the same bytes of `Result.encode`. Its `ReplayPace` is no part of it.

A comment is of the fields below it, up to the next one.

Where to look: ``result.contenders[i].overall`` is what a report shows first; ``.streams`` the same for each stream;
``result.differences`` says which of two contenders is better and how sure that is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from replay import figures
from replay.figures import Kind

#: The name of raw forecasts where contenders are named.
RAW = "raw"

#: Metrics that differences are given for.
COMPARED = ("ece", "ece_smooth", "brier", "log_loss", "auc", "recall")
#: Those of them that are better when larger; all others are when smaller.
LARGER = frozenset({"auc", "recall"})


@dataclass(frozen=True)
class Scored:
    """The figures of one contender for one stream, or for all streams of probabilities."""

    #: Its name; ``*`` for all.
    stream: str
    #: Forecasts answered; ``raw.n`` of them have an outcome that counts, and so many one that taught nothing.
    issued: int
    untaught: int
    #: Their scores, over the same resolved forecasts; ``draw`` is None where nothing is drawn.
    raw: figures.Scorecard
    calibrated: figures.Scorecard
    draw: figures.Scorecard | None
    #: Scores of the warm-up, and of what came after it: the choice rests on these.
    warmup: figures.Phase
    settled: figures.Phase
    #: Σ loss calibrated − Σ loss raw; below 0 is better than raw.
    regret_brier: float
    regret_log: float
    #: Own error and the theorem's bound at the end, as `Window.error` and `Window.bound`; None without.
    l1: float | None
    bound: float | None
    #: At most 60, in time order; none below 40 resolved forecasts.
    windows: Sequence[figures.ScoredWindow]
    #: By kind; None before the first complete window.
    worst: Mapping[figures.Kind, figures.WorstWindow | None]
    delays: figures.Delays
    #: Of the labels that were seen.
    ages: Sequence[figures.OutcomeAges]
    #: Labels that silence gave, and those of them that an outcome has replaced since.
    implied: int
    reversed: int
    #: Of its configuration; the shortest ttl and the longest maturity of all streams together.
    ttl_ms: int
    matures_ms: int
    coverage: Sequence[figures.BandCoverage]
    #: Empty for streams without.
    features: Sequence[figures.FeatureBias]
    #: Of the forecasts after its own warm-up.
    review: figures.Review
    #: None for all streams together.
    late: figures.Late | None = None
    #: Of a stream with segments: what `streams.metrics.segments.describe` returns. None without segments, and for all
    #: streams together.
    segments: Mapping[str, Any] | None = None
    #: The nearest to its bound first; empty where the calibrator bounds none, and for all streams together.
    functions: Sequence[figures.FunctionBias] = ()
    #: Of a stream whose model has versions: what `streams.metrics.versions.describe` returns of the first
    #: configuration. Empty without, and for all streams together.
    versions: Sequence[Mapping[str, Any]] = ()
    #: Of a stream with bands: what `replay.bands.described` returns, over all forecasts. None without, and for all
    #: streams together.
    bands: Mapping[str, Any] | None = None
    #: Of a stream with intervals: what `replay.intervals.described` returns of the first configuration. None likewise.
    intervals: Mapping[str, Any] | None = None
    #: Of a stream with weights: what `streams.metrics.weights.describe` returns, over all labels. None likewise.
    weighted: Mapping[str, Any] | None = None

    @property
    def judged(self) -> figures.Phase:
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
    """One configuration."""

    #: As given on the command line. Unique.
    name: str
    #: Name of the calibrator of each stream that was seen.
    calibrators: Mapping[str, str]
    #: The hash of each stream's configuration, as in calibrated records; of forecasts that name a version of the model
    #: it is in ``versions``.
    configs: Mapping[str, str]
    #: What each of the hashes stands for: calibrator, every option, seed and features (`state.policy.Policy.recipe`).
    recipes: Mapping[str, str]
    #: Records and rows by `state.fence.FATES`, all partitions together; they add up as `state.fence.Fence` says.
    fates: Mapping[str, int]
    #: Forecasts that still wait for an outcome at the end, and outcomes that wait for a forecast.
    pending: int
    early: int
    #: Forecasts that are younger at the end than the age at which they mature; some have an outcome.
    immature: int
    #: Forecasts whose outcome taught nothing (`state.ledger.UNTAUGHT`): it is in no figure but ``Scored.weighted``
    #: and, by its chance, ``Scored.bands``.
    untaught: int
    #: All streams of probabilities together; None if there are none.
    overall: Scored | None
    #: Share of neighbours in time whose order was changed although one map answered them, of probabilities after the
    #: warm-up (`replay.ranking.turned`). NaN without any.
    turned: float
    #: Each stream by name, the 200 with most forecasts; those of classes and numbers in ``vectors``.
    streams: Mapping[str, Scored]
    vectors: Mapping[str, Vectors]
    #: By stream whose model has versions: the hash of each version's configuration.
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class MetricDifference:
    """A metric of ``name`` minus that of ``against``, on the same resolved forecasts, over all streams."""

    #: Contenders, or their draws (`drawn`); ``against`` may be ``raw``.
    name: str
    against: str
    #: One of `COMPARED`; of numbers ``pinball``.
    metric: str
    #: The difference and its 95 % interval. ``name`` is better where it is below 0 throughout, or above for `LARGER`.
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
class MetricInterval:
    """A metric of a contender, of its draw (`drawn`) or of raw, after the warm-up, with its 95 % interval."""

    name: str
    metric: str
    value: float
    low: float
    high: float


def drawn(name: str) -> str:
    """Return what a contender's draw is called among differences."""
    return f"{name}, draw"


@dataclass(frozen=True)
class Bootstrap:
    """How the intervals were made: circular blocks of ``block`` resolved forecasts in a row, ``resamples`` times."""

    block: int
    #: Blocks begin at multiples of this.
    step: int
    resamples: int
    #: Of the drawing.
    seed: int


@dataclass(frozen=True)
class Result:
    """All of a replay."""

    #: Of trueup.
    version: str
    #: Twelve hex digits that name the replay: a hash of sources and options. Also in the header ``trueup-replay`` of
    #: records that go to a topic.
    run: str
    #: What was read, as `replay --manifest` writes it down.
    manifest: Mapping[str, Any]
    #: How a table was read where it leaves a choice, in sentences.
    taken: Sequence[str]
    #: Read in all, of both topics, dead ones included.
    records: int
    #: Smallest and largest timestamp of a record; None without records.
    start_ms: int | None
    end_ms: int | None
    #: Records of each topic, dead ones included.
    read: Mapping[str, int]
    #: Records that could not be used, by topic and reason (`streams.records.decoding.REASONS`).
    dead: Mapping[str, Mapping[str, int]]
    #: Records of each topic whose time is before that of an earlier record of their partition. They are played where
    #: they stand, as a worker does; many of them in a file mean that it was not sorted.
    out_of_order: Mapping[str, int]
    #: In the order of the command line.
    contenders: Sequence[Contender]
    #: Share of the forecasts that `Scorecard.recall` is of.
    volume: float
    #: Every contender and its draw against raw, then every pair, after the warm-up; none below 200 resolved forecasts.
    #: A pair is compared only where both resolved the same forecasts.
    differences: Sequence[MetricDifference]
    #: Every contender against raw in its own warm-up; none below 200 resolved forecasts.
    warming: Sequence[MetricDifference]
    #: Of each metric of `COMPARED`, of raw, every contender and its draw.
    intervals: Sequence[MetricInterval]
    #: By stream of classes or numbers: every contender against raw, and against each before it that serves the same
    #: classes or levels, in ``brier`` and ``log_loss`` or in ``pinball``; none below 200 resolved forecasts.
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
    """How fast a replay went: wall-clock seconds of the pass, processes, and records a second of all together."""

    seconds: float
    processes: int
    records_per_s: float


def _plain(value: Any) -> Any:  # noqa: ANN401 - any part of a result
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
