"""Paired circular block bootstrap: intervals for differences between forecasters.

Forecasts that are near in time share conditions such as drift, so blocks of neighbours are drawn. All contenders share
the draws, so what they have in common cancels out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from replay.measure import VOLUME, bins_of, knots, log_losses
from replay.ranking import Moments, ranks
from replay.result import COMPARED, Bootstrap, MetricDifference
from state.arrays import Floats, Integers
from state.scoring.ages import DAY_MS
from state.scoring.cells import BINS

#: Cells of a block. Blocks begin at cell edges, so it is enough to keep sums of cells, however long the history is.
CELLS = 8
RESAMPLES = 1000
SEED = 20_130_201
#: With fewer resolved forecasts there is no interval.
FEWEST = 200
#: Days of a block. Forecasts of a day share luck: blocks of one day miss a third of the variance, blocks of three days
#: a ninth.
DAYS = 3
#: Fewest blocks. Fewer say little about how blocks differ.
BLOCKS = 10
#: Resamples drawn at once. It bounds memory.
_AT_ONCE = 100
#: The 97.5 % quantile of the normal distribution.
_NORMAL = 1.959964


def plan(times: Integers, block: int | None = None, resamples: int = RESAMPLES) -> Bootstrap | None:
    """Return the length of blocks and the number of resamples; None if there are too few forecasts.

    ``times``: of the resolved forecasts in order, ms, [n].
    ``block``: length of a block; None: the larger of √n and the forecasts of `DAYS` days (UTC) that have any, at most
    n / `BLOCKS`.
    """
    n = len(times)
    if n < FEWEST:
        return None
    if block is None:
        # Scores or labels that come in a batch a week share the luck of their batch: days without any do not count.
        took = min(int(times[-1] - times[0]), DAY_MS * len(np.unique(times // DAY_MS)))
        days = DAYS * n * DAY_MS / took if took > 0 else 0.0
        block = min(math.ceil(max(math.sqrt(n), days)), n // BLOCKS)
    step = max(1, min(block, n // 2) // CELLS)
    return Bootstrap(step * CELLS, step, resamples, SEED)


class Resampled:
    """Metrics of several forecasters on the same forecasts, whole and resampled together.

    ``y``: outcomes in time order, [n].
    ``forecasts``: by name, [n] each.
    ``volume``: volume of the recall, see `Scorecard.recall`.
    ``moments``: windows within which forecasts are ranked; None: one window.

    Notes
    -----
    A resample draws ceil(n / block) blocks of `CELLS` cells with replacement. Blocks begin at cell edges. Where the
    forecasts end, a block goes on at their beginning, so all cells are equally likely (Politis & Romano 1992, *A
    circular block-resampling procedure for stationary data*). Otherwise the last cells would hardly be drawn, and a
    warm-up differs from raw only there. The last cell may be short; a resample's scores are divided by its number of
    forecasts. Its ranking is that of all forecasts plus the first-order contributions of its events
    (`replay.ranking.Ranks.moves`; Efron and Tibshirani 1993, *An Introduction to the Bootstrap*, section 22.5).

    An interval runs from the 2.5 % to the 97.5 % quantile, minus the bias of the resamples' mean. A resample's ECE is
    larger than its sample's, most of all where that is small. Without the correction, the better calibrated forecaster
    would look worse. Both ends are scaled away from the value by the ratio of Student's quantile to the normal one,
    because there are few blocks. The interval always includes the value, because with few distinct resamples the
    correction alone could exclude it.
    """

    def __init__(
        self,
        how: Bootstrap,
        y: Floats,
        forecasts: Mapping[str, Floats],
        volume: float = VOLUME,
        moments: Moments | None = None,
    ) -> None:
        self.how, self._n = how, len(y)
        starts = _starts(how, len(y))
        sums = {name: _cells(p, y, starts) for name, p in forecasts.items()}
        ranked = {name: ranks(p, y, (volume,), moments) for name, p in forecasts.items()}
        moves = {name: np.add.reduceat(each.moves, starts) for name, each in ranked.items()}
        order = {name: np.array([each.auc, each.recall[volume]]) for name, each in ranked.items()}
        drawn: dict[str, list[Floats]] = {name: [] for name in forecasts}
        for weights, total in _resamples(how, len(y)):
            for name, cells in sums.items():
                order_drawn = order[name] + weights @ moves[name] * (len(y) / total)[:, None]
                drawn[name].append(np.column_stack((_metrics(weights @ cells, total), order_drawn)))
        self._drawn = {name: np.concatenate(found) for name, found in drawn.items()}
        self._whole = {
            name: np.append(_metrics(cells.sum(axis=0, keepdims=True), np.array([float(len(y))]))[0], order[name])
            for name, cells in sums.items()
        }

    def differences(self, pairs: Sequence[tuple[str, str]]) -> list[MetricDifference]:
        """Return the differences of every metric of `COMPARED` for each pair: a name and what it is compared with."""
        found = []
        for name, against in pairs:
            value = self._whole[name] - self._whole[against]
            ends = _ends(self.how, self._n, value, self._drawn[name] - self._drawn[against])
            found += [
                MetricDifference(name, against, metric, by, low, high)
                for metric, by, low, high in zip(COMPARED, value.tolist(), *ends, strict=True)
            ]
        return found

    def intervals(self, name: str) -> list[tuple[str, float, float, float]]:
        """Return the value and the interval of each metric of `COMPARED`."""
        value = self._whole[name]
        ends = _ends(self.how, self._n, value, self._drawn[name])
        return list(zip(COMPARED, value.tolist(), *ends, strict=True))


def means(how: Bootstrap, values: Floats) -> list[tuple[float, float, float]]:
    """Return the mean of each column, with the ends of its 95 % interval. ``values``: in time order, [n, k]."""
    cells = np.add.reduceat(values, _starts(how, len(values)))
    drawn = [weights @ cells / total[:, None] for weights, total in _resamples(how, len(values))]
    value = values.mean(axis=0)
    return list(zip(value.tolist(), *_ends(how, len(values), value, np.concatenate(drawn)), strict=True))


def _starts(how: Bootstrap, n: int) -> Integers:
    return np.arange(0, n, how.step)


def _resamples(how: Bootstrap, n: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield weights of the cells, [resamples, cells], and how many forecasts each resample has, [resamples]."""
    starts = _starts(how, n)
    lengths = np.diff([*starts, n]).astype(np.float64)
    rng = np.random.default_rng(how.seed)
    for at in range(0, how.resamples, _AT_ONCE):
        chosen = rng.integers(len(starts), size=(min(_AT_ONCE, how.resamples - at), math.ceil(n / how.block)))
        weights = np.zeros((len(chosen), len(starts)))
        for offset in range(min(CELLS, len(starts))):
            for row, picks in enumerate(chosen):
                weights[row] += np.bincount((picks + offset) % len(starts), minlength=len(starts))
        yield weights, weights @ lengths


def _ends(how: Bootstrap, n: int, value: Floats, moved: Floats) -> list[list[float]]:
    """Return the lower and upper ends of the values' intervals, [metrics] each; ``moved`` is [resamples, metrics]."""
    wider = _student(n / how.block - 1) / _NORMAL
    with np.errstate(invalid="ignore"):
        low, high = wider * (np.quantile(moved, (0.025, 0.975), axis=0) - moved.mean(axis=0)) + value
    return [np.minimum(low, value).tolist(), np.maximum(high, value).tolist()]


def _student(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's distribution, less than 2 % too small from 4 degrees of freedom on.

    See Abramowitz and Stegun 1964, *Handbook of Mathematical Functions*, 26.7.5.
    """
    z, nu = _NORMAL, max(freedom, 1.0)
    return z + (z**3 + z) / (4 * nu) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * nu**2)


def _cells(p: Floats, y: Floats, starts: Integers) -> Floats:
    """Return for each cell Σ(p - y) and Σp(p - y) in ten bins, Σ Brier and Σ log loss, [cells, 22]."""
    off = p - y
    cell = np.repeat(np.arange(len(starts)), np.diff([*starts, len(y)]))
    place = cell * BINS + bins_of(p)
    size = len(starts) * BINS
    return np.column_stack(
        [
            np.bincount(place, off, size).reshape(-1, BINS),
            np.bincount(place, p * off, size).reshape(-1, BINS),
            np.add.reduceat(off * off, starts),
            np.add.reduceat(log_losses(p, y), starts),
        ]
    )


def _metrics(sums: Floats, n: Floats) -> Floats:
    """Return those metrics of `COMPARED` that are means, [resamples, 4], from sums as `_cells` has them."""
    off, moment = sums[:, :BINS], sums[:, BINS : 2 * BINS]
    found = [np.abs(off).sum(axis=1), np.abs(knots(off, moment)).sum(axis=1), sums[:, -2], sums[:, -1]]
    return np.column_stack(found) / n[:, None]
