"""What a stream is served at present for a few raw scores, with intervals: as JSON and as samples."""

from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any, Final

from state import evidence, kinds
from state.evidence import Evidence, band_of
from state.forecasts import PROBABILITY
from state.policy import Policy
from state.served import Served
from streams.metrics.rows import StateRows, covered, serving

#: The raw probabilities that have series: round numbers, about evenly spaced in log-odds.
RAW: Final = (0.001, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9)
#: The raw probabilities that pages show.
LOOKED: Final = (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99)

#: Returns the low and the high end of the interval, given a raw score and its served score.
Ends = Callable[[float, float], tuple[float, float]]


def answering(found: StateRows, stream: str, policy: Policy) -> Mapping[tuple[int, str], Served]:
    """Return the calibrators that answer, by partition and configuration; new ones where labels are too few."""
    return {
        place: Served.fresh(served.recipe, stream) if withheld(found, stream, policy, place[0]) else served
        for place, served in sorted(found.of(kinds.CALIBRATOR, stream).items())
    }


def withheld(found: StateRows, stream: str, policy: Policy, partition: int) -> bool:
    """Whether a partition serves nothing of what it has learnt, because most forecasts get no label."""
    coverage = covered(found, stream, policy).get(partition)
    return coverage is not None and coverage.uncovered


def ends(
    found: StateRows, stream: str, policy: Policy, place: tuple[int, str], groups: Sequence[int] = ()
) -> Ends | None:
    """Return the intervals of what a partition serves; None if the stream has no intervals.

    ``place``: partition and configuration; ``groups``: slots of the segments of a forecast.
    """
    if not policy.interval:
        return None
    if withheld(found, stream, policy, place[0]):
        return lambda _, __: (0.0, 1.0)
    held = found.of(kinds.EVIDENCE, stream)
    wide = NormalDist().inv_cdf(0.5 + policy.interval / 2.0)
    whole, *segments = (
        held.get((*place, *where)) or Evidence() for where in (kinds.WHOLE, *((policy.layout, slot) for slot in groups))
    )
    return lambda raw, p: evidence.interval(band_of(raw), p, wide, whole, segments)


def describe(
    found: StateRows, stream: str, policy: Policy | None, points: Sequence[float] = LOOKED
) -> list[dict[str, Any]]:
    """Return what is served for some raw scores, features at 0 and without segments; nothing of classes or numbers.

    ``served`` is the mean over the partitions, ``least`` and ``most`` are the extremes. ``low`` and ``high`` are the
    mean ends of their intervals, None without intervals.
    """
    if policy is None or policy.kind != PROBABILITY:
        return []
    x = (0.0,) * policy.n_features
    present = serving(found, stream, policy) or ()
    maps = {place: each for place, each in answering(found, stream, policy).items() if place[1] in present}
    intervals = {place: ends(found, stream, policy, place) for place in maps}
    described = []
    for raw in points if maps else ():
        served = {place: each.calibrator.predict(raw, x, b"map").p for place, each in maps.items()}
        left = [end(raw, served[place]) for place, end in intervals.items() if end is not None]
        low, high = (fmean(each) for each in zip(*left, strict=True)) if left else (None, None)
        mean, least, most = fmean(served.values()), min(served.values()), max(served.values())
        described.append({"raw": raw, "served": mean, "least": least, "most": most, "low": low, "high": high})
    return described
