"""Figures for a model's review, over arrays: bins, slope and intercept, months, cut-offs, the map at the end."""

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Final

import numpy as np

from replay.figures import Cut, Fit, Month, Review
from replay.measure import chance, ranked
from state.arrays import Floats, Integers
from state.scoring.distribution import CELLS, EDGES, psi
from state.scoring.losses import LOG_CLIP
from state.scoring.windows import KINDS

#: Bins of a reliability curve; volumes that have a cut-off; forecasts for each point of the map.
BINS: Final = 12
VOLUMES: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
NEAR: Final = 101
#: The map at the end is that of this last share of the forecasts.
LAST: Final = 0.25
#: Scores at which the map is given, if the model has them.
SCORES: Final = (0.001, 0.002, 0.005, *(n / 100 for n in (1, 2, 3, 5)), *(n / 20 for n in range(2, 20)), 0.98, 0.99)
#: Steps of Newton's method; and log-odds beyond which there is no fit.
_STEPS: Final = 30
_FAR: Final = 50.0


def review(raw: Floats, p: Floats, y: Floats, issued_ms: Integers, every: tuple[Floats, Floats]) -> Review:
    """Return the figures of a review, for forecasts after the warm-up.

    ``raw, p, y, issued_ms``: raw score, served score, outcome and time of forecasts with an outcome, [n] each.
    ``every``: raw and served scores of all forecasts, in the order of time, [m] each.
    """
    kinds = dict(zip(KINDS, (raw, p), strict=True))
    last = [each[-max(int(LAST * len(each)), 1) :] for each in every]
    return Review(
        quantiles={kind: ranked(each, y).bins(BINS) for kind, each in kinds.items()},
        fits={kind: fit(each, y) for kind, each in kinds.items()},
        months=list(_months(raw, p, y, issued_ms)),
        cuts=list(_cuts(raw, p, y, issued_ms, last)) if len(every[0]) else [],
        lookup=list(_lookup(*last)),
    )


def fit(p: Floats, y: Floats) -> Fit:
    """Return slope and intercept of y on the log-odds of p, by logistic regression; NaN if there is no fit.

    References
    ----------
    Cox 1958, *Two further applications of a model for binary regression*.
    """
    nothing = Fit(float("nan"), float("nan"))
    if not len(y) or not 0.0 < y.mean() < 1.0 or p.min() == p.max():
        return nothing
    clipped = np.clip(p, LOG_CLIP, 1.0 - LOG_CLIP)
    x = np.column_stack([np.ones(len(p)), np.log(clipped) - np.log1p(-clipped)])
    found = np.array([0.0, 1.0])
    for _ in range(_STEPS):
        q = 1.0 / (1.0 + np.exp(-np.clip(x @ found, -_FAR, _FAR)))
        curve = (x * (q * (1.0 - q))[:, None]).T @ x
        if not np.linalg.det(curve) > 0.0:
            return nothing
        step = np.linalg.solve(curve, x.T @ (y - q))
        found += step
        if np.abs(step).max() < 1e-9:
            return Fit(*map(float, found))
    return nothing


def _months(raw: Floats, p: Floats, y: Floats, issued_ms: Integers) -> Iterator[Month]:
    """Yield the months (UTC) of forecasts with an outcome. ``shift``: PSI against the first month."""
    months = issued_ms.astype("datetime64[ms]").astype("datetime64[M]")
    first: list[int] | None = None
    for month in np.unique(months):
        mine = months == month
        cells = np.bincount(np.searchsorted(EDGES, raw[mine], side="right"), minlength=CELLS).tolist()
        first = first or cells
        n, rate, spread = int(mine.sum()), float(y[mine].mean()), float((p[mine] * (1.0 - p[mine])).sum())
        yield Month(
            month=month.item().strftime("%Y-%m") if isinstance(month.item(), datetime) else str(month),
            n=n,
            raw=float(raw[mine].mean()),
            calibrated=float(p[mine].mean()),
            observed=rate,
            chance=chance(n, rate, spread),
            shift=psi(cells, first),
        )


def _cuts(raw: Floats, p: Floats, y: Floats, issued_ms: Integers, last: list[Floats]) -> Iterator[Cut]:
    """Yield the cut-offs of the highest scores, and what lies above.

    Only the last forecasts count, because the map moves.
    """
    if not len(y):
        return
    late = issued_ms >= np.quantile(issued_ms, 1.0 - LAST)
    raw, p, y = raw[late], p[late], y[late]
    for volume in VOLUMES:
        before, after = (float(np.quantile(each, 1.0 - volume, method="higher")) for each in last)
        caught = [np.argsort(-each, kind="stable")[: max(round(volume * len(y)), 1)] for each in (raw, p)]
        hits = [float(y[each].sum()) for each in caught]
        ones = float(y.sum())
        yield Cut(volume, before, after, len(caught[0]), int(hits[0]), int(hits[1]), int(ones))


def _lookup(raw: Floats, p: Floats) -> Iterator[tuple[float, float]]:
    """Yield round scores of the model, each with the median of what was served for the nearest scores."""
    order = np.argsort(raw, kind="stable")
    raw, p = raw[order], p[order]
    for low, score in pairwise((0.0, *SCORES)):
        at = int(np.searchsorted(raw, score))
        near = slice(max(at - NEAR // 2, 0), at + NEAR // 2 + 1)
        if len(raw) and raw[0] <= score <= raw[-1] and abs(float(np.median(raw[near])) - score) < (score - low) / 2:
            yield score, float(np.median(p[near]))
