"""Figures over time, and about labels: panels side by side, a legend, and a caption with the finding."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agents.status.axes import Linear, Log, Scale, TimeAxis
from agents.status.markup import Markup
from agents.status.number_format import count, duration, period, share
from agents.status.plot import MARGINS, Plot, padded
from replay.figures import Delays, ScoredWindow
from replay.result import RAW, Contender, Scored

#: The most lines in one diagram. Nobody can tell more lines apart.
LINES: Final = 6
_WIDTH, _HEIGHT = 500.0, 260.0


@dataclass(frozen=True)
class Series:
    """The contender that a line shows, and the style sheet's class for the line's colour and dashes."""

    name: str
    style: str


#: The model's forecasts.
BEFORE: Final = Series(RAW, "raw")


@dataclass(frozen=True)
class Diagram:
    """One diagram and its title."""

    heading: str | None
    picture: Markup


@dataclass(frozen=True)
class SvgFigure:
    """A figure, before it has a number."""

    #: Its id on the page.
    key: str
    #: What it shows, in a few words.
    title: str
    #: What to look for, in sentences.
    see: str
    #: Diagrams, side by side if there is room.
    panels: Sequence[Diagram]
    #: Entries of the legend; empty if the panels need none.
    series: Sequence[Series] = ()


def series_of(contenders: Sequence[Contender], chosen: str | None) -> list[tuple[Series, Contender]]:
    """Return the contenders that are drawn: the first ones, and the chosen one."""
    styled = [(Series(each.name, f"c{i % LINES}"), each) for i, each in enumerate(contenders)]
    drawn = styled[:LINES]
    left_out = next((pair for pair in styled[LINES:] if pair[0].name == chosen), None)
    if left_out:
        drawn[-1] = Series(left_out[0].name, drawn[-1][0].style), left_out[1]
    return drawn


#: A contender that is drawn, with its windows.
_Drawn = Sequence[tuple[Series, Contender, Sequence[ScoredWindow]]]


def over_time(drawn: Sequence[tuple[Series, Contender]]) -> Iterator[SvgFigure]:
    """Draw calibration error, regret, and error beside its bound. Nothing if there are too few outcomes for windows."""
    found = [(series, each, each.overall.windows) for series, each in drawn if each.overall and each.overall.windows]
    if not found:
        return
    n = found[0][2][0].n
    yield SvgFigure(
        "course",
        "Calibration error and regret over time",
        f"The ECE of windows of about {count(n)} outcomes each, and shaded what chance alone gives one window; and the "
        "sum of the differences in Brier loss since the beginning: where a line falls, calibrated forecasts are doing "
        "better than raw, where it rises, worse.",
        [Diagram("Calibration error by window", _errors(found)), Diagram("Regret since the beginning", _regret(found))],
        [BEFORE, *(series for series, _, _ in found)],
    )
    bounded = [(series, each, windows) for series, each, windows in found if any(w.error is not None for w in windows)]
    if bounded:
        yield SvgFigure(
            "bound",
            "Measured error beside its bound",
            "Solid: the error that each calibrator measured of itself up to that time; dotted: the "
            "theorem's bound on it, on any sequence, where one below 1 is proven. A solid line over its dotted line "
            "would refute the theorem's assumptions here. Scale of powers of ten.",
            [Diagram(each.name, _bound(series, windows)) for series, each, windows in bounded],
        )


def _errors(drawn: _Drawn) -> Markup:
    windows = drawn[0][2]
    values = [v for _, _, each in drawn for w in each for v in (w.ece_raw, w.ece_calibrated)]
    plot = _plot(windows, padded(values), "Calibration error by window")
    plot.axes("resolved, UTC", "ECE")
    plot.band([(_middle(w), 0.0, w.ece_noise) for w in windows], "chance")
    plot.line([(_middle(w), w.ece_raw) for w in windows], "raw")
    for series, _, each in drawn:
        plot.line([(_middle(w), w.ece_calibrated) for w in each], series.style)
    return plot.svg()


def _regret(drawn: _Drawn) -> Markup:
    windows = drawn[0][2]
    values = [w.regret_brier for _, _, each in drawn for w in each]
    plot = _plot(windows, padded(values), "Regret since the beginning")
    plot.axes("resolved, UTC", "Σ Brier, calibrated − raw")
    plot.segment((plot.x.low, 0.0), (plot.x.high, 0.0), "zero")
    for series, _, each in drawn:
        plot.line([(float(each[0].start_ms), 0.0), *((float(w.end_ms), w.regret_brier) for w in each)], series.style)
    return plot.svg()


def _bound(series: Series, windows: Sequence[ScoredWindow]) -> Markup:
    errors = [(float(w.end_ms), w.error) for w in windows if w.error is not None]
    bounds = [(float(w.end_ms), w.bound) for w in windows if w.bound is not None and w.bound < 1.0]
    values = [v for _, v in (*errors, *bounds) if v > 0]
    low, high = min(values, default=0.01), max(values, default=1.0)
    ends = 10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9)
    _, top, _, bottom = MARGINS
    scale = Log(ends[0], max(ends[1], ends[0] * 10.0), _HEIGHT - bottom, top)
    plot = _plot(windows, scale, f"Measured error and bound of {series.name}")
    plot.axes("resolved, UTC", "own error and bound")
    plot.line(bounds, f"{series.style} dotted")
    plot.line(errors, series.style)
    for points, name in ((bounds, "bound"), (errors, "error")):
        if points:
            at = points[len(points) // 2]
            plot.write(plot.x.at(at[0]), plot.y.at(at[1]) - 7, name, "name", "middle")
    return plot.svg()


def _plot(
    windows: Sequence[ScoredWindow],
    ends: tuple[float, float] | Scale,
    label: str,
) -> Plot:
    left, top, right, bottom = MARGINS
    x = TimeAxis(windows[0].start_ms, windows[-1].end_ms, left, _WIDTH - right)
    y = Linear(*ends, _HEIGHT - bottom, top) if isinstance(ends, tuple) else ends
    return Plot(_WIDTH, _HEIGHT, x, y, f"{label}, {period(windows[0].start_ms, windows[-1].end_ms)}")


def _middle(window: ScoredWindow) -> float:
    return (window.start_ms + window.end_ms) / 2


def of_labels(overall: Scored) -> Iterator[SvgFigure]:
    """Draw delays and coverage of a contender's labels. They are the same for all contenders of one group."""
    delays = overall.delays
    said = "No outcome came."
    if delays.median_ms is not None:
        said = (
            f"Half of the outcomes came within {duration(delays.median_ms)}, nine in ten within "
            f"{duration(delays.p90_ms)}, 99 in 100 within {duration(delays.p99_ms)}. Bars are of unequal spans: read "
            "their words. Forecasts that wait still are in none of them."
        )
    yield SvgFigure("delays", "Delay of the outcomes", said, [Diagram("From forecast to outcome", _delays(delays))])
    blind = [each for each in overall.coverage if not each.identifiable]
    warned = (
        f" In {len(blind)} band{'s' * (len(blind) > 1)}, marked ?, less than half of the forecasts have an outcome: "
        "nothing can be said of them."
        if blind
        else ""
    )
    yield SvgFigure(
        "coverage",
        "Label coverage by score band",
        "The share of the forecasts of each band of the raw score that got an outcome. Where it is small, calibration "
        f"rests on an assumption about missing outcomes.{warned}",
        [Diagram("Forecasts with an outcome", _coverage(overall))],
    )


def _delays(delays: Delays) -> Markup:
    left, top, right, bottom = MARGINS
    n = sum(delays.counts)
    x = Linear(0.0, len(delays.counts), left, _WIDTH - right)
    shares = [each / n if n else 0.0 for each in delays.counts]
    _, high = padded(shares)
    plot = Plot(_WIDTH, _HEIGHT, x, Linear(0.0, high, _HEIGHT - bottom, top, _percent), f"Delay of {count(n)} outcomes")
    plot.axes("delay", "outcomes", x_ticks=0)
    edges = list(map(duration, delays.edges_ms))
    for i, each in enumerate(shares):
        said = f"{edges[i]} to {edges[i + 1]}: {count(delays.counts[i])} ({share(each)})"
        plot.bar(i + 0.04, i + 0.96, each, "plain", said)
        if len(shares) <= 9 and each:
            plot.note(i + 0.5, each, share(each), "tick above")
    every = max(1, -(-len(edges) // 9))
    for i in range(0, len(edges), every):
        plot.write(x.at(i), _HEIGHT - bottom + 17, edges[i], "tick", plot.side(x.at(i), edges[i]))
    return plot.svg()


def _coverage(overall: Scored) -> Markup:
    left, top, right, bottom = MARGINS
    x = Linear(0.0, 1.0, left, _WIDTH - right)
    y = Linear(0.0, 1.0, _HEIGHT - bottom, top, _percent)
    plot = Plot(_WIDTH, _HEIGHT, x, y, "Label coverage by band of the raw score")
    plot.axes("raw score", "with outcome")
    plot.segment((0.0, 1.0), (1.0, 1.0), "zero")
    for each in overall.coverage:
        middle = (each.low + each.high) / 2
        if not each.issued:
            plot.note(middle, 0.02, "none", "tick")
            continue
        style = "plain" if each.identifiable else "blind"
        said = (
            f"{each.low:.1f} to {each.high:.1f}: {count(each.resolved)} of {count(each.issued)} ({share(each.share)})"
        )
        plot.bar(each.low + 0.006, each.high - 0.006, each.share, style, said)
        if not each.identifiable:
            plot.note(middle, each.share + 0.03, "?", "warning")
    return plot.svg()


def _percent(value: float) -> str:
    return f"{100 * value:.4g}%"
