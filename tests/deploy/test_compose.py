"""docker-compose.yml is valid, confines its containers, and names files, settings and commands that exist.

`make compose` runs it.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from cli.main import parser
from streams.config.settings import Settings
from tests.deploy.dockerfile import ROOT, stages

FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = [name for name in SERVICES if name.startswith("worker")]
#: Services that end by themselves, so they have no health check.
ENDING = {"topics", "producer"}
#: Services whose root cannot be read-only: Kafka's start script writes its configuration there.
WRITABLE = {"kafka"}

every_service = pytest.mark.parametrize("name", SERVICES)


def test_the_specification_allows_it() -> None:
    # This parser refuses a tag beside a digest, which Docker takes.
    shown = re.sub(r":[^:@\s]+(?=@sha256:)", "", FILE.read_text())
    PyCompose.from_json(json.dumps(yaml.safe_load(shown))).validate()


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,  # noqa: S607 - where it is, it is on the path
    reason="docker compose is missing",
)
def test_docker_compose_reads_it() -> None:
    command = ["docker", "compose", "--profile", "demo", "-f", str(FILE), "config", "--quiet"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@every_service
def test_an_image_is_pinned_by_version_and_digest_or_built_here(name: str) -> None:
    service = SERVICES[name]
    if "build" in service:
        assert service["build"]["target"] in stages()
        assert (ROOT / service["build"]["dockerfile"]).exists()
        assert service["image"].endswith(":local")
        assert service["build"]["args"] == {"VERSION": "local"}
    else:
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", service["image"])


@every_service
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only", False) == (name not in WRITABLE)
    assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc", "user", "devices"}
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@every_service
def test_health_is_checked_unless_the_service_ends(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    if name in ENDING:
        assert check == {"disable": True}
        assert SERVICES[name]["restart"] == "on-failure"
    else:
        assert check["test"][0] == "CMD"
        assert SERVICES[name]["restart"] == "unless-stopped"


@every_service
def test_it_starts_after_what_can_become_ready(name: str) -> None:
    for other, awaited in SERVICES[name].get("depends_on", {}).items():
        assert awaited["condition"] == ("service_completed_successfully" if other in ENDING else "service_healthy")
        assert "profiles" not in SERVICES[other]


def mounts(service: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield source, target and mode of each mount."""
    for mount in service.get("volumes", []):
        source, target, *mode = mount.split(":")
        yield source, target, mode[0] if mode else "rw"


@every_service
def test_what_is_mounted_exists(name: str) -> None:
    for source, _, mode in mounts(SERVICES[name]):
        if source.startswith("./"):
            assert (ROOT / source).is_dir()
            assert mode == "ro"
        else:
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", ["topics", "producer", *WORKERS])
def test_its_settings_are_settings(name: str) -> None:
    settings = Settings.from_env(SERVICES[name]["environment"])
    (broker,) = settings.brokers
    listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INSIDE://{broker}" in listeners.split(",")


def test_each_worker_has_a_name_and_a_place_of_its_own() -> None:
    workers = [SERVICES[name] for name in WORKERS]
    assert len({worker["environment"]["TRUEUP_INSTANCE_ID"] for worker in workers}) == len(workers)
    assert len({source for worker in workers for source, _, _ in mounts(worker)}) == len(workers)
    (place,) = {target for worker in workers for _, target, _ in mounts(worker)}
    assert [place] == stages()["worker"].of("VOLUME")


def test_a_worker_has_time_to_finish_its_batch() -> None:
    for worker in (SERVICES[name] for name in WORKERS):
        # The last batch in flight may wait for one acknowledgement of the changelog, and one of the outputs.
        assert int(worker["stop_grace_period"].removesuffix("s")) >= 2 * Settings().request_seconds


def test_the_topics_are_made_by_a_command_that_there_is() -> None:
    options = parser().parse_args(SERVICES["topics"]["command"])
    assert (options.command, options.action) == ("topics", "create")
    assert options.partitions >= len(WORKERS)


def test_prometheus_finds_both_workers() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (found,) = (each["dns_sd_configs"][0] for each in config["scrape_configs"] if each["job_name"] == "trueup")
    (name,) = found["names"]
    assert all(name in SERVICES[worker]["networks"]["default"]["aliases"] for worker in WORKERS)
    assert [str(found["port"])] == stages()["worker"].of("EXPOSE")
    targets = {target: Path(ROOT / source) for source, target, _ in mounts(SERVICES["prometheus"])}
    assert all((targets["/etc/prometheus"] / rules).exists() for rules in config["rule_files"])
    assert "--config.file=/etc/prometheus/prometheus.yml" in SERVICES["prometheus"]["command"]


def test_the_layer_of_sources_changes_services_that_there_are_and_names_files_that_exist() -> None:
    layer = yaml.safe_load((ROOT / "deploy/compose/sources.yml").read_text())["services"]
    owners = layer.pop("source-topics")["environment"]
    assert layer.keys() <= SERVICES.keys()
    targets = {target: ROOT / source for service in layer.values() for source, target, _ in mounts(service)}
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    files = [Path(found["files"][0]) for each in config["scrape_configs"] for found in each.get("file_sd_configs", [])]
    ports = []
    for file in files:
        (found,) = yaml.safe_load((targets[str(file.parent)] / file.name).read_text())
        hosts = [target.split(":") for target in found["targets"]]
        assert [host for host, _ in hosts] == WORKERS
        ports += [port for _, port in hosts[:1]]
    for worker in (layer[name] for name in WORKERS):
        place = Path(worker["environment"]["TRUEUP_STREAMS"])
        environment = worker["environment"] | {"TRUEUP_STREAMS": str(targets[str(place.parent)] / place.name)}
        settings = Settings.from_env(environment)
        sources = {mode.topic for mode in settings.modes if not mode.direct}
        assert sources == set(layer["producer"]["environment"].values()) <= set(owners.values())
        assert {"9464", *ports} == set(worker["healthcheck"]["test"][5:])
        assert parser().parse_args(worker["command"]).command == "run"


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    targets = {target: ROOT / source for source, target, _ in mounts(SERVICES["grafana"])}
    provisioning = targets["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load(next((provisioning / "datasources").iterdir()).read_text())["datasources"]
    assert source["url"].removeprefix("http://").removesuffix(":9090") in SERVICES
    (provider,) = yaml.safe_load(next((provisioning / "dashboards").iterdir()).read_text())["providers"]
    dashboards = targets[provider["options"]["path"]]
    assert any(dashboards.glob("*.json"))
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (targets[str(home.parent)] / home.name).exists()


def test_grafana_has_no_password_to_be_guessed() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
