"""Bands of a replay's forecasts: how many cases people would have had to review, and thresholds that keep a volume."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.arrays import Floats, Integers
from state.banding import Thresholds
from state.bands import Bands
from state.scoring.ages import DAY_MS
from state.scoring.band_counts import ISSUED, UNIT, BandCounts
from state.scoring.windows import KINDS
from state.segments import Segment
from streams.metrics.bands import Costs, by_day, by_segment, describe

#: Thresholds keep the volume of the last `WEEK` days. The last `QUARTER` days are listed one by one.
WEEK = 7
QUARTER = 92

#: The bands of forecasts, as numbers: by the raw and by the served score, [n] each.
Placed = Sequence[NDArray[Any]]


class BandQueue(NamedTuple):
    """Bands and times of forecasts, and for each kind of segment the number of their segment, -1 without; [n] each."""

    bands: Placed
    ms: Integers
    segments: Sequence[Integers] = ()

    def at(self, chosen: Any) -> "BandQueue":  # noqa: ANN401 - an index
        """Return the part for some of the forecasts."""
        return BandQueue([of[chosen] for of in self.bands], self.ms[chosen], [of[chosen] for of in self.segments])


def described(
    bands: Bands,
    costs: Costs,
    issued: BandQueue,
    p: Floats,
    resolved: BandQueue,
    y: Floats,
    names: Sequence[Segment] = (),
    stands: Floats | None = None,
    thresholds: Thresholds | None = None,
) -> dict[str, Any]:
    """Return the description that `streams.metrics.bands.of_rows` gives of a stream, with more fields.

    For each kind, ``day`` is a band's mean number of forecasts on a day (UTC) that has forecasts; ``most`` is that of
    the busiest day. Each band except the lowest has ``keeps``, a calibrated probability. In the last `WEEK` days, as
    many forecasts were at or above it as had a raw forecast in the band or above (more if several equal it); None if no
    raw forecast was so high. ``days`` are the last `QUARTER`. A label counts on the day of its forecast.

    ``bands, costs``: as the stream is configured.
    ``issued, p``: all forecasts, and the served scores, [n].
    ``resolved, y``: forecasts with a label, and their labels, [m].
    ``names``: the segments by their numbers.
    ``stands``: how many forecasts each label stands for, [m]; None: one.
    ``thresholds``: where bands begin at the end of the replay, if thresholds move.
    """
    width = len(bands.names)
    labels = np.rint(UNIT * (np.ones(len(y)) if stands is None else stands))
    numbers, of_day = np.unique(issued.ms // DAY_MS, return_inverse=True)
    groups = [of_day, np.searchsorted(numbers, resolved.ms // DAY_MS)]
    days = dict(zip(numbers.tolist(), _counted(width, issued, resolved, y, labels, groups, len(numbers)), strict=True))
    made = describe(reduce(add, days.values(), BandCounts(width)), bands, costs, thresholds)
    last = issued.ms > issued.ms.max(initial=0) - WEEK * DAY_MS
    for n, each in enumerate(made["bands"]):
        for k, kind in enumerate(KINDS):
            queue = [day.of(k, ISSUED)[n] for day in days.values()]
            each[kind] |= {"day": sum(queue) / max(len(queue), 1), "most": max(queue, default=0)}
        each["keeps"] = _keeps(p[last], int(np.count_nonzero(issued.bands[0][last] >= n))) if n and bands.lows else None
    made["days"] = by_day(dict(list(days.items())[-QUARTER:]), bands, costs)
    return made | {"segments": by_segment(_apart(width, issued, resolved, y, labels, names), bands, costs)}


def _counted(
    width: int, issued: BandQueue, resolved: BandQueue, y: Floats, stands: Floats, groups: Sequence[Integers], many: int
) -> list[BandCounts]:
    """Return the counts of each group. ``groups``: the group numbers of issued and of resolved forecasts.

    ``stands`` is in units of 1 / `UNIT`.
    """
    ones = y > 0.0
    sums = [
        np.bincount(group * width + placed, weights, many * width).reshape(many, width)
        for every, known in zip(issued.bands, resolved.bands, strict=True)
        for group, placed, weights in (
            (groups[0], every, None),
            (groups[1], known, stands),
            (groups[1][ones], known[ones], stands[ones]),
        )
    ]
    return [BandCounts(width, row) for row in np.concatenate(sums, axis=1).astype(np.int64).tolist()]


def _apart(
    width: int, issued: BandQueue, resolved: BandQueue, y: Floats, stands: Floats, names: Sequence[Segment]
) -> dict[Segment, BandCounts]:
    """Return the counts of each segment that has forecasts."""
    found: dict[Segment, BandCounts] = {}
    for every, known in zip(issued.segments, resolved.segments, strict=True):
        own, labelled = every >= 0, known >= 0
        groups = [every[own], known[labelled]]
        counts = _counted(
            width, issued.at(own), resolved.at(labelled), y[labelled], stands[labelled], groups, len(names)
        )
        found |= {name: each for name, each in zip(names, counts, strict=True) if sum(each.sums)}
    return found


def _keeps(p: Floats, k: int) -> float | None:
    """Return the k-th largest forecast; None if there are none."""
    return float(np.partition(p, len(p) - k)[len(p) - k]) if k else None
