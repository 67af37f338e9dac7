"""The dashboards agree with their sources and keep the rules of Grafana's dashboard linter, which is written in Go."""

import json
import re
from functools import cache
from typing import Any, Final

import pytest

from deploy.grafana import runbook
from deploy.grafana.dashboard import Dashboard
from deploy.grafana.write import DASHBOARDS, DIRECTORY, written
from tests.deploy.queries import calls, exported, names, recorded, rules, selectors

#: Every query, with its dashboard and its panel.
QUERIES: Final = [(each, panel, query) for each in DASHBOARDS for panel in each.panels() for query in panel.queries]
#: Units of Grafana that the panels may use: its id of each, see "Standard options".
UNITS: Final = {"none", "short", "locale", "s", "bytes", "percentunit", "reqps"}
#: Series that Prometheus itself makes, of targets and alerts.
ITS_OWN: Final = {"up", "ALERTS"}


def grounded(query: str) -> str:
    """Return a query as PromQL: with values in place of Grafana's variables."""
    return query.replace("$__rate_interval", "1m")


def made(dashboard: Dashboard) -> list[dict[str, Any]]:
    panels = dashboard.json()["panels"]
    return [each for panel in panels for each in (panel, *panel.get("panels", ())) if each["type"] != "row"]


def test_the_json_is_what_the_sources_say() -> None:
    files = {path: path.read_text() for path in DIRECTORY.iterdir()}
    assert files == written(), "run 'make dashboards'"


def test_a_query_asks_only_for_what_is_exported_or_recorded() -> None:
    for _, panel, query in QUERIES:
        assert names(grounded(query.expr)) <= exported() | recorded() | ITS_OWN, panel.title


def test_a_query_follows_the_variables() -> None:
    """Every selector names application and job; the worker if each exports its own; stream and window as they may."""
    for dashboard, panel, query in QUERIES:
        variables = {name for name, _, _ in dashboard.variables}
        for name, matched in selectors(grounded(query.expr)):
            if name == "ALERTS":
                continue
            assert {"app", "job"} <= set(matched), (panel.title, name)
            assert ("instance" in matched) == (name in exported()), (panel.title, name)
            if "stream" in variables and name.startswith("stream"):
                assert "stream" in matched, (panel.title, name)
            assert (name in windowed()) == ("window" in matched), (panel.title, name)


@cache
def windowed() -> frozenset[str]:
    """Return the recorded names that have a series for each window, by their own rule or by a rule they read."""
    found: set[str] = set()
    for rule in rules():
        if "record" in rule and ("window" in rule.get("labels", {}) or names(rule["expr"]) & found):
            found.add(rule["record"])
    return frozenset(found)


def test_counters_are_shown_as_rates_over_the_interval_of_the_scale() -> None:
    for _, _, query in QUERIES:
        for name, function, span in calls(grounded(query.expr)):
            assert function in {"rate", "increase"} or not name.endswith(("_total", "_bucket", "_count", "_sum")), name
            assert function != "rate" or span == "1m", f"rate({name}) over a span of its own"


def test_a_panel_says_what_it_shows_and_in_what() -> None:
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    for panel in (panel for each in DASHBOARDS for panel in each.panels()):
        assert panel.queries, panel.title
        assert panel.description.endswith("."), panel.title
        assert {panel.unit, *(query.unit or panel.unit for query in panel.queries)} <= UNITS, panel.title
        assert not panel.alert or panel.alert in alerts, panel.title
        columns = {query.legend for query in panel.queries} | {panel.by, "alertname", "entry", ""}
        assert {*panel.links, panel.order} <= columns, panel.title
        assert {column for curve in panel.curves for column in curve} <= columns, panel.title


def test_every_alert_is_linked_from_a_panel() -> None:
    linked = {panel.alert for each in DASHBOARDS for panel in each.panels()}
    assert {rule["alert"] for rule in rules() if "alert" in rule} - linked == {"TrueupWorkerDown"}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_panels_have_names_of_their_own_and_ask_for_variables_that_there_are(dashboard: Dashboard) -> None:
    document, panels = dashboard.json(), made(dashboard)
    variables = {each["name"] for each in document["templating"]["list"]}
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert all(len({target["refId"] for target in each["targets"]}) == len(each["targets"]) for each in panels)
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(document))) - {"__rate_interval", "__value", "__all", "1"}
    assert used <= variables


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_panels_lie_within_the_grid_and_side_by_side(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.json()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_dashboards_link_to_each_other_by_the_names_they_have() -> None:
    uids = {json.loads(text)["uid"] for text in written().values()}
    for text in written().values():
        assert set(re.findall(r"/d/([\w-]+)", text)) <= uids


def test_a_link_to_the_runbook_opens_the_entry_of_its_alert() -> None:
    shown = {panel["id"]: panel for panel in runbook.document()["panels"]}
    for panel in (panel for each in DASHBOARDS for panel in each.panels() if panel.alert):
        (link,) = panel.json(1, 0, 0)["links"]
        entry = shown[int(link["url"].rpartition("=")[2])]
        assert entry["title"] == panel.alert
        assert "**Remedy.**" in entry["options"]["content"]
        assert "](" not in entry["options"]["content"], "a page that Grafana does not have"
    (fires,) = (panel for each in DASHBOARDS for panel in each.panels() if panel.title == "What fires")
    overrides = {
        each["matcher"]["options"]: each["properties"] for each in fires.json(1, 0, 0)["fieldConfig"]["overrides"]
    }
    mapped = next(each["value"][0]["options"] for each in overrides["entry"] if each["id"] == "mappings")
    assert all(shown[int(each["text"])]["title"] == alert for alert, each in mapped.items())
    assert set(mapped) == {rule["alert"] for rule in rules() if "alert" in rule}
