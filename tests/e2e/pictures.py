"""``python -m tests.e2e.pictures DIRECTORY [STREAMS]``: draw what the dashboards' queries answer, to be looked at.

A real Prometheus scrapes two real workers under load. These are drawings of its answers, not screenshots of Grafana,
which is not installable here: they show whether a panel says what somebody needs to know, not how Grafana draws it.
"""

import math
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deploy.grafana.dashboard import Dashboard
from deploy.grafana.panels import COLUMNS, DECIMALS, Panel, Query
from deploy.grafana.write import DASHBOARDS
from lab.broker import Broker
from tests.e2e.prometheus import Series, Server, watched
from tests.e2e.world import World

mpl.use("agg")

#: Inches of a column and of a line of the grid, and how far back the panels look, s.
WIDE, TALL, SPAN = 0.85, 0.42, 60.0
NOTE: Final = "drawn from the answers of Prometheus to this dashboard's queries; not a screenshot of Grafana"


def draw(dashboard: Dashboard, server: Server, path: Path) -> None:
    """Draw every panel where its dashboard places it, with all rows open."""
    dashboard = replace(dashboard, rows=[replace(row, collapsed=False) for row in dashboard.rows])
    document = dashboard.json()["panels"]
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in document) + 1
    figure = Figure(figsize=(COLUMNS * WIDE, height * TALL), dpi=70)
    figure.text(0.01, 1 - 0.5 / height, f"{dashboard.title}  ({NOTE})", va="center", fontsize=12, weight="bold")
    panels = iter(dashboard.panels())
    for each in document:
        at = each["gridPos"]
        bottom = 1 - (1 + at["y"] + at["h"]) / height
        if each["type"] == "row":
            figure.text(
                0.01, bottom + 0.3 / height, each["title"].replace("$", ""), fontsize=12, color="#444444", weight="bold"
            )
            continue
        panel = next(panels)
        margin = (0.3, 0.35) if panel.kind in {"stat", "table"} else (1.1, 1.1)
        axes = figure.add_axes(
            (
                (at["x"] + margin[0]) / COLUMNS,
                bottom + margin[1] / height,
                (at["w"] - margin[0] - 0.3) / COLUMNS,
                (at["h"] - margin[1] - 1.0) / height,
            )
        )
        axes.set_title(panel.title, fontsize=9, loc="left")
        answers = [server.shown(panel, query, SPAN) for query in panel.queries]
        if panel.kind == "stat":
            _stat(axes, panel, answers)
        elif panel.kind == "table":
            _table(axes, panel, answers)
        elif panel.kind == "xychart":
            _scatter(axes, panel, answers)
        else:
            _lines(axes, panel, answers)
    figure.savefig(path)


def _text(value: float, unit: str, decimals: int | None) -> str:
    if math.isnan(value):
        return "–"
    if unit == "percentunit":
        return f"{100 * value:.3g} %" if decimals is None else f"{100 * value:.{decimals}f} %"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    return f"{value:,.{decimals}f}" if decimals is not None else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def _cell(panel: Panel, query: Query, value: float) -> str:
    return _text(value, query.unit or panel.unit, DECIMALS.get(query.unit) if query.unit else panel.decimals)


def _color(value: float, levels: object) -> str:
    color = "black"
    for start, name in levels:  # type: ignore[attr-defined]
        if start is None or value >= start:
            color = {"text": "black"}.get(name, name)
    return color


def _stat(axes: Axes, panel: Panel, answers: list[list[Series]]) -> None:
    axes.set_axis_off()
    for at, (query, answer) in enumerate(zip(panel.queries, answers, strict=True)):
        value = answer[0].values[0] if answer else math.nan
        x = (at + 0.5) / len(answers)
        color = query.color or _color(value, panel.levels)
        said = _text(value, panel.unit, panel.decimals)
        axes.text(x, 0.45, said, ha="center", va="center", fontsize=20, color=color)
        if len(answers) > 1:
            axes.text(x, 0.95, query.legend, ha="center", va="center", fontsize=9, color="#444444")


def _table(axes: Axes, panel: Panel, answers: list[list[Series]]) -> None:
    axes.set_axis_off()
    rows: dict[str, list[float]] = defaultdict(lambda: [math.nan] * len(answers))
    for column, answer in enumerate(answers):
        for series in answer:
            rows[series.labels.get(panel.by, "")][column] = series.values[0]
    if not rows:
        axes.text(0.5, 0.5, "empty", ha="center", color="gray")
        return
    names = [query.legend for query in panel.queries]
    page = sorted(rows.items())
    if panel.order:
        at = names.index(panel.order)
        page.sort(key=lambda row: -math.inf if math.isnan(row[1][at]) else row[1][at], reverse=True)
    del page[max(panel.size[1] - 3, 1) :]  # as many as Grafana shows on a page
    cells = [
        [name, *(_cell(panel, query, value) for query, value in zip(panel.queries, values, strict=True))]
        for name, values in page
    ]
    table = axes.table(cells, colLabels=[panel.by, *names], loc="upper center", cellLoc="center")
    table.auto_set_font_size(value=False)
    table.set_fontsize(8)
    for i, (_, values) in enumerate(page):
        for j, (value, query) in enumerate(zip(values, panel.queries, strict=True)):
            if query.levels and not math.isnan(value):
                table[i + 1, j + 1].get_text().set_color(_color(value, query.levels))


def _scatter(axes: Axes, panel: Panel, answers: list[list[Series]]) -> None:
    queries = {query.legend: query for query in panel.queries}
    columns = {
        query.legend: {each.labels[panel.by]: each.values[0] for each in answer}
        for query, answer in zip(panel.queries, answers, strict=True)
    }
    for x, y in panel.curves:
        shared = sorted(columns[x].keys() & columns[y].keys())
        points = sorted((columns[x][each], columns[y][each]) for each in shared)
        query = queries[y]
        style = {"linestyle": "--", "linewidth": 1} if query.dashed else {"marker": "o", "linewidth": 2}
        axes.plot(*np.array(points).T, color=query.color or None, label=y, **style)  # type: ignore[arg-type]
    if panel.log:
        axes.set(xscale="log", yscale="log")
    else:
        axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize=7)


def _lines(axes: Axes, panel: Panel, answers: list[list[Series]]) -> None:
    for query, answer in zip(panel.queries, answers, strict=True):
        for series in answer:
            name = query.legend
            for label, value in series.labels.items():
                name = name.replace(f"{{{{{label}}}}}", value)
            style = "--" if query.dashed else "-"
            ago = np.array(series.times) - series.times[-1]
            axes.plot(ago, series.values, style, color=query.color or None, label=name)
    if panel.log:
        axes.set_yscale("log")
    for start, color in panel.levels[1:]:
        if start is not None and axes.get_ylim()[1] > start / 2:
            axes.axhline(start, color=color, linestyle=":", linewidth=1)
    if panel.low is not None:
        axes.set_ylim(bottom=panel.low)
    axes.set_ylabel(panel.unit, fontsize=7)
    axes.tick_params(labelsize=7)
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(fontsize=6, loc="best")


if __name__ == "__main__":
    target, streams = Path(sys.argv[1]), int((*sys.argv[2:], "2")[0])
    with tempfile.TemporaryDirectory() as scratch, Broker() as broker:
        world = World(broker.bootstrap, Path(scratch))
        with watched(world, 20, streams) as (server, _):
            for each in DASHBOARDS:
                draw(each, server, target / f"{each.uid}.png")
