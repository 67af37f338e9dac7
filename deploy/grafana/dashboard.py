"""A dashboard: panels in rows, variables, and its JSON as Grafana 11 reads it."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.grafana.panels import APP, COLUMNS, JOB, SOURCE, Panel, matched


@dataclass(frozen=True)
class PanelRow:
    """Panels under a title, from left to right, wrapping."""

    title: str
    panels: Sequence[Panel]
    #: Whether it opens on demand, and queries nothing before that: for what most streams do not have.
    collapsed: bool = False


@dataclass(frozen=True)
class Dashboard:
    """A dashboard."""

    uid: str
    title: str
    description: str
    rows: Sequence[PanelRow]
    #: Variables, beside data source, application, job and instance: name, label, and either a query or the values.
    variables: Sequence[tuple[str, str, str | Sequence[str]]] = ()

    @classmethod
    def read(cls, path: Path) -> "Dashboard":
        """Return the dashboard that a file describes."""
        given = tomllib.loads(path.read_text())
        of_a_stream = any(name == "stream" for name, *_ in given.get("variables", ()))
        rows = [
            PanelRow(**row | {"panels": [Panel.read(each, of_a_stream=of_a_stream) for each in row["panels"]]})
            for row in given["rows"]
        ]
        return cls(**given | {"rows": rows})

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

    def _placed(self) -> Iterator[dict[str, Any]]:
        number, y = 1, 0
        for row in self.rows:
            top, panels = y, []
            head = {
                "id": number,
                "type": "row",
                "title": row.title,
                "collapsed": row.collapsed,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            }
            number, y, x, tallest = number + 1, y + 1, 0, 0
            for panel in row.panels:
                if x + panel.size[0] > COLUMNS:
                    x, y, tallest = 0, y + tallest, 0
                panels.append(panel.json(number, x, y))
                number, x, tallest = number + 1, x + panel.size[0], max(tallest, panel.size[1])
            y = top + 1 if row.collapsed else y + tallest
            yield head | {"panels": panels if row.collapsed else []}
            yield from () if row.collapsed else panels


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
    "expr": matched('ALERTS{severity!="info"}', of_a_stream=False),
    "titleFormat": "{{alertname}}",
    "textFormat": "{{stream}} {{instance}}",
    "step": "60s",
}
