"""Reliability diagrams: what was forecast against what happened, with the number of forecasts below."""

from collections.abc import Sequence
from typing import Final

from agents.status.axes import Linear
from agents.status.markup import Markup
from agents.status.number_format import count, share
from agents.status.plot import MARGINS, Plot
from replay.report.figure import BEFORE, Figure, Panel, Series
from replay.result import Bin, Contender

_WIDTH, _SIDE, _STRIP = 340.0, 282.0, 44.0
#: Bins with a smaller share of the forecasts are drawn hollow and off the line: little weight, wide intervals.
SPARSE: Final = 0.001
#: Panels at most.
MOST: Final = 12


def figure(drawn: Sequence[tuple[Series, Contender]]) -> Figure:
    """Draw raw forecasts, and each contender with raw in the background."""
    first = drawn[0][1].overall
    raw = first.reliability["raw"] if first else ()
    panels = [Panel("raw", _diagram("raw", raw, BEFORE))]
    for series, contender in drawn[:MOST]:
        if contender.overall:
            calibrated = contender.overall.reliability["calibrated"]
            ghost = contender.overall.reliability["raw"]
            panels.append(Panel(contender.name, _diagram(contender.name, calibrated, series, ghost)))
    return Figure(
        "reliability",
        "Reliability",
        "On the dashed diagonal, forecasts are the share of what happens; points below it are forecasts that are too "
        "high. "
        "Shaded: Wilson's 95% interval of each bin. Hollow points have less than 0.1% of the forecasts. The grey "
        "line is "
        "raw again. Below each diagram: how many forecasts lie in each bin.",
        panels,
        columns=3,
    )


def _diagram(name: str, bins: Sequence[Bin], series: Series, ghost: Sequence[Bin] = ()) -> Markup:
    left, top, right, _ = MARGINS
    x = Linear(0.0, 1.0, left, _WIDTH - right)
    y = Linear(0.0, 1.0, top + _SIDE, top)
    n = sum(each.n for each in bins)
    strip = top + _SIDE + 40
    plot = Plot(_WIDTH, strip + _STRIP + 16, x, y, f"Reliability of {name}: {count(n)} forecasts in {len(bins)} bins")
    plot.axes("forecast", "share of yes")
    plot.segment((0.0, 0.0), (1.0, 1.0), "perfect")
    plot.line([(each.forecast, each.observed) for each in _firm(ghost)], "ghost")
    firm = _firm(bins)
    plot.band([(each.forecast, each.observed_low, each.observed_high) for each in firm], series.style)
    plot.line([(each.forecast, each.observed) for each in firm], series.style)
    for each in bins:
        plot.segment((each.forecast, each.observed_low), (each.forecast, each.observed_high), f"whisker {series.style}")
        said = (
            f"{count(each.n)} forecasts from {each.low:.1f} to {each.high:.1f}, mean {each.forecast:.3f}: "
            f"{each.observed:.3f} of them yes ({each.observed_low:.3f} to {each.observed_high:.3f})"
        )
        plot.dot(each.forecast, each.observed, series.style if each in firm else f"{series.style} hollow", said)
    heights = Plot(_WIDTH, 0, x, Linear(0.0, max((each.n for each in bins), default=1), strip + _STRIP, strip), "")
    most = max(bins, key=lambda each: each.n, default=None)
    for each in bins:
        heights.bar(
            each.low + 0.006, each.high - 0.006, 0, each.n, series.style, f"{count(each.n)} ({share(each.n / n)})"
        )
    heights.rule(left, strip + _STRIP, _WIDTH - right, strip + _STRIP, "axis")
    if most:
        heights.write(
            (x.at(most.low) + x.at(most.high)) / 2 if most.low > 0 else left, strip - 4, count(most.n), "tick",
            "middle" if most.low > 0 else "start",
        )  # fmt: skip
    return plot.svg(heights.parts)


def _firm(bins: Sequence[Bin]) -> list[Bin]:
    n = sum(each.n for each in bins)
    return [each for each in bins if each.n >= SPARSE * n]
