"""Measures of forecasts and outcomes in columns. Definitions are those of `state.scoring.scores`, over arrays."""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from replay.figures import BandCoverage, Caught, Delays, Late, OutcomeAges, Scorecard
from replay.ranking import Moments, ranks
from state.arrays import Floats, Integers
from state.scoring.cells import BINS, COARSE, EDGES, FINE, WITHIN
from state.scoring.certificate import certificate
from state.scoring.losses import LOG_CLIP
from state.scoring.ranking import VOLUMES, Ranking
from state.scoring.two_bin import two_bin_of

#: A band cannot be judged if it has at least this many forecasts, but a smaller share than this of them has outcomes.
FEWEST, SHARE = 50, 0.5

#: The volume of `Scorecard.recall`, unless a different one is asked for.
VOLUME = 0.02

#: From this share of records out of time order on, there is a warning.
UNSORTED = 0.01

_S, _M, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
#: Edges of the histogram of delays, ms.
_EDGES = (
    0,
    *(n * _S for n in (1, 2, 5, 10, 20, 30)),
    *(n * _M for n in (1, 2, 5, 10, 20, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 3, 7, 14, 30, 60, 90, 180, 365)),
)


def chance(n: float, rate: float, spread: float) -> float:
    """Return half the 95 % interval, by chance, of the share of n events that happens.

    ``rate``: the share that happened.
    ``spread``: Σp(1 − p) of what was served.
    """
    return 1.96 * sqrt(max(spread, n * rate * (1.0 - rate))) / n


def bins_of(p: Floats) -> Integers:
    """Return the bin of each forecast, [n], as in `Scores`: tenths, with 1.0 in the last."""
    return np.where(p < 1.0 / BINS, 0, np.minimum((p * BINS).astype(np.int64), BINS - 1))


def log_losses(p: Floats, y: Floats) -> Floats:
    """Return the log loss of each forecast in nats, [n]; outcomes 0 or 1."""
    clipped = np.clip(p, LOG_CLIP, 1.0 - LOG_CLIP)
    return np.where(y == 1.0, -np.log(clipped), -np.log1p(-clipped))


@dataclass(frozen=True)
class BinSums:
    """Sums of n forecasts in ten bins, [10] each: events, Σp, Σy, Σp², Σpy."""

    n: Floats
    p: Floats
    y: Floats
    pp: Floats
    py: Floats

    @classmethod
    def of(cls, p: Floats, y: Floats) -> "BinSums":
        """Sum up forecasts and outcomes, [n] each."""
        index = bins_of(p)

        def total(weights: Floats | None) -> Floats:
            return np.bincount(index, weights, BINS).astype(np.float64)

        return cls(total(None), total(p), total(y), total(p * p), total(p * y))

    @property
    def ece(self) -> float:
        """Expected calibration error; NaN without events."""
        return _mean(float(np.abs(self.p - self.y).sum()), float(self.n.sum()))

    @property
    def noise(self) -> float:
        """The ``ece`` expected by chance alone."""
        spread = np.sqrt(2.0 / np.pi * np.maximum(self.p - self.pp, 0.0))
        return _mean(float(spread.sum()), float(self.n.sum()))

    @property
    def smooth(self) -> float:
        """The calibration error under hat weights."""
        return _mean(float(np.abs(knots(self.p - self.y, self.pp - self.py)).sum()), float(self.n.sum()))


def knots(off: Floats, moment: Floats) -> Floats:
    """Return Σ w_k(p)(p - y) for the hats w_k at k/10, [..., 11].

    From Σ(p - y) and Σp(p - y) of the bins, [..., 10].
    """
    right = BINS * moment - np.arange(BINS) * off
    found = np.zeros((*off.shape[:-1], BINS + 1))
    found[..., :-1] += off - right
    found[..., 1:] += right
    return found


class Errors(NamedTuple):
    """Scores of forecasts: ECE in ten bins, Brier score, log loss in nats."""

    ece: float
    brier: float
    log_loss: float


def errors(p: Floats, y: Floats) -> Errors:
    """Score forecasts in [0, 1] against outcomes in {0, 1}, [n] each; NaN if there are none."""
    n = len(p)
    brier, log_loss = float(np.square(p - y).sum()), float(log_losses(p, y).sum())
    return Errors(BinSums.of(p, y).ece, _mean(brier, n), _mean(log_loss, n))


def scorecard(
    p: Floats, y: Floats, worst: float | None, volume: float = VOLUME, moments: Moments | None = None
) -> Scorecard:
    """Score forecasts against outcomes in {0, 1}, [n] each.

    ``volume``: the volume of `Scorecard.recall`.
    ``moments``: windows within which forecasts are ranked; None: a single window.
    """
    n = len(p)
    sums = BinSums.of(p, y)
    mean, rate = _mean(float(p.sum()), n), _mean(float(y.sum()), n)
    cells, ranking = np.searchsorted(EDGES, p, side="right"), ranked(p, y)
    off = np.bincount(np.array(WITHIN)[cells], p - y, len(COARSE) + 1).astype(np.float64)
    zeros, ones = (np.array(each, np.float64) for each in (ranking.zeros, ranking.ones))
    found = two_bin_of(zeros, ones, off, float((p * (1.0 - p)).sum()))
    order = ranks(p, y, tuple(dict.fromkeys((volume, *VOLUMES))), moments)
    return Scorecard(
        n=n,
        ece=sums.ece,
        ece_noise=sums.noise,
        ece_smooth=sums.smooth,
        certificate=certificate(ranking),
        two_bin=found.value,
        two_bin_noise=found.noise,
        two_bin_error=found.error,
        worst_window_ece=worst,
        brier=_mean(float(np.square(p - y).sum()), n),
        log_loss=_mean(float(log_losses(p, y).sum()), n),
        misclassification=_mean(float(np.where(p >= 0.5, 1.0 - y, y).sum()), n),
        mean_forecast=mean,
        base_rate=rate,
        relative_error=mean / rate - 1.0 if rate > 0 else float("nan"),
        auc=order.auc,
        ks=order.ks,
        recall=order.recall[volume],
        precision=order.precision[volume],
        caught=[Caught(each, order.recall[each], order.precision[each]) for each in VOLUMES],
        distinct=len(np.unique(p)),
    )


def ranked(p: Floats, y: Floats) -> Ranking:
    """Return the events by outcome and by fine cell of the forecast."""
    cells = np.searchsorted(EDGES, p, side="right")
    return Ranking(*(np.bincount(cells[y == label], minlength=FINE).tolist() for label in (0, 1)))


def delays(took: Integers) -> Delays:
    """Return the distribution of the outcomes' delays, [n] ms."""
    if not len(took):
        return Delays((0, _S), (0,), None, None, None)
    least, most = int(took.min()), int(took.max())
    first = max((edge for edge in _EDGES if edge <= least), default=least)
    last = next((edge for edge in _EDGES if edge > most), most + 1)
    edges = [first, *(edge for edge in _EDGES if least < edge <= most), last]
    counts = np.bincount(np.searchsorted(edges, took, side="right") - 1, minlength=len(edges) - 1)
    median, p90, p99 = (float(q) for q in np.quantile(took, (0.5, 0.9, 0.99)))
    return Delays(tuple(edges), tuple(int(n) for n in counts), median, p90, p99)


def ages(took: Integers, y: Floats) -> list[OutcomeAges]:
    """Return how long outcomes took, [n] ms, by label, [n]: of 0 and of 1, if there are any."""
    return [ages_of(label, mine) for label in (0, 1) if len(mine := took[y == label])]


def ages_of(label: float, took: Integers) -> OutcomeAges:
    """Return how long the outcomes of a label took, [n] ms, at least one."""
    return OutcomeAges(label, len(took), *(float(q) for q in np.quantile(took, (0.5, 0.99, 1.0))))


def late(took: Integers, missed: Integers, expired: int, ttl_ms: int) -> Late:
    """Compare the delays of outcomes, ms, [n], and of outcomes of expired forecasts, [m], with the ttl."""
    every = np.concatenate((took, missed))
    if not len(every):
        return Late(0, 0, float("nan"), None, None, expired)
    p99, largest = (float(q) for q in np.quantile(every, (0.99, 1.0)))
    return Late(len(every), len(missed), float(np.mean(every > ttl_ms)), p99, largest, expired)


def coverage(issued: Floats, resolved: Floats) -> list[BandCoverage]:
    """Return the label coverage by band, from the raw scores of all forecasts, [n], and of resolved ones, [m]."""
    every = np.bincount(bins_of(issued), minlength=BINS)
    known = np.bincount(bins_of(resolved), minlength=BINS)
    found = []
    for i in range(BINS):
        n, m = int(every[i]), int(known[i])
        share = _mean(m, n)
        found.append(BandCoverage(i / BINS, (i + 1) / BINS, n, m, share, identifiable=n < FEWEST or share >= SHARE))
    return found


def _mean(total: float, n: float) -> float:
    return total / n if n else float("nan")
