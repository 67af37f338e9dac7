"""Whether the intervals of a replay's scores cover what happened."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.arrays import Floats, Integers
from state.segments import Segment

#: The most segments that are described: those with most forecasts.
SEGMENTS: Final = 20
#: Number of groups of equal size: this many by score, and this many by time.
GROUPS: Final = 10
#: Columns that are averaged in each group of scores, in the order of the table.
COLUMNS: Final = ("low", "p", "high", "observed")


class Apart(NamedTuple):
    """Segments; and by family the number of each forecast's segment, -1 without one, [m]."""

    names: Sequence[Segment] = ()
    of: Sequence[Integers] = ()


WHOLE: Final = Apart()


def described(
    level: float, low: Floats, p: Floats, high: Floats, y: Floats, time: NDArray[np.int64], apart: Apart = WHOLE
) -> dict[str, Any]:
    """Return intervals and observed rates by tenths of the score, and the share of groups that agree.

    ``level``: share of intervals that should contain the true risk, in (0, 1).
    ``low, p, high``: intervals and scores, [m] each.
    ``y, time``: labels, and times that order the forecasts, [m] each.

    Returns ``level``; ``groups``: for each tenth of the score ``n``, means by `COLUMNS` and whether it is ``inside``;
    ``inside``: the share of groups, by tenths of score and of time, that are inside, None without forecasts;
    ``segments``: for the largest ones ``n``, means, and the share ``inside`` of groups by the segment's own tenths.

    Notes
    -----
    Nobody knows the true risk of a forecast. With S = Σ (y - p) of a group and R = Σ (high - p), or Σ (p - low) where S
    is below 0, the group is inside if S² <= R² + z² Σ p (1 - p): by chance and by the intervals' width together. So
    where all scores are right, or are off by as much as the intervals say, about ``level`` of the groups are inside.
    """
    z = NormalDist().inv_cdf(0.5 + level / 2.0)
    columns = low, p, high, y
    by_score = _tenths(p)
    groups = []
    for group in range(GROUPS):
        of = [each[by_score == group] for each in columns]
        if len(of[0]):
            groups.append(_means(of) | {"inside": _inside(of, z)})
    members = {name: np.flatnonzero(own == n) for own in apart.of for n, name in enumerate(apart.names) if n in own}
    largest = sorted(members.items(), key=lambda each: (-len(each[1]), each[0]))[:SEGMENTS]
    segments = [
        {"segment": name.name, "value": name.value, **_means(of), "inside": _share(of, time[own], z)}
        for name, own in largest
        if (of := [each[own] for each in columns])
    ]
    return {"level": level, "groups": groups, "inside": _share(columns, time, z), "segments": segments}


def _means(columns: Sequence[Floats]) -> dict[str, Any]:
    """Return the number of forecasts, and their means by `COLUMNS`."""
    return {"n": len(columns[0]), **{name: float(each.mean()) for name, each in zip(COLUMNS, columns, strict=True)}}


def _share(columns: Sequence[Floats], time: NDArray[np.int64], z: float) -> float | None:
    """Return the share of the groups, by tenths of score and of time, that are inside; None without forecasts."""
    group = _tenths(columns[1]) * GROUPS + _tenths(time)
    inside = [_inside([each[group == n] for each in columns], z) for n in np.unique(group).tolist()]
    return float(np.mean(inside)) if inside else None


def _tenths(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the tenth of each value among all, 0 to 9. Equal values are taken in the order in which they came."""
    place = np.empty(len(values), dtype=np.int64)
    place[np.argsort(values, kind="stable")] = np.arange(len(values))
    return place * GROUPS // max(len(values), 1)


def _inside(columns: Sequence[Floats], z: float) -> bool:
    low, p, high, y = columns
    off = float((y - p).sum())
    room = float((high - p).sum() if off > 0.0 else (p - low).sum())
    return abs(off) <= math.hypot(room, z * math.sqrt(float((p * (1.0 - p)).sum())))
