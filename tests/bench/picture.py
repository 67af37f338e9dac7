"""Pictures of measurements."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

_OURS, _INK, _FAINT = "#1f6f8b", "#26323a", "#dfe4e7"
_STYLE: Final[Any] = {"font.family": "DejaVu Sans", "font.size": 11, "text.color": _INK, "axes.labelcolor": _INK}


def _save(figure: Figure, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)


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
        _save(figure, out)


def lines(
    xs: Sequence[float], series: Mapping[str, Sequence[float]], labels: tuple[str, str], title: str, out: Path
) -> None:
    """Draw values above a logarithmic axis, from zero."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for name, values in series.items():
            axes.plot(xs, values, marker="o", label=name, color=None if len(series) > 1 else _OURS)
        if min(xs) > 0:
            axes.set_xscale("log")
        axes.set_xticks(xs, [f"{x:,.0f}" for x in xs])
        axes.minorticks_off()
        axes.set_ylim(0, 1.1 * max(max(values) for values in series.values()))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.set_title(title, fontsize=11, loc="left")
        axes.grid(color=_FAINT, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if len(series) > 1:
            axes.legend(frameon=False)
        _save(figure, out)
