"""Pictures of measurements."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

_OURS, _OTHERS, _INK, _FAINT = "#1f6f8b", "#b9c3c8", "#26323a", "#dfe4e7"
_STYLE: Final[Any] = {"font.family": "DejaVu Sans", "font.size": 11, "text.color": _INK, "axes.labelcolor": _INK}


def _save(figure: Figure, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)


def bars(result: Mapping[str, Mapping[str, float]], title: str, out: Path) -> None:
    """Draw events/s, CPU an event and memory of each contender, the fastest on top."""
    panels = {"events_per_s": "events a second", "cpu_us_per_event": "CPU, µs an event", "rss_mb": "memory, MB"}
    names = sorted(result, key=lambda name: result[name]["events_per_s"])
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(12, 0.55 * len(names) + 1.6), layout="constrained")
        figure.suptitle(title)
        for i, (key, label) in enumerate(panels.items()):
            axes = figure.add_subplot(1, 3, i + 1)
            values = [result[name][key] for name in names]
            colours = [_OURS if name.startswith("trueup") else _OTHERS for name in names]
            drawn = axes.barh(names, values, color=colours, height=0.7)
            axes.bar_label(drawn, [f"{value:,.0f}" for value in values], padding=4, fontsize=10)
            axes.set_title(label, fontsize=11, loc="left")
            axes.set_xlim(0, max(values) * 1.25)
            axes.set_xticks([])
            axes.tick_params(left=False, labelleft=i == 0)
            axes.spines[["top", "right", "bottom"]].set_visible(False)
            axes.spines["left"].set_color(_FAINT)
        _save(figure, out)
