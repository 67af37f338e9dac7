"""Draw the reliability diagram: forecasts against what happened, before and after calibration."""

from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from state.arrays import Floats
from state.scoring.cells import BINS
from state.scoring.losses import LOG_CLIP
from state.scoring.wilson import wilson
from streams.atomic_file import written

#: Bins with a smaller share of the events are drawn hollow and without a line. Otherwise the few answers of a new
#: calibrator would look as important as all later ones. They count in the ECE like the others.
SPARSE: Final = 0.001
#: Bins with fewer events than this are not drawn: their intervals span most of the axis.
FEWEST: Final = 10

#: Colours of pictures: the model's forecasts, the served ones, text and lines.
RAW, CALIBRATED, INK, GREY, FAINT = "#c2571a", "#1f6f8b", "#26323a", "#5b6870", "#dfe4e7"

#: Matplotlib's style of all pictures.
STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


class ReliabilityErrors(NamedTuple):
    """Scores of forecasts: ECE in ten bins, Brier score, log loss in nats."""

    ece: float
    brier: float
    log_loss: float


class Curve(NamedTuple):
    """Forecasts in ten bins, [10] each; NaN if a bin is empty."""

    #: Events.
    n: Floats
    #: Mean forecast.
    forecast: Floats
    #: Fraction of events that happened.
    observed: Floats
    #: Wilson's 95 % interval of ``observed``.
    low: Floats
    high: Floats


def bin_of(p: Floats) -> npt.NDArray[np.int64]:
    """Return the bin of each forecast; 1.0 is in the last bin."""
    return np.minimum((p * BINS).astype(np.int64), BINS - 1)


def loss(p: Floats, y: Floats) -> ReliabilityErrors:
    """Score forecasts ``p`` in [0, 1] against outcomes ``y`` in {0, 1}, [n] each; NaN if there are none.

    This follows the definitions and does not use `state.scoring.scores`, so the demo can check the worker's figures.
    """
    if not len(p):
        return ReliabilityErrors(np.nan, np.nan, np.nan)
    gap = np.bincount(bin_of(p), weights=p - y, minlength=BINS)
    clipped = np.clip(p, LOG_CLIP, 1 - LOG_CLIP)
    return ReliabilityErrors(
        float(np.abs(gap).sum() / len(p)),
        float(np.mean((p - y) ** 2)),
        float(-np.mean(y * np.log(clipped) + (1 - y) * np.log1p(-clipped))),
    )


def auc(p: Floats, y: Floats) -> float:
    """Return the AUC: the chance that an event of outcome 1 has the higher forecast, ties half; NaN without both.

    It uses the events themselves, where `state.scoring.ranking` uses counts by cell.
    """
    ones = float(y.sum())
    zeros = len(y) - ones
    if not ones or not zeros:
        return float("nan")
    _, place, counts = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((rank[y == 1.0].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def mean_off(p: Floats, y: Floats) -> float:
    """Return (Σp - Σy) / Σy; NaN before an outcome above 0."""
    return float((p.sum() - y.sum()) / y.sum()) if y.sum() else float("nan")


def curve(p: Floats, y: Floats) -> Curve:
    """Return the reliability curve of forecasts ``p`` in [0, 1] against outcomes ``y`` in {0, 1}, [n] each."""
    index = bin_of(p)
    n = np.bincount(index, minlength=BINS).astype(np.float64)
    filled = np.where(n, n, np.nan)
    forecast = np.bincount(index, weights=p, minlength=BINS) / filled
    observed = np.bincount(index, weights=y, minlength=BINS) / filled
    low, high = np.array([wilson(*each) for each in zip(observed.tolist(), filled.tolist(), strict=True)]).T
    return Curve(n, forecast, observed, low, high)


def draw(raw: Floats, calibrated: Floats, y: Floats, path: Path, *, title: str, subtitle: str = "") -> None:
    """Write the diagram as PNG, 1200 x 960 pixels.

    Parameters
    ----------
    raw, calibrated
        Forecasts before and after calibration, in [0, 1], [n].
    y
        Outcomes, 0 or 1, [n].
    path
        Where to write; its directory is made.
    """
    with mpl.rc_context(STYLE):
        # A Figure without pyplot has no global state, and always uses the Agg canvas.
        figure = Figure(figsize=(8, 6.4), dpi=150, facecolor="white")
        top, bottom = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": (3.4, 1), "hspace": 0.08},
        )  # fmt: skip
        figure.subplots_adjust(left=0.1, right=0.965, bottom=0.09, top=0.87)
        figure.text(0.1, 0.945, title, fontsize=15, fontweight="bold", va="center")
        figure.text(0.1, 0.9, subtitle, fontsize=10.5, color=GREY, va="center")

        top.plot([0, 1], [0, 1], color=GREY, linewidth=1, dashes=(4, 3), label="perfect")
        for name, p, colour in (("raw", raw, RAW), ("calibrated", calibrated, CALIBRATED)):
            _band(top, curve(p, y), colour, f"{name:<12}{_caption(loss(p, y))}")
            edges = np.linspace(0, 1, 51)
            bottom.hist(p, edges, color=colour, alpha=0.25, histtype="stepfilled")
            bottom.hist(p, edges, color=colour, linewidth=1.3, histtype="step")
        top.set(xlim=(0, 1), ylim=(0, 1), ylabel="observed frequency")
        top.legend(loc="upper left", frameon=False, prop={"family": "DejaVu Sans Mono", "size": 10.5})
        key = f"shades and whiskers: 95 % intervals\nhollow: bins with less than {SPARSE:.1%} of the events"
        top.text(0.985, 0.03, key, ha="right", linespacing=1.4, fontsize=9.5, color=GREY)
        top.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        bottom.set(xlabel="forecast probability", ylabel="events")
        bottom.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        bottom.yaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n / 1000:g}k" if n >= 1000 else f"{n:g}"))
        for axes in (top, bottom):
            axes.set_xticks(np.linspace(0, 1, BINS + 1))
            axes.grid(color=FAINT, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(length=0, pad=7)
        path.parent.mkdir(parents=True, exist_ok=True)
        with written(path) as file:
            figure.savefig(file, format=path.suffix[1:] or "png")


def _band(axes: Axes, bins: Curve, colour: str, label: str) -> None:
    sparse = bins.n < SPARSE * bins.n.sum()
    few, seen = (bins.n >= FEWEST) & sparse, ~sparse
    x = bins.forecast[seen]
    axes.fill_between(x, bins.low[seen], bins.high[seen], color=colour, alpha=0.18, linewidth=0)
    axes.plot(x, bins.observed[seen], color=colour, linewidth=2, marker="o", markersize=5.5, label=label)
    axes.vlines(bins.forecast[few], bins.low[few], bins.high[few], color=colour, alpha=0.35, linewidth=1)
    axes.plot(
        bins.forecast[few], bins.observed[few], "o", color=colour, alpha=0.6, markerfacecolor="white", markersize=4.5
    )


def _caption(scores: ReliabilityErrors) -> str:
    return f"ECE {scores.ece:.4f}   Brier {scores.brier:.4f}"
