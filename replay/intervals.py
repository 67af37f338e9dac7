"""Whether the intervals of a replay's scores hold what happened."""

import math
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from state.arrays import Floats

#: Groups by the score, and by time, of as many forecasts each.
GROUPS: Final = 10
#: What is averaged in each group of scores, in the order of the table.
COLUMNS: Final = ("low", "p", "high", "observed")


def described(level: float, low: Floats, p: Floats, high: Floats, y: Floats, time: NDArray[np.int64]) -> dict[str, Any]:
    """Return intervals and observed rates by tenths of the score, and the share of groups that agree.

    ``level``: share of the intervals that shall hold the true risk, in (0, 1).
    ``low, p, high``: intervals and scores, [m] each.
    ``y, time``: labels, and what forecasts are put in order by, [m] each.

    Returns ``level``; ``groups``: of each tenth of the score ``n``, means by `COLUMNS` and whether it is ``inside``;
    ``inside``: share of the groups by tenths of score and of time that are, None without forecasts.

    Notes
    -----
    Nobody knows the true risk of a forecast. With S = Σ (y - p) of a group and R = Σ (high - p), or Σ (p - low) where S
    is below 0, the group is inside if S² <= R² + z² Σ p (1 - p): by chance and by what was left open together. So
    where all scores are right, or are off by as much as was said, about ``level`` of the groups are.
    """
    z = NormalDist().inv_cdf(0.5 + level / 2.0)
    by_score, by_time = _tenths(p), _tenths(time)
    inside = [
        _inside(low[chosen], p[chosen], high[chosen], y[chosen], z)
        for group in range(GROUPS * GROUPS)
        if (chosen := by_score * GROUPS + by_time == group).any()
    ]
    groups = []
    for group in range(GROUPS):
        chosen = by_score == group
        if chosen.any():
            means = [float(each[chosen].mean()) for each in (low, p, high, y)]
            agrees = _inside(low[chosen], p[chosen], high[chosen], y[chosen], z)
            groups.append({"n": int(chosen.sum()), **dict(zip(COLUMNS, means, strict=True)), "inside": agrees})
    return {"level": level, "groups": groups, "inside": float(np.mean(inside)) if inside else None}


def _tenths(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the tenth of each value among all, 0 to 9; equal values are in the order in which they came."""
    place = np.empty(len(values), dtype=np.int64)
    place[np.argsort(values, kind="stable")] = np.arange(len(values))
    return place * GROUPS // max(len(values), 1)


def _inside(low: Floats, p: Floats, high: Floats, y: Floats, z: float) -> bool:
    off = float((y - p).sum())
    room = float((high - p).sum() if off > 0.0 else (p - low).sum())
    return abs(off) <= math.hypot(room, z * math.sqrt(float((p * (1.0 - p)).sum())))
