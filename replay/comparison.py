"""Compares contenders with raw and with one another, with intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from replay import bootstrap
from replay.bootstrap import Resampled
from replay.columns import Flags, Losses, ResolvedColumns
from replay.result import RAW, Bootstrap, Contender, MetricDifference, MetricInterval, drawn
from state.arrays import Floats


@dataclass(frozen=True)
class Scoreboard:
    """The contenders of one group with their scores."""

    contenders: list[Contender]
    columns: ResolvedColumns
    losses: Mapping[str, Losses]


@dataclass
class Compared:
    """Differences of contenders to raw and to one another, as fields of `Result`."""

    differences: list[MetricDifference] = field(default_factory=list)
    warming: list[MetricDifference] = field(default_factory=list)
    intervals: list[MetricInterval] = field(default_factory=list)
    vector_differences: dict[str, list[MetricDifference]] = field(default_factory=dict)
    bootstrap: Bootstrap | None = None


def compared(boards: Sequence[Scoreboard], block: int | None, resamples: int, volume: float) -> Compared:
    """Compare every contender and its draw with raw, and every pair that resolved the same forecasts."""
    found = Compared()
    for each in boards:
        columns, names = each.columns, [contender.name for contender in each.contenders]
        settled = columns.settled if names else np.zeros(0, dtype=np.bool_)
        forecasts = {RAW: columns.raw, **dict(zip(names, columns.p, strict=True))}
        draws = {drawn(name): draw for name, draw in zip(names, columns.draw, strict=True) if draw is not None}
        resampled = _resampled(columns, settled, {**forecasts, **draws}, block, resamples, volume)
        if resampled is not None:
            found.bootstrap = found.bootstrap or resampled.how
            pairs = [(name, RAW) for name in [*names, *draws]]
            pairs += [(name, other) for i, name in enumerate(names) for other in names[i + 1 :]]
            found.differences += resampled.differences(pairs)
            found.intervals += [
                MetricInterval(name, *interval)
                for name in [RAW, *names, *draws]
                for interval in resampled.intervals(name)
            ]
        for name, p, warm in zip(names, columns.p, columns.warm, strict=True):
            warming = _resampled(columns, warm, {RAW: columns.raw, name: p}, block, resamples, volume)
            if warming is not None:
                found.warming += warming.differences([(name, RAW)])
        for stream, each_of in each.losses.items():
            found.vector_differences.setdefault(stream, []).extend(_compared(each_of.settled, names, block, resamples))
    return found


def _compared(lost: Losses, names: Sequence[str], block: int | None, resamples: int) -> Iterator[MetricDifference]:
    """Yield the differences of every contender to raw, and of every pair that serves the same classes or levels."""
    how = bootstrap.plan(lost.time, block, resamples)
    if how is None:
        return
    pairs = [(i, RAW, served - was) for i, (served, was) in enumerate(zip(lost.served, lost.was, strict=True))]
    pairs += [
        (i, names[j], lost.served[i] - lost.served[j])
        for i in range(len(names))
        for j in range(i)
        if np.array_equal(lost.was[i], lost.was[j])
    ]
    for i, against, differences in pairs:
        for metric, found in zip(lost.metrics, bootstrap.means(how, differences), strict=True):
            yield MetricDifference(names[i], against, metric, *found)


def _resampled(
    columns: ResolvedColumns,
    chosen: Flags,
    forecasts: Mapping[str, Floats],
    block: int | None,
    resamples: int,
    volume: float,
) -> Resampled | None:
    """Resample some of the resolved forecasts; None if there are too few."""
    how = bootstrap.plan(columns.time[chosen], block, resamples)
    if how is None:
        return None
    mine = {name: p[chosen] for name, p in forecasts.items()}
    return Resampled(how, columns.y[chosen], mine, volume, columns.moments.at(chosen))
