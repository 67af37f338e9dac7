"""What people would have had to look at: the bands of a replay's forecasts, and thresholds that keep a volume."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from state.arrays import Floats
from state.bands import Bands
from state.scoring.ages import DAY_MS
from state.scoring.band_counts import BandCounts
from state.scoring.windows import KINDS
from streams.metrics.bands import describe

#: Days at the end of the history whose volume is kept.
WEEK = 7

#: Numbers of bands of raw and of served forecasts, [n] each.
Placed = Sequence[NDArray[Any]]


def described(
    bands: Bands,
    costs: tuple[float, float] | None,
    issued: Placed,
    issued_ms: NDArray[np.int64],
    p: Floats,
    resolved: Placed,
    y: Floats,
) -> dict[str, Any]:
    """Return what `streams.metrics.bands.describe` does of a stream, and some more.

    Of each kind ``day`` is the mean number of forecasts of a band on a day that has forecasts (UTC), ``most`` that of
    its busiest day. Of each band but the lowest ``keeps`` is the calibrated probability at or above which as many
    forecasts of the last `WEEK` days lie as had a raw forecast in the band or above; None where none had. Of equal
    ones at it there may be more.

    ``bands, costs``: as the stream is configured.
    ``issued, issued_ms, p``: of all forecasts: bands, times, and what was served, [n] each.
    ``resolved, y``: of those with a label: bands and labels, [m] each.
    """
    width = len(bands.names)
    counts = BandCounts(width)
    counts.sums = [
        int(n)
        for every, known in zip(issued, resolved, strict=True)
        for n in np.concatenate([np.bincount(each, minlength=width) for each in (every, known, known[y > 0.0])])
    ]
    made = describe(counts, bands, costs)
    _, day = np.unique(issued_ms // DAY_MS, return_inverse=True)
    last = issued_ms > issued_ms.max(initial=0) - WEEK * DAY_MS
    for n, each in enumerate(made["bands"]):
        for kind, placed in zip(KINDS, issued, strict=True):
            by_day = np.bincount(day[placed == n], minlength=int(day.max(initial=0)) + 1)
            each[kind] |= {"day": float(by_day.mean()), "most": int(by_day.max())}
        each["keeps"] = _keeps(p[last], int(np.count_nonzero(issued[0][last] >= n))) if n and bands.lows else None
    return made


def _keeps(p: Floats, k: int) -> float | None:
    """Return the k-th largest of forecasts; None for none."""
    return float(np.partition(p, len(p) - k)[len(p) - k]) if k else None
