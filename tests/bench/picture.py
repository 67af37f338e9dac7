"""Pictures of measurements."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from agents.status.axes import Linear, Log, Scale
from agents.status.markup import Markup
from agents.status.plot import MARGINS, Plot, padded

_INK, _FAINT = "#26323a", "#dfe4e7"
_WIDTH, _HEIGHT = 270.0, 210.0
_STYLE: Final[Any] = {"font.family": "DejaVu Sans", "font.size": 11, "text.color": _INK, "axes.labelcolor": _INK}


def tails(curves: Mapping[str, Sequence[float]], title: str, out: Path) -> None:
    """Draw latencies (ms, ascending) against the share of forecasts that took longer, one line each."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.add_subplot()
        for name, ordered in curves.items():
            n = len(ordered)
            longer = [1 - i / n for i in range(n)]
            ours = name.startswith("trueup")
            axes.plot(longer, [max(value, 0.5) for value in ordered], label=name, linewidth=2 if ours else 1)
        axes.axhline(25, color=_INK, linewidth=0.8, linestyle=":")
        axes.annotate("25 ms", (1, 25), xytext=(2, 3), textcoords="offset points", fontsize=9)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.invert_xaxis()
        axes.set_xticks([1, 0.5, 0.1, 0.01, 0.001, 0.0001], ["all", "p50", "p90", "p99", "p99.9", "p99.99"])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g} ms")
        axes.set_title(title, fontsize=11, loc="left")
        axes.grid(color=_FAINT, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=150)


def panel(points: Mapping[float, float], x_name: str, y_name: str) -> Markup:
    """Return a diagram of values above what they depend on, from zero; a small one, to stand beside others."""
    left, top, right, bottom = MARGINS
    low, high = min(points), max(points)
    ends = left, _WIDTH - right
    x: Scale = (
        Log(10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9), *ends)
        if low > 0 and high > 20 * low
        else Linear(0.0, high, *ends)
    )
    plot = Plot(_WIDTH, _HEIGHT, x, Linear(*padded(points.values()), _HEIGHT - bottom, top), f"{y_name} by {x_name}")
    plot.axes(x_name, y_name, x_ticks=min(6, round(high)) if isinstance(x, Linear) else 6)
    plot.line(list(points.items()), "calibrated")
    for at, value in points.items():
        plot.dot(at, value, "calibrated", f"{at:,.0f} {x_name}: {value:,.0f}")
    return plot.svg()
