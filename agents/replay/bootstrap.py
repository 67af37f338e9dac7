"""Paired moving-block bootstrap: how far a difference between two forecasters may be chance.

Forecasts near one another in time share weather, fashion and drift, so they are drawn in blocks of neighbours; all
contenders are drawn together, so what they share cancels.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from agents.replay.measure import bins_of, knots, log_losses
from agents.replay.result import COMPARED, Bootstrap, Difference
from state.scores import BINS

Floats = NDArray[np.float64]

#: Cells a block is made of. Blocks begin at cells' edges, so only cells' sums are kept, however long the history.
CELLS = 8
RESAMPLES = 1000
SEED = 20_130_201
#: Below so many resolved forecasts an interval would say more than the data.
FEWEST = 200
#: Resamples drawn at once: bounds memory.
_AT_ONCE = 100


def plan(n: int, span_ms: int, block: int | None = None, resamples: int = RESAMPLES) -> Bootstrap | None:
    """Say how intervals of ``n`` forecasts in a row are made; None where there are too few.

    Parameters
    ----------
    n
        Resolved forecasts.
    span_ms
        Time they took, ms.
    block
        Length of a block; None takes the larger of √n and a day's forecasts, and at most n / 20.
    """
    if n < FEWEST:
        return None
    if block is None:
        day = n * 86_400_000 / span_ms if span_ms > 0 else 0.0
        block = min(math.ceil(max(math.sqrt(n), day)), n // 20)
    step = max(1, min(block, n // 2) // CELLS)
    return Bootstrap(step * CELLS, step, resamples, SEED)


def differences(
    how: Bootstrap, y: Floats, forecasts: Mapping[str, Floats], pairs: Sequence[tuple[str, str]]
) -> list[Difference]:
    """Return the differences of every metric of `COMPARED` for each pair of names.

    Parameters
    ----------
    y
        Outcomes in time order, [n].
    forecasts
        By name, [n] each.
    pairs
        A name and what it is compared with.

    Notes
    -----
    A resample draws ceil(n / block) blocks of `CELLS` cells with replacement, from all that begin at a cell's edge; the
    cells at both ends come up less often, as in any moving-block bootstrap (Künsch 1989, *The Jackknife and the
    Bootstrap for General Stationary Observations*, section 2.3). Intervals are from the 2.5 % to the 97.5 % quantile,
    less the mean's distance from the value: a resample's ECE is larger than its sample's, most where it is small, and
    without that the better calibrated one would look worse. The last cell may be short; a resample's scores are divided
    by the forecasts it holds.
    """
    n = len(y)
    starts = np.arange(0, n, how.step)
    lengths = np.diff([*starts, n]).astype(np.float64)
    sums = {name: _cells(p, y, starts) for name, p in forecasts.items()}
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
            drawn[name].append(_metrics(weights @ cells, total))
    resampled = {name: np.concatenate(found) for name, found in drawn.items()}
    whole = {name: _metrics(cells.sum(axis=0, keepdims=True), np.array([float(n)]))[0] for name, cells in sums.items()}
    found = []
    for name, against in pairs:
        value = whole[name] - whole[against]
        moved = resampled[name] - resampled[against]
        low, high = np.quantile(moved, (0.025, 0.975), axis=0) - (moved.mean(axis=0) - value)
        found += [
            Difference(name, against, metric, float(value[i]), float(low[i]), float(high[i]))
            for i, metric in enumerate(COMPARED)
        ]
    return found


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
    """Return the metrics of `COMPARED`, [resamples, 4], from sums as `_cells` has them, [resamples, 22]."""
    off, moment = sums[:, :BINS], sums[:, BINS : 2 * BINS]
    found = [np.abs(off).sum(axis=1), np.abs(knots(off, moment)).sum(axis=1), sums[:, -2], sums[:, -1]]
    return np.column_stack(found) / n[:, None]
