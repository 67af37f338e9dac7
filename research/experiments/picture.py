"""Draw the report's pictures in one style, with one colour for each thing that is compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streams.atomic_file import written

INK, GREY, FAINT = "#26323a", "#5b6870", "#dfe4e7"
#: Colours for people with colour blindness, too (Okabe & Ito, darkened to be readable on white).
COLOURS: Final = ("#1f6f8b", "#c2571a", "#5a8f29", "#8a4f9e", "#b8860b", "#3b4cc0", "#5b6870")

_STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "axes.prop_cycle": cycler(color=COLOURS),
}


def draw(
    path: Path,
    paint: Callable[[Any], None],
    *,
    title: str,
    rows: int = 1,
    columns: int = 1,
    size: tuple[float, float] = (9.0, 4.2),
    **options: Any,  # noqa: ANN401 - matplotlib's
) -> str:
    """Write a PNG and return its name; ``paint`` gets the axes as [rows, columns]."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, dpi=130, facecolor="white", layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        paint(figure.subplots(rows, columns, squeeze=False, **options))
        path.parent.mkdir(parents=True, exist_ok=True)
        with written(path) as file:  # no version in the file: equal numbers, equal bytes
            figure.savefig(file, format=path.suffix[1:] or "png", metadata={"Software": None})
    return path.name


def logarithmic(axes: Axes) -> None:
    """Make both axes logarithmic."""
    axes.set(xscale="log", yscale="log")
    axes.grid(which="minor", visible=False)
    axes.minorticks_off()
