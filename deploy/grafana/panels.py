"""What dashboards are made of: queries, panels, variables, and their JSON as Grafana 11 reads it.

The dashboards are ``overview.toml``, ``stream.toml`` and ``operations.toml``: their keys are the attributes of classes.
Queries are written without the matchers that all of them have, see `matched`.

The typed builders are our own: the newest Grafana SDK on PyPI describes Grafana 10.1, whose scatter panel, the
reliability diagram, has another schema than that of Grafana 11.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from deploy.grafana.runbook import PANELS, address

#: Columns of Grafana's grid.
COLUMNS: Final = 24
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
#: Matchers of series that workers export; and of series that rules record over all workers.
APP: Final = 'app=~"$app"'
WORKER: Final = f'{APP}, job=~"$job", instance=~"$instance"'
JOB: Final = f'{APP}, job=~"$job"'
#: Firing alerts of an application. Alerts about a target that cannot be scraped name no application.
ALERTS: Final = 'alertstate="firing", alertname=~"Trueup.+", app=~"$app|"'
#: A series in PromQL: its name, and its matchers in addition to those that all have.
_SERIES: Final = re.compile(r"(?<![\w:])(ALERTS|[a-z_]+:trueup_\w+:\w+|(?:trueup|process)_\w+)(?:\{([^}]*)\})?")
#: Decimals of a column that has its own unit. Shares have none, so that Grafana shows .4 % and .0041 % alike.
DECIMALS: Final = {"locale": 0}
#: Colours of raw forecasts, of calibrated ones, of what is neither, and of what is bad.
COLORS: Final = {"raw": "#e0a030", "calibrated": "#3274d9", "muted": "#808080", "bad": "#d44a3a"}
#: The column of alerts whose cells show, and lead to, the alerts' entries in the runbook.
ENTRY: Final = "entry"
#: What the word ``kind`` stands for in a query or a panel that has ``kinds``.
KINDS: Final = ("raw", "calibrated")

#: From which value on which colour is used; None: from the bottom.
Level = tuple[float | None, str]
Kind = Literal["stat", "timeseries", "table", "xychart"]


def matched(expr: str, *, of_a_stream: bool) -> str:
    """Return PromQL with what its series are all matched by: application, job, and worker, if each exports its own.

    On a stream's dashboard, recorded series of streams are those of ``$stream``.
    """

    def series(found: re.Match[str]) -> str:
        name, more = found[1], found[2]
        common = [ALERTS if name == "ALERTS" else JOB if ":" in name else WORKER]
        common += ['stream="$stream"'] if of_a_stream and name.startswith("stream") else []
        return f"{name}{{{', '.join([*common, *([more] if more else [])])}}}"

    return _SERIES.sub(series, " ".join(expr.split()))


def _levels(given: Sequence[Any]) -> tuple[Level, ...]:
    """Return levels: a colour, then in turns a value and the colour from there on."""
    return ((None, given[0]), *zip(given[1::2], given[2::2], strict=True))


def _thresholds(levels: Sequence[Level]) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in levels]}


@dataclass(frozen=True)
class Query:
    """A query of a panel."""

    #: PromQL.
    expr: str
    #: Name of its series, with labels as ``{{label}}``; or of its column in a table.
    legend: str = ""
    #: Colour of its series; if empty, from the palette.
    color: str = ""
    #: Whether its line is dashed; and whether it may have no result while all is well.
    dashed: bool = False
    quiet: bool = False
    #: Unit and levels of its column in a table, if they are not those of the panel.
    unit: str = ""
    levels: Sequence[Level] = ()

    @classmethod
    def read(cls, table: Mapping[str, Any], kind: str, *, of_a_stream: bool) -> "Query":
        """Return a query. In it, ``$kind`` is the kind of forecast."""
        given: dict[str, Any] = {
            name: said.replace("$kind", kind) if isinstance(said, str) else said for name, said in table.items()
        }
        given["expr"] = matched(given["expr"], of_a_stream=of_a_stream)
        color = given.get("color", "")
        given["color"] = COLORS.get(kind if color == "kind" else color, "")
        return cls(**given | {"levels": _levels(given["levels"]) if "levels" in given else ()})


def _queries(table: Mapping[str, Any], *, of_a_stream: bool) -> Iterator[Query]:
    """Yield a panel's queries; those with ``kinds``, or all, once for each kind of forecast."""
    for kind in KINDS if table.get("kinds") else ("",):
        for each in table["queries"]:
            if each.get("kinds"):
                both = {"legend": "$kind", "color": "kind"} | {n: v for n, v in each.items() if n != "kinds"}
                yield from (Query.read(both, of, of_a_stream=of_a_stream) for of in KINDS)
            else:
                yield Query.read(each, kind, of_a_stream=of_a_stream)


@dataclass(frozen=True)
class Panel:
    """A panel. Width and height are in units of the grid, which has 24 columns."""

    #: What it shows; and what to make of it.
    title: str
    description: str
    #: In tables and scatter panels, one for each column; they are joined by ``by``.
    queries: Sequence[Query]

    kind: Kind = "timeseries"
    unit: str = "none"
    size: Sequence[int] = (8, 8)
    decimals: int | None = None
    low: float | None = None
    high: float | None = None
    #: From which value on which colour is used; the first colour has no lower limit.
    levels: Sequence[Level] = ((None, "green"),)

    by: str = ""
    #: The alert to whose runbook entry it links.
    alert: str = ""
    #: By column of a table: the address to which its cells link.
    links: Mapping[str, str] = field(default_factory=dict)
    #: In a scatter panel: the columns of x and of y.
    curves: Sequence[Sequence[str]] = ()
    #: Whether the scale is logarithmic: for rates that are small and far apart.
    log: bool = False
    #: The column by which a table's rows are ordered, the largest first. Of hundreds of rows, one page is shown.
    order: str = ""

    @classmethod
    def read(cls, table: Mapping[str, Any], *, of_a_stream: bool) -> "Panel":
        """Return the panel that a table describes."""
        given = {name: said for name, said in table.items() if name != "kinds"}
        given["description"] = " ".join(given["description"].split())
        given["queries"] = tuple(_queries(table, of_a_stream=of_a_stream))
        given["curves"] = [
            [each.replace("$kind", of) for each in curve] for of in KINDS for curve in table.get("curves", ())
        ]
        return cls(**given | ({"levels": _levels(given["levels"])} if "levels" in given else {}))

    @property
    def instant(self) -> bool:
        """Whether it shows a single moment."""
        return self.kind != "timeseries"

    def json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """Return the panel with its place."""
        made: dict[str, Any] = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.size[0], "h": self.size[1]},
            "pluginVersion": "11.5.2",
            "targets": [self._target(query, i) for i, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": list(self._overrides())},
            "options": self._options(),
        }
        if self.alert:
            made["links"] = [{"title": f"Runbook: {self.alert}", "url": address(self.alert), "targetBlank": True}]
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
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "thresholds": _thresholds(self.levels),
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
            if query.dashed:
                properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}})
                if self.kind == "xychart":
                    properties.append({"id": "custom.show", "value": "lines"})
            if properties and self.kind == "xychart":
                yield {"matcher": {"id": "byName", "options": query.legend}, "properties": properties}
            elif properties:
                yield {"matcher": {"id": "byFrameRefID", "options": chr(ord("A") + i)}, "properties": properties}
        yield from self._linked()
        for query in self.queries:
            properties = []
            if query.unit:
                properties.append({"id": "unit", "value": query.unit})
                if query.unit in DECIMALS:
                    properties.append({"id": "decimals", "value": DECIMALS[query.unit]})
            if query.levels:
                properties.append({"id": "thresholds", "value": _thresholds(query.levels)})
            if properties:
                yield {"matcher": {"id": "byName", "options": query.legend}, "properties": properties}

    def _linked(self) -> Iterator[dict[str, Any]]:
        for column, url in self.links.items():
            properties: list[dict[str, Any]] = [{"id": "links", "value": [{"title": "Open", "url": url}]}]
            if column == ENTRY:
                numbers = {alert: {"index": at, "text": str(at)} for alert, at in PANELS.items()}
                properties.append({"id": "mappings", "value": [{"type": "value", "options": numbers}]})
            yield {"matcher": {"id": "byName", "options": column}, "properties": properties}

    def _options(self) -> dict[str, Any]:
        if self.kind == "stat":
            several = len(self.queries) > 1
            return {
                "colorMode": "value" if several else "background_solid" if len(self.levels) > 1 else "none",
                "graphMode": "none",
                "textMode": "value_and_name" if several else "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            }
        if self.kind == "table":
            made: dict[str, Any] = {"showHeader": True, "cellHeight": "sm", "footer": {"enablePagination": True}}
            return made | ({"sortBy": [{"displayName": self.order, "desc": True}]} if self.order else {})
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
