"""A real Prometheus evaluates every rule and every query of the dashboards over real workers under load."""

import math
import subprocess
from pathlib import Path
from shutil import which
from typing import NamedTuple

import orjson
import pytest

from deploy.grafana.write import DASHBOARDS
from tests.deploy.queries import recorded, rules
from tests.e2e.prometheus import Server, needs_prometheus, watched
from tests.e2e.test_streams import shown
from tests.e2e.world import Worker, World

pytestmark = needs_prometheus

#: How far back the panels look, s.
SPAN = 30.0
#: Recorded only where something is wrong, where a stream has segments, bands or weights, where forecasts are of classes
#: or numbers, where a calibrator measures itself by points, or after eight days of forecasts.
QUIET = {
    "stream_band:trueup_band_cost:sum",
    "stream_band:trueup_band_false_alarms:ratio",
    "stream_band:trueup_band_precision:ratio",
    "stream_band:trueup_band_recall:ratio",
    "stream_kind_band:trueup_band_forecasts:sum",
    "stream_kind:trueup_weighted_forecasts:sum",
    "stream:trueup_weighted_outcomes:sum",
    "stream:trueup_forecast_shift:max",
    "stream:trueup_calibration_noise:ratio",
    "stream_finding:trueup_label_finding:max",
    "stream:trueup_segments_off:max",
    "stream:trueup_segments_off_recently:max",
    "stream:trueup_segments_silent:max",
    "stream:trueup_segments_scored:max",
    "stream:trueup_resolved_vectors:sum",
    "stream_calibrator_config:trueup_shadow_events:sum",
    "stream_calibrator_config_loss:trueup_shadow_difference:ratio",
    "stream_calibrator_config_loss:trueup_shadow_difference_error:ratio",
    "stream_kind:trueup_accuracy:ratio",
    "stream_kind:trueup_classwise_ece:max",
    "stream_kind:trueup_coverage_error:max",
    "stream_kind:trueup_crps:ratio",
    "stream_kind:trueup_interval_width:ratio",
    "stream_kind:trueup_pinball_loss:ratio",
    "stream_kind:trueup_top_label_auc:ratio",
    "stream_kind:trueup_top_label_ece:max",
    "stream_kind:trueup_worst_window_error:max",
    "stream_loss:trueup_loss_difference:ratio",
    "stream_loss:trueup_loss_difference_error:ratio",
}


class Scene(NamedTuple):
    """What is looked at."""

    world: World
    server: Server
    workers: list[Worker]


def test_rules_and_dashboards_have_the_figures_of_two_workers(kafka: str, tmp_path: Path) -> None:
    world = World(kafka, tmp_path)
    with watched(world) as (server, workers):
        scene = Scene(world, server, workers)
        every_rule_is_well_and_every_recording_rule_has_finite_values(scene)
        every_query_of_the_dashboards_has_a_finite_answer(scene)
        the_ratios_of_two_workers_are_those_of_the_state(scene)
        what_is_shown_is_sane(scene)
        the_worker_exports_what_promtool_calls_metrics(scene)


def every_rule_is_well_and_every_recording_rule_has_finite_values(scene: Scene) -> None:
    loaded = [rule for group in scene.server.get("rules")["groups"] for rule in group["rules"]]
    assert len(loaded) == len(rules())
    assert not [(rule["name"], rule.get("lastError")) for rule in loaded if rule["health"] != "ok"]
    for name in recorded():
        answer = scene.server.ask(name)
        assert answer or name in QUIET, f"{name} has no series"
        assert all(math.isfinite(series.values[0]) for series in answer), name
    for rule in rules():
        scene.server.ask(rule["expr"])


def every_query_of_the_dashboards_has_a_finite_answer(scene: Scene) -> None:
    empty = []
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels():
            for query in panel.queries:
                answer = scene.server.shown(panel, query, SPAN)
                if not answer and not query.quiet:
                    empty.append((panel.title, query.expr))
                wrong = [series for series in answer if not math.isfinite(series.values[-1])]
                assert not wrong, (panel.title, query.expr, wrong[0])
    assert not empty


def the_ratios_of_two_workers_are_those_of_the_state(scene: Scene) -> None:
    """Partitions are on two workers; ``trueup streams show`` reads both from the changelog."""
    listed = shown(scene.world, "list", "--json")
    assert listed.returncode == 0, listed.stderr
    names = orjson.loads(listed.stdout)["streams"].keys()
    assert {"stream-0", "stream-1"} <= names
    report = {name: orjson.loads(shown(scene.world, "show", name, "--json").stdout)["streams"][name] for name in names}
    for stream, each in report.items():
        if not each["resolved"]:
            continue
        for kind in ("raw", "calibrated"):

            def of(name: str, *, kind: str = kind, stream: str = stream, **labels: str) -> float:
                matchers = ",".join(f'{k}="{v}"' for k, v in {"stream": stream, "kind": kind, **labels}.items())
                return scene.server.value(f"{name}{{{matchers}}}")

            assert of("stream_kind:trueup_events:sum", window="life") == each["resolved"]
            # Prometheus began with an empty state, so its hour holds everything.
            for window in ("life", "1h"):
                assert of("stream_kind:trueup_ece:ratio", window=window) == pytest.approx(each[kind]["ece"], abs=1e-9)
            assert of("stream_kind_loss:trueup_loss:ratio", window="life", loss="brier") == pytest.approx(
                each[kind]["brier"], abs=1e-9
            )
            bias = of("stream_kind:trueup_relative_bias:ratio", window="life")
            assert bias == pytest.approx(each[kind]["relative_bias"], abs=1e-9)
            for name in ("", "recent_") if kind == "calibrated" else ("",):
                alarm = of(f"stream_kind:trueup_alarm_{name}log10:max")
                assert alarm == pytest.approx(each[kind]["alarm"][f"{name}log10"], abs=1e-6)
            # Each worker ranks its own events.
            assert of("stream_kind:trueup_auc:ratio") == pytest.approx(each[kind]["auc"], abs=0.03)
        for loss, regret in each["regret"].items():
            query = f'stream_loss:trueup_regret:sum{{stream="{stream}",window="life",loss="{loss}"}}'
            assert scene.server.value(query) == pytest.approx(regret, abs=1e-6)


def what_is_shown_is_sane(scene: Scene) -> None:
    ask = scene.server.value
    assert ask("sum(trueup_ready)") == 2
    assert ask("sum(trueup_held_partitions)") == scene.world.partitions
    assert ask("sum(job_topic:trueup_lag_records:sum)") == 0
    assert 0 < ask('job:trueup_forecast_latency_seconds:quantile5m{quantile="0.5"}') < 60
    assert 0 < ask("max(job_topic:trueup_dead_letters:ratio10m)") < 0.1
    assert 0 < ask('stream:trueup_label_coverage:ratio6h{stream="stream-0"}') <= 1
    said = 'stream_kind_bin:trueup_mean_forecast:ratio{stream="stream-0",kind="raw",window="life"}'
    happened = 'stream_kind_bin:trueup_base_rate:ratio{stream="stream-0",kind="raw",window="life"}'
    for series in scene.server.ask(said):
        low = int(series.labels["bin"]) / 10
        assert low <= series.values[0] <= low + 0.1
        # y is 1 with probability p²
        matched = happened.replace("{", f'{{bin="{series.labels["bin"]}",')
        assert scene.server.value(matched) == pytest.approx(series.values[0] ** 2, abs=0.08)


def the_worker_exports_what_promtool_calls_metrics(scene: Scene) -> None:
    _, text = scene.workers[0].get("/metrics")
    checked = subprocess.run(
        [which("promtool") or "promtool", "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
