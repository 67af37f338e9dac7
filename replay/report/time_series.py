"""How things went over time: calibration error and regret, error beside the bound."""

import math
from collections.abc import Iterator, Sequence

from agents.status.axes import Linear, Log, Scale, Times
from agents.status.markup import Markup
from agents.status.number_format import count, period
from agents.status.plot import MARGINS, Plot, padded
from replay.figures import Window
from replay.report.figure import BEFORE, Figure, Panel, Series
from replay.result import Contender

_WIDTH, _HEIGHT = 500.0, 260.0

#: A contender that is drawn, with its windows.
_Drawn = Sequence[tuple[Series, Contender, Sequence[Window]]]


def figures(drawn: Sequence[tuple[Series, Contender]]) -> Iterator[Figure]:
    """Draw everything that has a course; nothing where there are too few outcomes for windows."""
    found = [(series, each, each.overall.windows) for series, each in drawn if each.overall and each.overall.windows]
    if not found:
        return
    n = found[0][2][0].n
    yield Figure(
        "course",
        "Calibration error and regret over time",
        f"The ECE of windows of about {count(n)} outcomes each, and shaded what chance alone gives one window; and the "
        "sum of the differences in Brier loss since the beginning: where a line falls, calibrated forecasts are doing "
        "better than raw, where it rises, worse.",
        [Panel("Calibration error by window", _errors(found)), Panel("Regret since the beginning", _regret(found))],
        [BEFORE, *(series for series, _, _ in found)],
    )
    bounded = [(series, each, windows) for series, each, windows in found if any(w.error is not None for w in windows)]
    if bounded:
        yield Figure(
            "bound",
            "Measured error beside its bound",
            "Solid: the error that each calibrator measured of itself up to that time; dotted: the "
            "theorem's bound on it, on any sequence, where one below 1 is proven. A solid line over its dotted line "
            "would refute the theorem's assumptions here. Scale of powers of ten.",
            [Panel(each.name, _bound(series, windows)) for series, each, windows in bounded],
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


def _bound(series: Series, windows: Sequence[Window]) -> Markup:
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
    windows: Sequence[Window],
    ends: tuple[float, float] | Scale,
    label: str,
) -> Plot:
    left, top, right, bottom = MARGINS
    x = Times(windows[0].start_ms, windows[-1].end_ms, left, _WIDTH - right)
    y = Linear(*ends, _HEIGHT - bottom, top) if isinstance(ends, tuple) else ends
    return Plot(_WIDTH, _HEIGHT, x, y, f"{label}, {period(windows[0].start_ms, windows[-1].end_ms)}")


def _middle(window: Window) -> float:
    return (window.start_ms + window.end_ms) / 2
