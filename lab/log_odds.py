"""Draw scores against a known truth, in log-odds: there .002 for .004 looks as wrong as .2 for .4."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from lab.reliability import CALIBRATED, FAINT, GREY, INK, RAW, STYLE
from state.arrays import Floats

#: Days of a point over time, and points of a curve against the truth, each with equally many payments.
SPAN: Final = 3.0
POINTS: Final = 25
#: Ticks, as probabilities.
_TICKS: Final = {"x": (1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9), "y": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9)}
_COLOURS: Final = {"raw": RAW, "served": CALIBRATED}


def logit(p: Floats | float) -> Floats:
    """Return log-odds of probabilities, clipped to [1e-6, 1 - 1e-6]."""
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(clipped) - np.log1p(-clipped), dtype=np.float64)


def over_time(days: Floats, p: Floats, span: float = SPAN) -> tuple[Floats, Floats]:
    """Return the middles of spans of days, and the mean of ``p`` in each span that is not empty, [m] each."""
    index = (days / span).astype(np.int64)
    n = np.bincount(index)
    some = np.flatnonzero(n)
    mean: Floats = np.bincount(index, p)[some] / n[some]
    return np.asarray((some + 0.5) * span, dtype=np.float64), mean


def against(p: Floats, truth: Floats, points: int = POINTS) -> tuple[Floats, Floats]:
    """Return the means of scores and of the truth in groups of equally many payments by score, [points] each."""
    order = np.argsort(p, kind="stable")
    groups = [each for each in np.array_split(order, points) if len(each)]
    return np.array([p[each].mean() for each in groups]), np.array([truth[each].mean() for each in groups])


def draw(
    days: Floats,
    scores: Mapping[str, Floats],
    truth: Floats,
    path: Path,
    *,
    title: str,
    subtitle: str,
    known_day: float,
    settled_day: float,
) -> None:
    """Write the picture as PNG, 1500 x 780 pixels: means over time, and scores against the truth.

    Parameters
    ----------
    days
        Day of each payment, [n].
    scores
        ``raw`` and ``served``, [n] each.
    truth
        True probabilities, [n].
    path
        Where to write; its directory is made.
    known_day, settled_day
        Day of the first label, and the day from which scores are compared with the truth.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 5.2), dpi=150, facecolor="white")
        left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1.35, 1), "wspace": 0.27})
        figure.subplots_adjust(left=0.075, right=0.975, bottom=0.12, top=0.82)
        figure.text(0.075, 0.945, title, fontsize=15, fontweight="bold", va="center")
        figure.text(0.075, 0.89, subtitle, fontsize=10.5, color=GREY, va="center")
        _course(left, days, scores, truth, known_day)
        late = days >= settled_day
        if late.any():
            _curves(right, {name: p[late] for name, p in scores.items()}, truth[late], settled_day)
        for axes in (left, right):
            axes.grid(color=FAINT, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(length=0, pad=7)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _course(axes: Axes, days: Floats, scores: Mapping[str, Floats], truth: Floats, known_day: float) -> None:
    axes.axvline(known_day, color=GREY, linewidth=1, dashes=(4, 3))
    for name, p in scores.items():
        middle, mean = over_time(days, p)
        axes.plot(middle, logit(mean), color=_COLOURS[name], linewidth=2, label=name)
    middle, mean = over_time(days, truth)
    axes.plot(middle, logit(mean), color=INK, linewidth=1.6, dashes=(1, 1.2), label="truth")
    axes.set(xlabel="day", ylabel="mean, on the scale of log-odds", xlim=(0, float(days.max(initial=1.0))))
    _percent(axes, "y", np.concatenate([line.get_ydata() for line in axes.get_lines()[1:]]))
    low, high = axes.get_ylim()
    middle_of = low + 0.5 * (high - low)
    axes.text(known_day - 2, middle_of, "the first label\nis known", color=GREY, fontsize=9.5, ha="right", va="center")
    axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.62), frameon=False)


def _curves(axes: Axes, scores: Mapping[str, Floats], truth: Floats, settled_day: float) -> None:
    drawn = []
    for name, p in scores.items():
        x, y = against(p, truth)
        drawn += [logit(x), logit(y)]
        axes.plot(drawn[-2], drawn[-1], color=_COLOURS[name], linewidth=1.6, marker="o", markersize=4.5, label=name)
    every = np.concatenate(drawn)
    axes.axline((0, 0), slope=1, color=GREY, linewidth=1, dashes=(4, 3))
    axes.set(xlabel=f"score, from day {settled_day:g} on", ylabel="mean true risk")
    _percent(axes, "x", every)
    _percent(axes, "y", np.concatenate(drawn[1::2]))
    axes.legend(loc="lower right", frameon=False)


def _percent(axes: Axes, which: str, values: Floats) -> None:
    """Give an axis of log-odds ticks in probabilities, and limits that show its values."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(logit(np.array(_TICKS[which])).tolist()))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 / (1 + np.exp(-v)):.2g} %"))
    low, high = float(values.min()) - 0.4, float(values.max()) + 0.4
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
