"""Paired moving-block bootstrap: how far a difference between two forecasters may be chance.

Forecasts near one another in time share weather, fashion and drift, so they are drawn in blocks of neighbours; all
contenders are drawn together, so what they share cancels.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from replay.measure import VOLUME, bins_of, knots, log_losses, parts, scorecard
from replay.ranking import Buckets, of_equals
from replay.result import COMPARED, RAW, Bootstrap, Difference
from state.arrays import Floats
from state.scoring.scores import BINS

#: Cells a block is made of. Blocks begin at cells' edges, so only cells' sums are kept, however long the history.
CELLS = 8
RESAMPLES = 1000
SEED = 20_130_201
#: Below so many resolved forecasts an interval would say more than the data.
FEWEST = 200
#: Where days share luck, blocks of one day miss a third of its variance: of this many days, a ninth.
DAYS = 3
#: There are at least so many blocks: fewer would say little of how blocks differ.
BLOCKS = 10
#: Resamples drawn at once: bounds memory.
_AT_ONCE = 100
#: The 97.5 % quantile of the normal distribution.
_NORMAL = 1.959964


def plan(n: int, span_ms: int, block: int | None = None, resamples: int = RESAMPLES) -> Bootstrap | None:
    """Say how intervals of ``n`` forecasts in a row are made; None where there are too few.

    Parameters
    ----------
    n
        Resolved forecasts.
    span_ms
        Time they took, ms.
    block
        Length of a block; None takes the larger of √n and `DAYS` days' forecasts, and at most n / `BLOCKS`.
    """
    if n < FEWEST:
        return None
    if block is None:
        days = DAYS * n * 86_400_000 / span_ms if span_ms > 0 else 0.0
        block = min(math.ceil(max(math.sqrt(n), days)), n // BLOCKS)
    step = max(1, min(block, n // 2) // CELLS)
    return Bootstrap(step * CELLS, step, resamples, SEED)


class Resampled:
    """Metrics of several forecasters on the same forecasts, whole and resampled together.

    Parameters
    ----------
    how
        See `plan`.
    y
        Outcomes in time order, [n].
    forecasts
        By name, [n] each.
    volume
        Of the recall, as `Scorecard.recall`.

    Notes
    -----
    A resample draws ceil(n / block) blocks of `CELLS` cells with replacement, from all that begin at a cell's edge; the
    cells at both ends come up less often, as in any moving-block bootstrap (Künsch 1989, *The Jackknife and the
    Bootstrap for General Stationary Observations*, section 2.3). The last cell may be short; a resample's scores are
    divided by the forecasts it holds. Its ranks are those of buckets of forecasts, within the tenths that its cells are
    from (`replay.ranking`); the value itself is exact.

    Intervals are from the 2.5 % to the 97.5 % quantile, less the mean's distance from the value: a resample's ECE is
    larger than its sample's, most where it is small, and without that the better calibrated one would look worse. Both
    ends are moved away from the value by the ratio of Student's quantile to the normal one, for few blocks say little
    of how blocks differ. The interval always holds the value: where few resamples differ at all, the mean's distance
    alone would leave it outside.
    """

    def __init__(self, how: Bootstrap, y: Floats, forecasts: Mapping[str, Floats], volume: float = VOLUME) -> None:
        n = len(y)
        starts = np.arange(0, n, how.step)
        lengths = np.diff([*starts, n]).astype(np.float64)
        sums = {name: _cells(p, y, starts) for name, p in forecasts.items()}
        ranked = {name: _Ranked(p, y, starts, volume) for name, p in forecasts.items()}
        rng = np.random.default_rng(how.seed)
        last = max(1, len(starts) - CELLS + 1)
        blocks = math.ceil(n / how.block)
        drawn: dict[str, list[Floats]] = {name: [] for name in forecasts}
        for at in range(0, how.resamples, _AT_ONCE):
            chosen = rng.integers(last, size=(min(_AT_ONCE, how.resamples - at), blocks))
            weights = np.zeros((len(chosen), len(starts)))
            for offset in range(min(CELLS, len(starts))):
                for row, picks in enumerate(chosen):
                    weights[row] += np.bincount(picks + offset, minlength=len(starts))
            total = weights @ lengths
            for name, cells in sums.items():
                found = _metrics(weights @ cells, total), ranked[name].measured(weights)
                drawn[name].append(np.column_stack(found))
        self._wider = _student(n / how.block - 1) / _NORMAL
        self._drawn = {name: np.concatenate(found) for name, found in drawn.items()}
        self._whole = {}
        for name, cells in sums.items():
            means = _metrics(cells.sum(axis=0, keepdims=True), np.array([float(n)]))[0]
            card = scorecard(forecasts[name], y, None, volume)
            self._whole[name] = np.append(means, [card.auc, card.recall])
        raw = forecasts.get(RAW)
        self._of_equals = {name: 0.0 if raw is None else _of_equals(raw, p, y) for name, p in forecasts.items()}

    def differences(self, pairs: Sequence[tuple[str, str]]) -> list[Difference]:
        """Return the differences of every metric of `COMPARED` for each pair of a name and what it is compared with."""
        found = []
        for name, against in pairs:
            value = self._whole[name] - self._whole[against]
            ends = self._ends(value, self._drawn[name] - self._drawn[against])
            of_equals = {"auc": self._of_equals[name] - self._of_equals[against]}
            found += [
                Difference(name, against, metric, by, low, high, of_equals.get(metric, 0.0))
                for metric, by, low, high in zip(COMPARED, value.tolist(), *ends, strict=True)
            ]
        return found

    def intervals(self, name: str) -> list[tuple[str, float, float, float]]:
        """Return each metric of `COMPARED` with its value and its interval."""
        value = self._whole[name]
        return list(zip(COMPARED, value.tolist(), *self._ends(value, self._drawn[name]), strict=True))

    def _ends(self, value: Floats, moved: Floats) -> list[list[float]]:
        """Return lower and upper ends of values' intervals, [metrics] each; ``moved`` is [resamples, metrics]."""
        with np.errstate(invalid="ignore"):
            low, high = self._wider * (np.quantile(moved, (0.025, 0.975), axis=0) - moved.mean(axis=0)) + value
        return [np.minimum(low, value).tolist(), np.maximum(high, value).tolist()]


def _student(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's distribution, less than 2 % short from 4 degrees of freedom.

    See Abramowitz and Stegun 1964, *Handbook of Mathematical Functions*, 26.7.5.
    """
    z, nu = _NORMAL, max(freedom, 1.0)
    return z + (z**3 + z) / (4 * nu) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * nu**2)


class _Ranked:
    """The ranks of one forecaster in each tenth of the history, for any weighting of the cells."""

    def __init__(self, p: Floats, y: Floats, starts: NDArray[np.int64], volume: float) -> None:
        self._volume = volume
        edges = np.append(starts, len(y))
        self._parts = []
        for first, last in parts(len(starts)):
            at = slice(edges[first], edges[last])
            cell = np.repeat(np.arange(last - first), np.diff(edges[first : last + 1]))
            ones = np.bincount(cell, y[at], last - first)
            self._parts.append((slice(first, last), ones, Buckets(p[at], y[at], cell, last - first)))

    def measured(self, weights: Floats) -> Floats:
        """Return AUC and recall of each resample, [resamples, 2], from the cells' weights, [resamples, cells]."""
        total, found = np.zeros(len(weights)), np.zeros((2, len(weights)))
        for cells, ones, buckets in self._parts:
            mine = weights[:, cells]
            both = np.array(buckets.measured(mine, self._volume))
            counted = np.where(np.isnan(both).any(axis=0), 0.0, mine @ ones)
            total += counted
            found += counted * np.nan_to_num(both)
        with np.errstate(invalid="ignore"):
            measured: Floats = (found / total).T
        return measured


def _of_equals(raw: Floats, p: Floats, y: Floats) -> float:
    """Return `replay.ranking.of_equals` within tenths, weighted by ones as `Scorecard.auc`."""
    total = found = 0.0
    for start, end in parts(len(y)):
        ones = float(y[start:end].sum())
        if 0.0 < ones < end - start:
            total += ones
            found += ones * of_equals(raw[start:end], p[start:end], y[start:end])
    return found / total if total else 0.0


def _cells(p: Floats, y: Floats, starts: NDArray[np.int64]) -> Floats:
    """Return of each cell Σ(p - y) and Σp(p - y) in ten bins, Σ Brier and Σ log loss, [cells, 22]."""
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
