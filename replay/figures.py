"""The figures in a replay's result. A comment is about the fields below it, up to the next comment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

#: What is scored: raw forecasts, or a contender's deterministic ``p``.
Kind = Literal["raw", "calibrated"]


@dataclass(frozen=True)
class Scorecard:
    """Scores of one kind of resolved forecasts. NaN if there are no events."""

    #: Resolved forecasts.
    n: int
    #: Expected calibration error in ten bins of width .1, in [0, 1] (`state.scoring.scores.Scores.error`).
    ece: float
    #: The ``ece`` expected by chance if every forecast were the true probability. With ``n`` forecasts, an ``ece`` near
    #: it cannot be distinguished from perfect.
    ece_noise: float
    #: The ``ece`` with hat weights (`state.scoring.scores.Scores.smooth_ece`), so that it does not jump at bin edges.
    ece_smooth: float
    #: Bound on the distance to calibration (`state.scoring.certificate`), from 0 up.
    certificate: float
    #: The averaged two-bin calibration error, squared; what chance alone gives; and an upper bound on the standard
    #: error (`state.scoring.two_bin`).
    two_bin: float
    two_bin_noise: float
    two_bin_error: float
    #: Largest ``ece`` of a full window of 5,000 outcomes on one partition, as in a worker; None before the first.
    worst_window_ece: float | None
    #: Mean Brier score; mean log loss in nats, with forecasts clipped to [1e-6, 1 - 1e-6].
    brier: float
    log_loss: float
    #: Share of forecasts that lie on the wrong side of 1/2.
    misclassification: float
    #: Means of forecasts and of outcomes.
    mean_forecast: float
    base_rate: float
    #: mean_forecast / base_rate - 1: .5 is half too high, whatever the rate is. NaN without ones.
    relative_error: float
    #: Ranking of the forecasts: the share of pairs of a one and a zero that are in order; and the largest distance
    #: between the distributions of both. Only forecasts of one window are compared, about 200 neighbours in time that
    #: one calibrator answered (`replay.ranking.windows`), because maps at other times have another scale. Equal raw
    #: forecasts of one window count as served alike. NaN if no window has both.
    auc: float
    ks: float
    #: Recall and precision of the highest forecasts of each window, as many as the replay's volume says.
    recall: float
    precision: float
    #: The same, at several volumes.
    caught: Sequence["Caught"]
    #: Number of different forecasts.
    distinct: int


@dataclass(frozen=True)
class Caught:
    """The share ``volume`` of highest forecasts: their recall and precision (`Scorecard.recall`)."""

    volume: float
    recall: float
    precision: float


@dataclass(frozen=True)
class Told:
    """Outcomes that taught nothing, of forecasts after the warm-up: they are in no other score."""

    #: Outcomes.
    n: int
    #: Means of outcomes, and of forecasts by kind.
    base_rate: float
    mean: Mapping[Kind, float]
    #: Mean log loss by kind, as `Scorecard.log_loss`.
    log_loss: Mapping[Kind, float]


@dataclass(frozen=True)
class Phase:
    """A part of the history that is scored by itself.

    `state.served.Served.warms` decides which forecasts belong to the warm-up of a contender. The next phase begins when
    the warm-ups of all contenders have ended, so that all are scored on the same forecasts.
    """

    #: Number of forecasts; and of those with an outcome.
    issued: int
    resolved: int
    #: Times of the first and the last forecast, ms since the epoch; None without forecasts.
    start_ms: int | None
    end_ms: int | None
    #: Scores. ``draw`` is None if nothing is drawn.
    raw: Scorecard
    calibrated: Scorecard
    draw: Scorecard | None


@dataclass(frozen=True)
class ScoredWindow:
    """Consecutive forecasts in the order of resolution. All windows of a series have the same size, +-1."""

    #: Times at which its first and last forecast were resolved, ms since the epoch.
    start_ms: int
    end_ms: int
    #: Forecasts.
    n: int
    #: Means of outcomes and of forecasts of the window. They show drift of the base rate, and who follows it.
    base_rate: float
    mean_raw: float
    mean_calibrated: float
    #: ECE of the window. ``ece_noise`` is what chance alone gives for the calibrated forecasts.
    ece_raw: float
    ece_calibrated: float
    ece_noise: float
    #: Σ Brier calibrated − Σ Brier raw, from the beginning up to the end of this window; below 0 is better than raw.
    regret_brier: float
    #: The calibrators' own error up to ``end_ms`` and the theorem's bound on it, as means over partitions weighted by
    #: outcomes learnt; see `state.calibrators.base.Recalibrator.error`. None if no calibrator has them. They are
    #: cumulative, and over the calibrator's own points or cells. So compare them with each other, not with ``ece``.
    error: float | None
    bound: float | None


@dataclass(frozen=True)
class WorstWindow:
    """The window of `Scorecard.worst_window_ece`: windows do not overlap, and the last one counts only if full."""

    #: Stream of the window.
    stream: str
    #: Times at which its first and last forecast were resolved, ms since the epoch.
    start_ms: int
    end_ms: int
    #: Forecasts.
    n: int
    #: ECE of the window. ``ece_noise`` is what chance alone gives for one window, not for the worst of many.
    ece: float
    ece_noise: float
    #: Means of forecasts and of outcomes.
    mean_forecast: float
    base_rate: float


@dataclass(frozen=True)
class Delays:
    """How long outcomes took: ``counts[i]`` of them from ``edges_ms[i]`` up to ``edges_ms[i + 1]``; and quantiles.

    The first edge may be negative, because an outcome's time may be before its forecast's.
    """

    #: len(counts) + 1 increasing edges; they grow roughly in steps of 1, 2, 5.
    edges_ms: tuple[int, ...]
    #: Numbers of resolved forecasts.
    counts: tuple[int, ...]
    #: Quantiles, linearly interpolated; None without resolved forecasts.
    median_ms: float | None
    p90_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class OutcomeAges:
    """How long the outcomes of one label took."""

    label: float
    #: Outcomes.
    n: int
    #: Quantiles of the time from forecast to outcome, linearly interpolated.
    median_ms: float
    p99_ms: float
    largest_ms: float


@dataclass(frozen=True)
class Late:
    """The delays of a stream's reported outcomes, compared with its ``ttl``."""

    #: Outcomes that came in time, plus outcomes whose forecast had expired (only of the first 300,000 forecasts that
    #: expire on a partition).
    outcomes: int
    #: Outcomes whose forecast had expired. They were not learnt.
    missed: int
    #: Share of the outcomes that took longer than the ttl; NaN without outcomes.
    share: float
    #: Quantiles of the time from forecast to outcome, linearly interpolated; None without outcomes.
    p99_ms: float | None
    largest_ms: float | None
    #: Forecasts that expired without an outcome.
    expired: int


@dataclass(frozen=True)
class BandCoverage:
    """How many forecasts in one band of the raw score got an outcome within the replay."""

    #: The band: ``low <= raw < high``, and 1.0 in the last.
    low: float
    high: float
    #: Number of forecasts; and of those with an outcome.
    issued: int
    resolved: int
    #: resolved / issued; NaN if none was issued.
    share: float
    #: False if the band has at least 50 forecasts and fewer than half of them have an outcome. Then no metric describes
    #: it: its calibration rests on the forecasts that happened to get a label. Warn, and name the band.
    identifiable: bool


@dataclass(frozen=True)
class FeatureBias:
    """Σx(p − y) / sqrt(n Σx²) along one feature, in [-1, 1], for both kinds; 0 is unbiased (`state.scoring.bias`)."""

    feature: str
    raw: float
    calibrated: float


@dataclass(frozen=True)
class FunctionBias:
    """Mean of f (p - y) along one test function f of the calibrator, and its bound.

    Most test functions are features.
    """

    function: str
    bias: float
    bound: float


@dataclass(frozen=True)
class Fit:
    """Intercept and slope of outcomes on the log-odds of forecasts: 0 and 1 if calibrated; NaN without a fit."""

    intercept: float
    slope: float


@dataclass(frozen=True)
class Month:
    """Forecasts of a calendar month (UTC) that have an outcome: means, and ``shift``, the PSI of raw against month one.

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
    """The cut-off above which the highest forecasts of a volume lie."""

    #: Share of the forecasts above the cut-off, in (0, 1).
    volume: float
    #: The cut-offs. They and all figures below are about the last quarter of the forecasts.
    raw: float
    calibrated: float
    #: The same share of the forecasts that have an outcome, the highest by each kind, and the ones among them. Where
    #: labels are sampled more often from high scores, more than these lie above the cut-off.
    n: int
    raw_hits: int
    calibrated_hits: int
    #: All ones. Those below the cut-off are missed.
    ones: int


@dataclass(frozen=True)
class Review:
    """Figures for a review, of the forecasts after the warm-up, see `replay.review`."""

    #: Bins of equal weight, by kind (`state.scoring.ranking.Ranking.bins`).
    quantiles: Mapping[Kind, Sequence[Mapping[str, float]]]
    #: See `Fit`, `Month` and `Cut`.
    fits: Mapping[Kind, Fit]
    months: Sequence[Month]
    cuts: Sequence[Cut]
    #: Rounded raw scores, each with the score served for it at the end.
    lookup: Sequence[tuple[float, float]]
