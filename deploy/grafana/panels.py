"""What dashboards are made of: queries, panels, variables, and their JSON as Grafana 11 reads it.

Typed builders of our own: the newest release of Grafana's SDK on PyPI describes Grafana 10.1, whose scatter panel, the
reliability diagram, has another schema than that of Grafana 11.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

#: Columns of Grafana's grid.
COLUMNS: Final = 24
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
#: Matchers of series that workers export, and of those that rules record over all workers.
APP: Final = 'app=~"$app"'
WORKER: Final = f'{APP}, job=~"$job", instance=~"$instance"'
JOB: Final = f'{APP}, job=~"$job"'
#: Alerts of an application that fire; those of a target that cannot be scraped name none. More matchers may follow.
ALERTS: Final = 'ALERTS{alertstate="firing", alertname=~"Trueup.+", app=~"$app|"'
#: Decimals of a column that has a unit of its own.
DECIMALS: Final = {"locale": 0, "percentunit": 1}
QUOTE: Final = '"'
#: Raw forecasts, calibrated ones, what is neither, and what is bad.
RAW, CALIBRATED, MUTED, BAD = "#e0a030", "#3274d9", "#808080", "#d44a3a"

#: From where on a value is drawn in which colour; None: from below.
Level = tuple[float | None, str]
Kind = Literal["stat", "timeseries", "table", "xychart", "bargauge"]


def of(name: str, **labels: str) -> str:
    """Return the selector of a recorded series; ``$stream`` and ``$window`` are variables of the dashboard."""
    return f"{name}{{{', '.join((JOB, *(f'{label}={QUOTE}{value}{QUOTE}' for label, value in labels.items())))}}}"


def over(operator: str, series: str, *by: str) -> str:
    """Return an aggregation."""
    return f"{operator} by ({', '.join(by)}) ({series})" if by else f"{operator}({series})"


@dataclass(frozen=True)
class Query:
    """A query of a panel.

    Attributes
    ----------
    expr
        PromQL.
    legend
        Name of its series, with labels as ``{{label}}``; of its column in a table.
    color
        Of its series; by the palette if it is empty.
    style
        How a scatter panel or a line is drawn.
    quiet
        Whether it may have no result while all is well.
    """

    expr: str
    legend: str = ""
    color: str = ""
    style: Literal["line", "dashed", "points"] = "line"
    quiet: bool = False


@dataclass(frozen=True)
class Panel:
    """A panel. Its height and width are in units of the grid, which has 24 columns.

    Attributes
    ----------
    title, description
        What is seen, and what to make of it.
    queries
        Of a table and a scatter panel, one a column, joined by ``by``.
    levels
        From where on a value is drawn in which colour, the first without a limit.
    alert
        The alert whose entry in the runbook it links to.
    links, units, limits
        By column of a table: the address its cells lead to, its unit, its levels.
    curves
        Of a scatter panel: the columns of x and of y.
    log
        Whether values stand by powers of ten: rates that are far apart, and small.
    """

    kind: Kind
    title: str
    description: str
    queries: Sequence[Query]
    unit: str
    width: int = 8
    height: int = 8
    decimals: int | None = None
    low: float | None = None
    high: float | None = None
    levels: Sequence[Level] = ((None, "green"),)
    by: str = ""
    alert: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    curves: Sequence[tuple[str, str]] = ()
    log: bool = False

    @property
    def instant(self) -> bool:
        """Whether it shows one moment."""
        return self.kind in {"stat", "table", "xychart", "bargauge"}

    def json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """Return the panel, placed."""
        made: dict[str, Any] = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "pluginVersion": "11.5.2",
            "targets": [self._target(query, i) for i, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": list(self._overrides())},
            "options": self._options(),
        }
        if self.alert:
            made["links"] = [{"title": f"Runbook: {self.alert}", "url": runbook(self.alert), "targetBlank": True}]
        if self.kind in {"table", "xychart"}:
            made["transformations"] = self._transformations()
        return made

    def _target(self, query: Query, i: int) -> dict[str, Any]:
        return {
            "refId": chr(ord("A") + i),
            "datasource": SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": self.instant,
            "range": not self.instant,
            "format": "table" if self.kind in {"table", "xychart"} else "time_series",
            "editorMode": "code",
        }

    def _defaults(self) -> dict[str, Any]:
        steps = [{"value": value, "color": color} for value, color in self.levels]
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "thresholds": {"mode": "absolute", "steps": steps},
            "color": {"mode": "palette-classic" if self.kind in {"timeseries", "xychart"} else "thresholds"},
            "custom": {},
        }
        limits = {"decimals": self.decimals, "min": self.low, "max": self.high}
        defaults |= {name: value for name, value in limits.items() if value is not None}
        if self.kind == "timeseries":
            defaults["custom"] = {
                "drawStyle": "line",
                "lineWidth": 2,
                "fillOpacity": 0,
                "showPoints": "never",
                "spanNulls": False,
                "thresholdsStyle": {"mode": "dashed" if len(self.levels) > 1 else "off"},
            }
        elif self.kind == "xychart":
            defaults["custom"] = {
                "show": "points+lines",
                "pointSize": {"fixed": 7},
                "lineWidth": 2,
                "axisPlacement": "auto",
            }
        elif self.kind == "table":
            defaults["custom"] = {"align": "auto", "cellOptions": {"type": "color-text"}, "filterable": True}
        if self.log:
            defaults["custom"]["scaleDistribution"] = {"type": "log", "log": 10}
        return defaults

    def _overrides(self) -> Iterator[dict[str, Any]]:
        for i, query in enumerate(self.queries):
            properties: list[dict[str, Any]] = []
            if query.color:
                properties.append({"id": "color", "value": {"mode": "fixed", "fixedColor": query.color}})
            if query.style == "dashed":
                properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}})
                if self.kind == "xychart":
                    properties.append({"id": "custom.show", "value": "lines"})
            if properties and self.kind == "xychart":
                yield {"matcher": {"id": "byName", "options": query.legend}, "properties": properties}
            elif properties:
                yield {"matcher": {"id": "byFrameRefID", "options": chr(ord("A") + i)}, "properties": properties}
        for column, url in self.links.items():
            link = {"title": "Open", "url": url}
            yield {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "links", "value": [link]}]}
        for column in dict.fromkeys([*self.units, *self.limits]):
            properties = []
            if column in self.units:
                properties.append({"id": "unit", "value": self.units[column]})
                properties.append({"id": "decimals", "value": DECIMALS[self.units[column]]})
            if column in self.limits:
                steps = [{"value": value, "color": color} for value, color in self.limits[column]]
                properties.append({"id": "thresholds", "value": {"mode": "absolute", "steps": steps}})
            yield {"matcher": {"id": "byName", "options": column}, "properties": properties}

    def _options(self) -> dict[str, Any]:
        if self.kind == "stat":
            return {
                "colorMode": "background_solid" if len(self.levels) > 1 else "none",
                "graphMode": "none",
                "textMode": "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            }
        if self.kind == "bargauge":
            return {
                "displayMode": "basic",
                "orientation": "horizontal",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            }
        if self.kind == "table":
            return {"showHeader": True, "cellHeight": "sm"}
        if self.kind == "xychart":
            return {
                "mapping": "manual",
                "series": [
                    {
                        "frame": {"matcher": {"id": "byIndex", "options": 0}},
                        "name": {"fixed": y},
                        "x": {"matcher": {"id": "byName", "options": x}},
                        "y": {"matcher": {"id": "byName", "options": y}},
                    }
                    for x, y in self.curves
                ],
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "single"},
            }
        return {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"], "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }

    def _transformations(self) -> list[dict[str, Any]]:
        names = {f"Value #{chr(ord('A') + i)}": query.legend for i, query in enumerate(self.queries)}
        times = {name: True for i in range(1, len(self.queries) + 1) for name in (f"Time {i}",)} | {"Time": True}
        return [
            {"id": "joinByField", "options": {"byField": self.by, "mode": "outer"}},
            {"id": "organize", "options": {"excludeByName": times, "renameByName": names}},
        ]


def runbook(alert: str) -> str:
    """Return the address of an alert's entry; ``runbooks`` is a variable, because nobody knows where yours are."""
    return f"${{runbooks}}#{alert.lower()}"


@dataclass(frozen=True)
class Row:
    """Panels under a title, from left to right, wrapping."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard.

    Attributes
    ----------
    variables
        Those beyond data source, application, job and instance: name, label, and either a query or the values.
    """

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[tuple[str, str, str | tuple[str, ...]]] = ()

    def panels(self) -> Iterator[Panel]:
        """Yield all panels."""
        for row in self.rows:
            yield from row.panels

    def json(self) -> dict[str, Any]:
        """Return the dashboard as Grafana imports it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["trueup"],
            "editable": False,
            "graphTooltip": 1,
            "schemaVersion": 39,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "browser",
            "links": [
                {
                    "title": "trueup",
                    "type": "dashboards",
                    "tags": ["trueup"],
                    "asDropdown": False,
                    "includeVars": True,
                    "keepTime": True,
                }
            ],
            "templating": {"list": list(self._variables())},
            "annotations": {"list": [_ALERTS]},
            "panels": list(self._placed()),
        }

    def _variables(self) -> Iterator[dict[str, Any]]:
        yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}
        yield _asked("app", "Application", "label_values(trueup_build_info, app)", several=False)
        yield _asked("job", "Job", f"label_values(trueup_build_info{{{APP}}}, job)", several=True)
        yield _asked("instance", "Instance", f"label_values(trueup_build_info{{{JOB}}}, instance)", several=True)
        for name, label, given in self.variables:
            if isinstance(given, str):
                yield _asked(name, label, given, several=False)
            else:
                options = [{"text": value, "value": value, "selected": value == given[0]} for value in given]
                yield {
                    "name": name,
                    "label": label,
                    "type": "custom",
                    "query": ",".join(given),
                    "options": options,
                    "current": options[0],
                }
        yield {
            "name": "runbooks",
            "label": "Runbook",
            "type": "constant",
            "query": "docs/how-to/runbook.md",
            "hide": 2,
            "description": "Address of your copy of docs/how-to/runbook.md",
        }

    def _placed(self) -> Iterator[dict[str, Any]]:
        number, y = 1, 0
        for row in self.rows:
            yield {
                "id": number,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
                "panels": [],
            }
            number, y, x, tallest = number + 1, y + 1, 0, 0
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y, tallest = 0, y + tallest, 0
                yield panel.json(number, x, y)
                number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
            y += tallest


def _asked(name: str, label: str, query: str, *, several: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": f"Variable-{name}"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
    }
    if several:
        made |= {"allValue": ".+", "current": {"text": "All", "value": "$__all"}}
    return made


#: Marks when alerts fired.
_ALERTS: Final = {
    "name": "Alerts",
    "enable": True,
    "iconColor": "red",
    "datasource": SOURCE,
    "expr": f'{ALERTS}, severity!="info"}}',
    "titleFormat": "{{alertname}}",
    "textFormat": "{{stream}} {{instance}}",
    "step": "60s",
}
