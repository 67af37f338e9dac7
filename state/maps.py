"""Maps: what is served now, as numbers that can be sent to services that cannot wait for an answer."""

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from state import calibrators
from state.calibrators.by_segment import FLAT, KNOTS, LOW, REACH, STEP
from state.calibrators.composition import Composition
from state.calibrators.logistic import P_CLIP
from state.calibrators.prudent import Prudent
from state.forecasts import PROBABILITY
from state.odds import probability
from state.policy import Policy

#: Largest error of a table between its points, in log-odds of probabilities within `P_CLIP`: .1 % of a small
#: probability. An error of `ROUNDED` is also allowed, because no decision depends on it.
TOLERANCE: Final = 1e-3
ROUNDED: Final = 1e-7
#: Near a jump that no calibrator announces, the error may be larger: within this distance, in log-odds of the raw
#: forecast.
NARROW: Final = 1e-6
#: Points of every table, in log-odds: up to ±`FINE` in steps of `FINE_STEP`, then up to ±`COARSE` in steps of
#: `COARSE_STEP`.
FINE, FINE_STEP, COARSE, COARSE_STEP = 7.0, 0.125, 20.0, 0.5
#: Least distance of a probability from 0 and 1 when its log-odds are taken.
TINY: Final = 1e-12
#: The most points that are added to a table that is not exact enough.
MOST_ADDED: Final = 2000


class Table(NamedTuple):
    """A function of a probability, given by points. Between two neighbours it is a straight line in log-odds.

    If x or y of either neighbour is 0 or 1, the line is straight in probabilities instead.
    """

    #: Strictly increasing, from 0 to 1.
    x: list[float]
    #: The served score.
    y: list[float]


class Corrections(NamedTuple):
    """Corrections by segment, see `state.calibrators.by_segment.BySegment`."""

    #: Weight of the answer without segments.
    weight: float
    #: Share of the passing correction.
    share: float
    #: By slot: the passing correction, then the lasting one at every knot.
    rows: dict[int, list[float]]


#: Knots and constants that are needed to apply `Corrections`.
SHAPE: Final = {"low": LOW, "step": STEP, "knots": KNOTS, "flat": FLAT, "reach": REACH, "clip": P_CLIP}

#: Steps from a raw forecast to the served score, in order.
Stages = list[Table | Corrections]


def why_not(policy: Policy) -> str:
    """Return why no map can describe what a stream is served; empty if one can."""
    if policy.kind != PROBABILITY:
        return f"{policy.calibrator} does not serve one probability"
    if policy.model_version:
        return "each version of its model has a map of its own"
    if policy.n_features and "features" in calibrators.options_of(policy.calibrator, policy.options):
        return f"what {policy.calibrator} serves depends on features"
    return ""


def stages(calibrator: Any) -> Stages:  # noqa: ANN401 - of one probability
    """Return the steps by which a calibrator now computes ``p``; the calibrator does not change.

    Each part of a composition has its own table, so that jumps of one part do not enlarge errors of another.
    """
    if isinstance(calibrator, Composition):
        return stages(calibrator.front) + stages(calibrator.back)
    if isinstance(calibrator, Prudent):
        front, by_segment = calibrator.parts()
        return [_table(front), *([] if by_segment is None else [Corrections(*by_segment.corrections())])]
    return [_table(calibrator)]


def _table(calibrator: Any) -> Table:  # noqa: ANN401 - of one probability
    return table(lambda p: calibrator.predict(p).p, calibrator.breaks())


def table(answer: Callable[[float], float], breaks: Iterable[float] = ()) -> Table:
    """Return points of a function within `TOLERANCE`.

    ``answer``: from [0, 1] to [0, 1].
    ``breaks``: where it may jump or bend, within (0, 1).
    """
    found = {p: answer(p) for p in _BASE}
    for p in breaks:
        before, after = math.nextafter(p, 0.0), math.nextafter(p, 1.0)
        y = answer(before), answer(p), answer(after)
        found[p] = y[1]
        if not (_near(y[0], y[2]) and _near(y[0], y[1])):
            found |= {before: y[0], after: y[2]}
    x = sorted(found)
    _refine(answer, found, list(pairwise(x)))
    return _thinned([(p, found[p]) for p in sorted(found)])


def _refine(answer: Callable[[float], float], found: dict[float, float], gaps: list[tuple[float, float]]) -> None:
    """Halve gaps until the value in the middle of each gap is near enough to its line."""
    most = len(found) + MOST_ADDED
    for left, right in gaps:  # the list grows during the loop
        low, high = _log_odds(left), _log_odds(right)
        if high - low < NARROW or len(found) >= most:
            continue
        middle = probability((low + high) / 2.0)
        middle = short if left < (short := float(f"{middle:.6g}")) < right else middle
        if not left < middle < right:
            continue
        y, line = answer(middle), between((left, found[left]), (right, found[right]), middle)
        # A quarter: the errors of two tables may add up, and the function may bend beside the middle.
        if abs(y - line) > ROUNDED and abs(_clipped(y) - _clipped(line)) > TOLERANCE / 4.0:
            found[middle] = y
            gaps += [(left, middle), (middle, right)]


def between(left: tuple[float, float], right: tuple[float, float], p: float) -> float:
    """Return the value at p of the line through two points, as `Table` says."""
    (x0, y0), (x1, y1) = left, right
    if x0 == 0.0 or x1 == 1.0 or min(y0, y1) == 0.0 or max(y0, y1) == 1.0:
        return y0 + (y1 - y0) * (p - x0) / (x1 - x0)
    low, high = _log_odds(x0), _log_odds(x1)
    if y0 == y1 or low == high:
        return y0
    one, other = _log_odds(y0), _log_odds(y1)
    return probability(one + (other - one) * (_log_odds(p) - low) / (high - low))


def _thinned(points: list[tuple[float, float]]) -> Table:
    """Return the points, except those between two points of the same served score."""
    x: list[float] = []
    y: list[float] = []
    for p, served in points:
        served = float(f"{served:.10g}")  # noqa: PLW2901 - as it is sent
        if len(y) > 1 and y[-1] == y[-2] == served:
            x[-1] = p
        else:
            x.append(p)
            y.append(served)
    return Table(x, y)


def _near(one: float, other: float) -> bool:
    return one == other or abs(_clipped(one) - _clipped(other)) < TOLERANCE / 100.0


def _clipped(p: float) -> float:
    p = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return math.log(p / (1.0 - p))


def _log_odds(p: float) -> float:
    p = min(max(p, TINY), 1.0 - TINY)
    return math.log(p / (1.0 - p))


def _base() -> tuple[float, ...]:
    fine, coarse = round(FINE / FINE_STEP), round((COARSE - FINE) / COARSE_STEP)
    upper = [i * FINE_STEP for i in range(fine)] + [FINE + i * COARSE_STEP for i in range(coarse + 1)]
    places = [*(-v for v in upper[:0:-1]), *upper]
    # Points with few digits; near 1, their distance from 1 has few.
    points = [float(f"{probability(v):.6g}") if v < 0 else 1.0 - float(f"{probability(-v):.6g}") for v in places]
    return 0.0, *sorted({*points, P_CLIP, 1.0 - P_CLIP}), 1.0


_BASE: Final = _base()
