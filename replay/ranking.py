"""How forecasts rank among those answered at nearly the same time, and whether a map keeps their order."""

from typing import Any, Final, NamedTuple

import numpy as np

from state.arrays import Floats, Integers

#: Forecasts in a window. With fewer, the highest .5 % are less than one forecast. With more, the maps within a window
#: differ more.
WINDOW: Final = 200
#: If one map answered at least this many neighbours, only these are compared with one another.
NEIGHBOURS: Final = 100
#: A pair counts as equal if a map shrinks its distance to this share. Within a bin of 1,000 outcomes, a histogram
#: leaves .003.
FLAT: Final = 0.01
#: Scores that differ by less count as equal. Near 0 and 1, rounding alone makes such differences.
NEAR: Final = 1e-9


class Ranks(NamedTuple):
    """The ranking of one kind of forecast within windows, over forecasts with an outcome."""

    #: The share of pairs of a one and a zero in a window in which the one has the larger forecast. Ties count half; NaN
    #: without pairs.
    auc: float
    #: Largest distance between the distribution functions of zeros and of ones over their positions in windows.
    ks: float
    #: Recall and precision of the highest forecasts of each window, by volume. Ties at the cut-off count in proportion.
    #: NaN without ones.
    recall: dict[float, float]
    precision: dict[float, float]
    #: First-order contribution of each event to AUC, and to the recall at the first volume, [n, 2]. They sum to 0.
    moves: Floats


class Moments(NamedTuple):
    """The windows within which forecasts are ranked."""

    #: Number of each forecast's window, [n], see `windows`.
    window: Integers
    #: Number of each forecast's group of equal raw forecasts within its window, [n], see `evened`.
    alike: Integers

    def at(self, chosen: Any) -> "Moments":  # noqa: ANN401 - an index
        """Return the part for some of the forecasts."""
        return Moments(self.window[chosen], self.alike[chosen])


def windows(place: Integers, issued: Integers) -> Integers:
    """Return the number of each forecast's window, [n]: about `WINDOW` neighbours answered by one calibrator.

    ``place``: number of the calibrator that answered, for each partition and stream, [n].
    ``issued``: position of the forecast in the order of answers, [n].
    """
    n = len(place)
    order = np.lexsort((issued, place))
    begins = np.flatnonzero(np.diff(place[order], prepend=-1))
    sizes = np.diff(np.append(begins, n))
    parts = np.maximum(np.rint(sizes / WINDOW), 1).astype(np.int64)
    first = np.cumsum(parts) - parts
    within = np.arange(n) - np.repeat(begins, sizes)
    found = np.empty(n, dtype=np.int64)
    found[order] = np.repeat(first, sizes) + within * np.repeat(parts, sizes) // np.repeat(sizes, sizes)
    return found


def evened(p: Floats, alike: Integers) -> Floats:
    """Return the mean forecast of each event's group, [n].

    At one time, a map serves equal raw forecasts alike. As it learns, it rises after each outcome of 1, which came too
    late to help. That difference must not count as ranking.

    ``p``: forecasts, [n].
    ``alike``: number of the group of equal raw forecasts of a window, [n].
    """
    counted = np.bincount(alike)
    if len(counted) == len(p):
        return p
    one = np.zeros(len(counted))
    one[alike] = p
    # Off one of the group, so that the mean of equal forecasts is that forecast: groups of one window may tie.
    means: Floats = (one + np.bincount(alike, p - one[alike]) / np.maximum(counted, 1))[alike]
    return means


def turned(raw: Floats, p: Floats, place: Integers, learnt: Integers) -> float:
    """Return the share of neighbours, answered by one map, whose order it changed; NaN without any.

    A pair also counts if the map shrinks its distance in log-odds to `FLAT` or less, because any outcome may then turn
    it. With very prompt labels each forecast has its own map, so an outcome between two neighbours may turn a close
    pair. Then only pairs that are further apart than the median count.

    ``raw, p``: raw and served forecasts, in the order of answers, [n].
    ``place``: number of the combination of answering calibrator and segments, [n].
    ``learnt``: outcomes that the calibrator had learnt, [n].
    """
    order = np.argsort(place, kind="stable")
    clipped = (np.clip(each[order], NEAR, 1.0 - NEAR) for each in (raw, p))
    before, after = (np.diff(np.log(each) - np.log1p(-each)) for each in clipped)
    gap = np.diff(learnt[order])
    pairs = (np.diff(place[order]) == 0) & (np.abs(np.diff(raw[order])) > NEAR)
    chosen = pairs & (gap == 0)
    if np.count_nonzero(chosen) < NEIGHBOURS:
        chosen = pairs & (gap <= 1)
        if chosen.any():
            chosen &= np.abs(before) > np.median(np.abs(before[chosen]))
    if not chosen.any():
        return float("nan")
    return float(np.mean(after[chosen] * np.sign(before[chosen]) <= FLAT * np.abs(before[chosen])))


def ranks(p: Floats, y: Floats, volumes: tuple[float, ...], moments: Moments | None = None) -> Ranks:
    """Rank forecasts within their windows. Equal raw forecasts count as one.

    ``p, y``: forecasts, and outcomes in {0, 1}, [n] each.
    ``volumes``: in (0, 1].
    ``moments``: windows, [n]; None: all are in one window, and raw forecasts are unknown.
    """
    n, window = len(p), None
    if moments is not None:
        p, window = evened(p, moments.alike), moments.window
    if not n or not 0.0 < (total := float(y.sum())) < n:
        nothing = dict.fromkeys(volumes, float("nan"))
        return Ranks(float("nan"), float("nan"), nothing, dict(nothing), np.zeros((n, 2)))
    order = np.lexsort((-p,) if window is None else (-p, window))
    of = np.zeros(n, dtype=np.int64) if window is None else window[order]
    label = y[order]
    new = np.diff(of, prepend=of[0] - 1) != 0
    runs = np.flatnonzero(new | (np.diff(p[order], prepend=np.nan) != 0))
    first = np.flatnonzero(new)
    here = np.cumsum(new)[runs] - 1
    size, ones = np.diff(np.append(runs, n)), np.add.reduceat(label, runs)
    sizes, every = np.diff(np.append(first, n)), np.add.reduceat(label, first)
    others = sizes - every
    above = runs - first[here]
    hits = np.cumsum(ones) - ones
    hits -= hits[np.searchsorted(runs, first)][here]
    # For a one and for a zero of each run: the pairs that are in order.
    right = others[here] - (above - hits) - (size - ones) / 2, hits + ones / 2
    pairs = every * others
    ordered = np.add.reduceat(ones * right[0], np.searchsorted(runs, first))
    auc = float(ordered.sum() / pairs.sum()) if pairs.any() else float("nan")
    recall, precision, caught = {}, {}, []
    for volume in volumes:
        share = np.clip((volume * sizes[here] - above) / size, 0.0, 1.0)
        caught.append(share)
        recall[volume] = float(ones @ share) / total
        precision[volume] = float(ones @ share) / (volume * n)
    # The share of ones at the cut-off: one more event above it pushes so many ones out.
    low, high = (float(ones @ np.clip((by * volumes[0] * sizes[here] - above) / size, 0.0, 1.0)) for by in (0.5, 1.5))
    edge = (high - low) / (volumes[0] * n)
    at = np.repeat(np.arange(len(runs)), size)
    mine = here[at]
    own = np.divide(ordered, pairs, out=np.zeros(len(pairs)), where=pairs > 0)
    expected = own[mine] * np.where(label == 1.0, others[mine], every[mine])
    moves = np.empty((n, 2))
    found = np.where(label == 1.0, right[0][at], right[1][at])
    moves[order, 0] = (found - expected + ((own - auc) * pairs / sizes)[mine]) / max(float(pairs.sum()), 1.0)
    moves[order, 1] = (label * (caught[0][at] - recall[volumes[0]]) - edge * (caught[0][at] - volumes[0])) / total
    return Ranks(auc, _distance((above + size / 2) / sizes[here], ones, size - ones), recall, precision, moves)


def _distance(at: Floats, ones: Floats, zeros: Floats) -> float:
    """Return the largest distance between two distribution functions that have these masses at these places, [m]."""
    order = np.argsort(at, kind="stable")
    apart = np.cumsum(ones[order]) / ones.sum() - np.cumsum(zeros[order]) / zeros.sum()
    ends = np.append(np.diff(at[order]) != 0, True)
    return float(np.abs(apart[ends]).max())
