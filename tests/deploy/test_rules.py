"""Rules are valid and named after their content, and every alert has an entry in the runbook."""

import re
from pathlib import Path
from typing import Any

import promql_parser
import yaml

from deploy.grafana.runbook import address
from deploy.grafana.write import DASHBOARDS
from streams.config.settings import Settings
from streams.metrics.catalogue import CATALOGUE, PREFIX, STREAM_SERIES
from streams.metrics.gauges import Gauges
from tests.deploy.promtool import PROMETHEUS, RULES, needs_promtool, promtool
from tests.deploy.queries import exported, names, recorded, rules
from tests.exposed import exposed

RUNBOOK = PROMETHEUS.parents[1] / "docs/how-to/runbook.md"


@needs_promtool
def test_promtool_takes_configuration_and_rules() -> None:
    checked = promtool("check", "config", "--lint=all", "--lint-fatal", str(PROMETHEUS / "prometheus.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", *map(str, RULES))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_rule_asks_only_for_what_is_exported_or_recorded() -> None:
    for rule in rules():
        assert not names(rule["expr"]) - exported() - recorded() - {"up"}, rule


def test_every_alert_has_an_entry_in_the_runbook_and_every_entry_an_alert() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    text = RUNBOOK.read_text()
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == [rule["alert"] for rule in alerts]
    for entry in text.split("### ")[1:]:
        assert all(f"**{part}.**" in entry for part in ("Meaning", "First look", "Remedy")), entry.splitlines()[0]
    for rule in alerts:
        said = yaml.safe_load(yaml.safe_dump(rule["annotations"]))
        link = f"{{{{ $externalLabels.grafana }}}}{address(rule['alert'])}"
        assert said["runbook_url"] == link, "run 'make dashboards'"
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


@needs_promtool
def test_an_alert_links_to_the_grafana_that_one_setting_names(tmp_path: Path) -> None:
    fired = {
        "exp_labels": {"severity": "critical", "job": "trueup", "instance": "w"},
        "exp_annotations": {
            "summary": "w cannot be scraped",
            "description": "Its process is gone, or its metrics server does not answer (job trueup).",
            "runbook_url": f"https://g.example{address('TrueupWorkerDown')}",
        },
    }
    tried = {
        "interval": "1m",
        "external_labels": {"grafana": "https://g.example"},
        "input_series": [{"series": 'up{job="trueup",instance="w"}', "values": "0x30"}],
        "alert_rule_test": [{"alertname": "TrueupWorkerDown", "eval_time": "30m", "exp_alerts": [fired]}],
    }
    (tmp_path / "t.yml").write_text(yaml.safe_dump({"rule_files": list(map(str, RULES)), "tests": [tried]}))
    judged = promtool("test", "rules", str(tmp_path / "t.yml"))
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_every_sum_is_of_one_application() -> None:
    for rule in rules():
        grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
        assert all("app" in each.split(", ") for each in grouped if each), rule
        aggregated = re.findall(r"\b(?:sum|max|min|count|topk)\b ?(\w*) ?\(", rule["expr"])
        assert set(aggregated) <= {"by", "without"}, rule


def test_what_is_made_of_sums_is_in_their_group() -> None:
    """No group reads a series of another: groups run side by side, so some values would be new and some old."""
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            own = {rule["record"] for rule in group["rules"] if "record" in rule}
            asked = {name for rule in group["rules"] if "record" in rule for name in names(rule["expr"])}
            assert asked & recorded() <= own, group["name"]


def test_ratios_are_never_averaged() -> None:
    def averages(query: str) -> bool:
        return bool(re.search(r"\bavg\b|\bavg_over_time\b|\bquantile by\b", str(promql_parser.parse(query))))

    assert not [rule for rule in rules() if averages(rule["expr"])]


def test_the_sample_limit_holds_what_the_settings_allow() -> None:
    """Beyond it Prometheus drops whole scrapes, so every alert would go blind at once."""
    (job,) = (each for each in config()["scrape_configs"] if each["job_name"] == "trueup")
    root = PROMETHEUS.parents[1]
    shipped = [root / "docker-compose.yml", *(root / "deploy").rglob("*.env"), *(root / "deploy").rglob("*.y*ml")]
    set_to = [int(n) for path in shipped for n in re.findall(r"TRUEUP_METRICS_STREAMS\W+(\d+)", path.read_text())]
    streams = max([*set_to, Settings().metrics_streams])
    own = len(re.findall(r"^\w", exposed(Gauges(1, "0", lambda: ())), re.MULTILINE))
    # Ten samples of each partition's buffers, lag and rows; a hundred partitions are a large worker.
    needed = own + 10 * 100 + streams * STREAM_SERIES
    assert needed <= job["sample_limit"] <= 1.2 * needed
    monitor = yaml.safe_load((root / "deploy/kubernetes/monitoring/servicemonitor.yaml").read_text())
    assert monitor["spec"]["sampleLimit"] == job["sample_limit"]


def config() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    return document


def test_every_series_of_a_stream_is_asked_for_by_a_rule_or_a_dashboard() -> None:
    panels = [query.expr for each in DASHBOARDS for panel in each.panels() for query in panel.queries]
    asked = {name for expr in panels for name in names(expr.replace("$__rate_interval", "1m"))}
    asked |= {name for rule in rules() for name in names(rule["expr"])}
    unasked = {
        name
        for name, metric in CATALOGUE.items()
        if metric.series and not {PREFIX + name, f"{PREFIX}{name}_total"} & asked
    }
    # No dashboard is for challengers.
    unused = {name for name in unasked if not name.startswith("shadow_")} - {"saturated_answers"}
    assert not unused, "use them in a rule of deploy/prometheus, or in a panel of deploy/grafana/stream.toml"
