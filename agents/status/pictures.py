"""The pictures that the status page and the report share: means over time, the map from raw to served, reliability."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agents.status.axes import Linear, LogOdds, Scale, TimeAxis
from agents.status.markup import Markup, tag
from agents.status.number_format import count, percent
from agents.status.plot import MARGINS, Plot, padded
from state.scoring.wilson import wilson

#: Rates are drawn in log-odds if the smallest is less than this share of the largest.
APART: Final = 0.25
#: Bins with fewer events are not drawn, because their intervals span most of the axis.
FEWEST: Final = 10
#: What colours mean, in the order of drawing.
WORDS: Final = {"raw": "model", "calibrated": "served", "draw": "drawn", "truth": "came true"}


class Period(NamedTuple):
    """Means over ``n`` events from ``start_ms`` to ``end_ms``; ``served`` ± ``chance`` is the band of chance."""

    start_ms: float
    end_ms: float
    n: int
    happened: float
    raw: float
    served: float
    chance: float

    @property
    def middle(self) -> float:
        """The middle of its time."""
        return (self.start_ms + self.end_ms) / 2


def course(
    periods: Sequence[Period], label: str, width: float = 520.0, height: float = 180.0, *, bare: bool = False
) -> Markup:
    """Draw observed means over time, served means with their band of chance, and raw means.

    A ``bare`` picture has no words and no axes.
    """
    left, top, right, bottom = (4.0, 4.0, 4.0, 4.0) if bare else MARGINS
    x = TimeAxis(periods[0].start_ms, periods[-1].end_ms, left, width - right)
    served = [each.served for each in periods]
    values = [*served, *(each.raw for each in periods), *(each.happened for each in periods if each.happened > 0)]
    plot = Plot(width, height, x, _rates(values, height - bottom, top), label)
    if not bare:
        plot.axes("", "", x_ticks=5, y_ticks=5)
        _key(plot, ("truth", "calibrated", "raw"))
    plot.band([(p.middle, max(p.served - p.chance, 0.0), p.served + p.chance) for p in periods], "calibrated")
    plot.line([(p.middle, p.raw) for p in periods], "raw")
    plot.line([(p.middle, p.served) for p in periods], "calibrated")
    for p in periods:
        said = f"{percent(p.happened)} of {count(p.n)} came true, {percent(p.served)} ± {percent(p.chance)} served"
        plot.dot(p.middle, p.happened, "truth", f"{said}, {percent(p.raw)} by the model")
    return plot.svg()


def mapping(
    lines: Sequence[tuple[str, str, Sequence[tuple[float, float]]]],
    label: str,
    side: float = 190.0,
) -> Markup:
    """Draw served scores against raw ones: a line for each name, with its style and points."""
    left, top, right, bottom = MARGINS
    points = [point for *_, line in lines for point in line]
    x = LogOdds.of([raw for raw, _ in points], left, left + side)
    y = LogOdds.of([served for _, served in points], top + side, top)
    plot = Plot(left + side + right, top + side + bottom, x, y, label)
    plot.axes("model", "served", x_ticks=4, y_ticks=5)
    low, high = max(x.low, y.low), min(x.high, y.high)
    if low < high:
        plot.segment((low, low), (high, high), "perfect")
    for name, style, line in lines:
        plot.line(line, style, name)
    return plot.svg()


def reliability(
    curves: Mapping[str, Sequence[Mapping[str, Any]]],
    label: str,
    words: Mapping[str, str] = WORDS,
    side: float = 300.0,
) -> Markup:
    """Draw observed rates against forecasts, with Wilson's 95 % intervals; in log-odds for rare events.

    ``curves`` are by style of the line; ``words`` is the legend of styles.
    """
    left, top, right, bottom = MARGINS
    known = {style: [each for each in bins if each["n"] >= FEWEST] for style, bins in curves.items()}
    seen = [v for bins in known.values() for each in bins for v in (each["forecast"], each["outcome"]) if v > 0]
    plot = Plot(
        left + side + right, top + side + bottom, _rates(seen, left, left + side), _rates(seen, top + side, top), label
    )
    plot.axes("forecast", "", x_ticks=5)
    _key(plot, known, words)
    plot.segment((plot.x.low, plot.x.low), (plot.x.high, plot.x.high), "perfect")
    for style, bins in known.items():
        spans = [wilson(each["outcome"], each["n"]) for each in bins]
        plot.band([(each["forecast"], *span) for each, span in zip(bins, spans, strict=True)], style)
        plot.line([(each["forecast"], each["outcome"]) for each in bins], style)
        for each, (low, high) in zip(bins, spans, strict=True):
            said = f"{words[style]}: {percent(each['forecast'])} forecast, {percent(each['outcome'])} of "
            said += f"{count(int(each['n']))} came true ({percent(max(low, 0.0))} to {percent(min(high, 1.0))})"
            plot.dot(each["forecast"], each["outcome"], style, said)
    return plot.svg()


def coverage(scored: Mapping[str, Any], label: str) -> Markup:
    """Draw, for each quantile, the share of outcomes at or below it against its level."""
    (left, top, right, bottom), side = MARGINS, 300.0
    x, y = Linear(0.0, 1.0, left, left + side), Linear(0.0, 1.0, top + side, top)
    plot = Plot(left + side + right, top + side + bottom, x, y, label)
    plot.axes("level", "", x_ticks=5)
    _key(plot, ("raw", "calibrated"))
    plot.segment((0.0, 0.0), (1.0, 1.0), "perfect")
    for kind in ("raw", "calibrated"):
        points = [(each["level"], each["upto"]) for each in scored[kind]["coverage"]]
        plot.line(points, kind)
        for point in points:
            plot.dot(*point, kind)
    return plot.svg()


def _rates(values: Sequence[float], first: float, last: float) -> Scale:
    """Return an axis for rates. It is in log-odds if the rates are rare or far apart."""
    if not values or (min(values) >= APART * max(values) and max(values) > APART / 10):
        low, high = padded(values, zero=False, room=0.15)
        return Linear(max(low, 0.0), min(high, 1.0), first, last, percent)
    return LogOdds.of(values, first, last)


def _key(plot: Plot, styles: Iterable[str], words: Mapping[str, str] = WORDS) -> None:
    at = plot.x.first
    for style in styles:
        word = words[style]
        if style == "truth":
            plot.parts.append(tag("circle", cx=at + 7, cy=12, r=3.2, class_="dot truth"))
        else:
            plot.rule(at, 12, at + 14, 12, f"line {style}")
        plot.write(at + 18, 16, word, "tick", "start")
        at += 32 + 8.2 * len(word)
