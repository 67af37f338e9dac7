"""The picture of a demo: pictures of the report, side by side in one file that any browser shows."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from agents.status import page
from agents.status.markup import Markup, tag
from agents.status.pictures import Period
from state.arrays import Floats
from streams.atomic_file import written

#: Bins of a reliability diagram, all with the same number of events.
BINS: Final = 20
#: In units: the room around pictures, the baseline of the title, and the distance of the lines below it.
_MARGIN, _TITLE, _LINE = 16.0, 28.0, 19.0
_STYLE: Final = """
svg { background: var(--paper); }
.title { font: 600 17px var(--sans); fill: var(--ink); }
.lines { font: 12px var(--sans); fill: var(--grey); }
"""


def bins(p: Floats, y: Floats, count: int = BINS) -> list[dict[str, Any]]:
    """Return events in the order of their forecast, in groups of equal size: events, mean forecast, mean outcome.

    ``p`` are forecasts in [0, 1], ``y`` outcomes in {0, 1}, [n] each.
    """
    groups = np.array_split(np.argsort(p, kind="stable"), count)
    return [
        {"n": len(each), "forecast": float(p[each].mean()), "outcome": float(y[each].mean())}
        for each in groups
        if len(each)
    ]


def periods(ms: Floats, raw: Floats, served: Floats, y: Floats, count: int) -> list[Period]:
    """Cut the time into this many spans of equal length; return those with events. All [n]; ``ms`` ascends."""
    edges = np.linspace(ms[0], ms[-1], count + 1)
    at = [*np.searchsorted(ms, edges[:-1]).tolist(), len(ms)]
    found = []
    for start, end, (first, last) in zip(edges, edges[1:], pairwise(at), strict=False):
        if last > first:
            n, mean = last - first, float(served[first:last].mean())
            chance = 1.96 * float(np.sqrt(mean * (1.0 - mean) / n))
            happened, model = float(y[first:last].mean()), float(raw[first:last].mean())
            found.append(Period(float(start), float(end), n, happened, model, mean, chance))
    return found


def write(path: Path, title: str, lines: Sequence[str], pictures: Sequence[Markup]) -> None:
    """Write pictures of `agents.status.pictures` side by side, below a title and lines, as one SVG.

    Its directory is made.
    """
    placed, left, lowest = list[Markup](), _MARGIN, 0.0
    below = [_TITLE + _LINE * (n + 1) for n in range(len(lines))]
    top = below[-1] + _MARGIN
    for drawn in pictures:
        width, height = map(float, drawn.partition('viewBox="0 0 ')[2].partition('"')[0].split())
        placed.append(tag("svg", drawn, x=left, y=top, width=width, height=height))
        left, lowest = left + width + _MARGIN, max(lowest, height)
    height = top + lowest + _MARGIN
    whole = tag(
        "svg",
        tag("style", Markup(escape(page.style() + _STYLE, quote=False))),
        tag("text", title, x=_MARGIN, y=_TITLE, class_="title"),
        *(tag("text", line, x=_MARGIN, y=at, class_="lines") for line, at in zip(lines, below, strict=True)),
        *placed,
        xmlns="http://www.w3.org/2000/svg",
        width=left,
        height=height,
        viewBox=f"0 0 {left:g} {height:g}",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path) as file:
        file.write(whole.encode())
