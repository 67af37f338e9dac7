"""The Kubernetes manifests are valid, meet the restricted pod standard, and name things that exist.

They are compared with Kubernetes' schemas of `NEWEST` and `OLDEST`. The two kinds of the Prometheus operator have none.
"""

import os
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from agents import __version__, all_stages, health
from agents.all_stages import STAGES
from agents.readers import ALIVE_SECONDS
from cli.main import parser
from deploy.kubernetes import rules
from streams.config import stream_config
from streams.config.settings import Settings
from tests.deploy.dockerfile import ROOT, stages
from tests.deploy.manifests import KUBERNETES, KUSTOMIZED, Manifest, kustomization, needs_kubectl, of, rendered, written

NEWEST, OLDEST = kubernetes_validate.latest_version(), "1.30"
OPERATOR = "monitoring.coreos.com/v1"
SETTINGS = {name for name, _, _ in Settings.described()}
WRITTEN = [pytest.param(manifest, id=str(path.relative_to(KUBERNETES))) for path, manifest in written()]
WORKERS = of("StatefulSet")["spec"]
(CONTAINER,) = WORKERS["template"]["spec"]["containers"]
WORKLOADS = [of("StatefulSet"), of("Job", "trueup-topics")]

every_manifest = pytest.mark.parametrize("manifest", WRITTEN)
every_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["kind"])


def allowed(manifest: Manifest, version: str = NEWEST) -> None:
    """Fail with the reason if a schema does not allow a manifest; of the operator's kinds there is none."""
    if manifest["apiVersion"] != OPERATOR:
        kubernetes_validate.validate(manifest, version, strict=True)


@every_manifest
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_schema_allows_it(manifest: Manifest, version: str) -> None:
    allowed(manifest, version)


@pytest.mark.parametrize("directory", KUSTOMIZED, ids=lambda path: path.name)
def test_every_file_is_named_and_every_name_is_a_file(directory: Path) -> None:
    found = kustomization(directory)
    named = set(found.get("resources", []) + found.get("components", []))
    named |= {patch["path"] for patch in found.get("patches", [])}
    for generator in found.get("configMapGenerator", []):
        named |= {*generator.get("envs", []), *generator.get("files", [])}
    assert all((directory / name).exists() for name in named)
    beside = {"kustomization.yaml"} | {
        path.name for path in directory.iterdir() if path.is_dir() or path.suffix == ".py"
    }
    if directory.name == "grafana":  # what the dashboards are written from
        beside |= {path.name for path in directory.glob("*.toml")}
    assert {path.name for path in directory.iterdir()} - beside == {name for name in named if "/" not in name}


def test_all_dashboards_are_there_and_small_enough_to_apply() -> None:
    generators = kustomization(ROOT / "deploy/grafana")["configMapGenerator"]
    files = {ROOT / "deploy/grafana" / name for generator in generators for name in generator["files"]}
    assert files == set((ROOT / "deploy/grafana/dashboards").glob("*.json"))
    # kubectl apply keeps the manifest as JSON in an annotation, quotes escaped; annotations hold 256 KiB.
    assert all(len(yaml.dump(path.read_text())) < 200_000 for path in files)


def test_the_rules_are_those_of_prometheus() -> None:
    assert rules.TARGET.read_text() == rules.written()
    groups = of("PrometheusRule")["spec"]["groups"]
    assert groups == [group for path in rules.SOURCES for group in yaml.safe_load(path.read_text())["groups"]]


@every_workload
def test_a_pod_meets_the_restricted_standard(workload: Manifest) -> None:
    pod = workload["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    ids = {pod["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")}
    assert {f"{one}:{one}" for one in ids} == set(stages()["application"].of("USER"))
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == of("ServiceAccount")["metadata"]["name"]
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert {kind for volume in pod["volumes"] for kind in volume if kind != "name"} <= {"configMap", "emptyDir"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]


@every_workload
def test_what_a_pod_mounts_and_reads_is_there(workload: Manifest) -> None:
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    } | claims
    generated = {generator["name"] for generator in kustomization(KUBERNETES / "base")["configMapGenerator"]}
    read = {source["configMapRef"]["name"] for source in container["envFrom"]}
    read |= {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    assert read <= generated


@every_workload
def test_it_runs_this_version_with_a_command_that_there_is(workload: Manifest) -> None:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"trueup:{__version__}"
    assert parser().parse_args(container["args"]).run


def environment(*directories: str) -> dict[str, str]:
    """Return the settings of workers: each directory's settings.env over those before it."""
    lines = "\n".join((KUBERNETES / each / "settings.env").read_text() for each in directories).splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_settings_are_settings() -> None:
    variables = {variable["name"]: variable for variable in CONTAINER["env"]}
    assert variables.keys() | environment("base", "sasl").keys() <= SETTINGS
    assert variables["TRUEUP_INSTANCE_ID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert Settings.from_env(environment("base")).brokers


def test_secrets_come_from_files_of_the_secret(tmp_path: Path) -> None:
    found = environment("base", "sasl")
    assert not any("PASSWORD" in name and not name.endswith("_FILE") for name in found)
    volume, mount = (operation["value"] for operation in yaml.safe_load((KUBERNETES / "sasl/secret.yaml").read_text()))
    assert (volume["name"], volume["secret"]["secretName"]) == (mount["name"], "trueup-kafka")
    for name in ("TRUEUP_SASL_PASSWORD_FILE", "TRUEUP_SSL_CAFILE"):
        assert found[name].startswith(f"{mount['mountPath']}/")
        found[name] = str(tmp_path / Path(found[name]).name)
        Path(found[name]).write_text("made up for this test\n")
    security = Settings.from_env(found).security
    assert (security.protocol, security.password) == ("SASL_SSL", "made up for this test")


def test_the_streams_file_is_where_workers_look_and_is_one() -> None:
    (place,) = (variable["value"] for variable in CONTAINER["env"] if variable["name"] == "TRUEUP_STREAMS")
    (mount,) = (each["mountPath"] for each in CONTAINER["volumeMounts"] if each["name"] == "streams")
    assert place == f"{mount}/streams.toml"
    stream_config.parse((KUBERNETES / "base/streams.toml").read_text(), Settings().default_calibrator)


def test_state_is_on_the_claim_of_the_pod() -> None:
    (claim,) = WORKERS["volumeClaimTemplates"]
    (place,) = (each["mountPath"] for each in CONTAINER["volumeMounts"] if each["name"] == claim["metadata"]["name"])
    assert [place] == stages()["worker"].of("VOLUME")
    assert stages()["worker"].variables()["TRUEUP_DATA_DIR"] == place


def test_selectors_select_the_workers_and_only_them() -> None:
    labels = {each["kind"]: each["spec"]["template"]["metadata"]["labels"] for each in WORKLOADS}
    monitor = of("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= of("Service")["metadata"]["labels"].items()
    selectors = [
        WORKERS["selector"]["matchLabels"],
        of("Service")["spec"]["selector"],
        of("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        WORKERS["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels["StatefulSet"].items()
        assert not selector.items() <= labels["Job"].items()
    policy = of("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert all(policy.items() <= each.items() for each in labels.values())
    assert WORKERS["serviceName"] == of("Service")["metadata"]["name"]


def test_ports_are_the_one_of_the_image() -> None:
    (port,) = CONTAINER["ports"]
    assert [str(port["containerPort"])] == stages()["worker"].of("EXPOSE")
    (served,) = of("Service")["spec"]["ports"]
    scraped, *of_sources = of("ServiceMonitor")["spec"]["endpoints"]
    assert [each["port"] for each in of_sources] == list(STAGES[1:])
    for each in of_sources:  # the jobs that alerts and deploy/prometheus/prometheus.yml name
        assert each["relabelings"] == [{"targetLabel": "job", "replacement": f"trueup-{each['port']}"}]
    (admitted,) = of("NetworkPolicy")["spec"]["ingress"][0]["ports"]
    assert port["name"] == served["targetPort"] == admitted["port"]
    assert served["name"] == scraped["port"]


def test_brokers_and_a_schema_registry_are_reached() -> None:
    dns, rest = of("NetworkPolicy")["spec"]["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert {port["port"] for port in rest["ports"]} == {9092, 8081, 443}


def test_prometheus_scrapes_as_it_does_without_an_operator() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (job,) = (each for each in config["scrape_configs"] if each["job_name"] == "trueup")
    spec = of("ServiceMonitor")["spec"]
    for endpoint in spec["endpoints"]:
        assert endpoint["interval"] == config["global"]["scrape_interval"]
        assert endpoint["scrapeTimeout"] == config["global"]["scrape_timeout"]
    assert spec["sampleLimit"] == job["sample_limit"]
    # The alerts name the job.
    assert of("Service")["metadata"]["labels"][spec["jobLabel"]] == job["job_name"]


def test_a_worker_is_asked_what_it_answers_and_has_the_time_and_the_memory_that_it_may_take() -> None:
    paths = {kind: CONTAINER[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    # While state is restored a worker is not ready. It must be alive, or Kubernetes would end every long restore.
    assert paths == {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}
    # It says no when its loop stood still for ALIVE_SECONDS. Kubernetes ends it this much later: a hang, not a pause.
    patience = CONTAINER["livenessProbe"]["periodSeconds"] * CONTAINER["livenessProbe"]["failureThreshold"]
    assert Settings().session_seconds <= ALIVE_SECONDS + patience <= 3 * ALIVE_SECONDS
    grace = WORKERS["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= 2 * Settings().request_seconds + 10, "it finishes its batch"
    itself, readers, under_way = 76 << 20, 62 << 20, 200 << 20
    assert CONTAINER["resources"]["limits"]["memory"] == "1Gi"
    assert itself + readers + under_way + Settings().memory_bytes < 1 << 30


@needs_kubectl
def test_kustomize_puts_production_together() -> None:
    found = rendered(KUBERNETES / "production")
    for manifest in found:
        allowed(manifest)
    kinds = sorted(manifest["kind"] for manifest in found)
    assert kinds == sorted([*(each["kind"] for _, each in written()), *["ConfigMap"] * 6])
    assert {m["metadata"].get("namespace", "trueup") for m in found} == {"trueup"}
    by_kind = {manifest["kind"]: manifest for manifest in found}
    configs = {manifest["metadata"]["name"]: manifest["data"] for manifest in found if manifest["kind"] == "ConfigMap"}
    for kind in ("StatefulSet", "Job"):
        pod = by_kind[kind]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert re.fullmatch(r"registry\.example/trueup@sha256:[0-9a-f]{64}", container["image"])
        assert {"secretName": "trueup-kafka", "defaultMode": 0o440} in [
            volume.get("secret") for volume in pod["volumes"]
        ]
        (source,) = container["envFrom"]
        data = configs[source["configMapRef"]["name"]]
        assert data["TRUEUP_SECURITY_PROTOCOL"] == "SASL_SSL"
        assert data["TRUEUP_BROKERS"].startswith("kafka-0.example:9094,")
        assert {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume} <= configs.keys()
    assert by_kind["StatefulSet"]["spec"]["replicas"] == 3


@needs_kubectl
def test_with_sources_a_pod_runs_every_stage_and_each_is_probed_and_scraped(tmp_path: Path) -> None:
    there = os.path.relpath(KUBERNETES, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{there}/base, {there}/monitoring]\ncomponents: [{there}/sources, {there}/sasl]\n"
    )
    found = {manifest["kind"]: manifest for manifest in rendered(tmp_path)}
    for manifest in found.values():
        allowed(manifest)
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert parser().parse_args(container["args"]).command == "run"
    settings = Settings.from_env(environment("base") | {"TRUEUP_STREAMS": str(streams_with_a_source(tmp_path))})
    stages_ports = all_stages.ports(settings)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert list(ports.values()) == list(stages_ports.values())
    assert {port["name"]: port["port"] for port in found["Service"]["spec"]["ports"]} == ports
    assert all(port["targetPort"] == port["name"] for port in found["Service"]["spec"]["ports"])
    admitted = [port["port"] for port in found["NetworkPolicy"]["spec"]["ingress"][0]["ports"]]
    scraped = [endpoint["port"] for endpoint in found["ServiceMonitor"]["spec"]["endpoints"]]
    assert list(ports) == admitted == scraped
    for kind, path in (("startup", "/healthz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        command = container[f"{kind}Probe"]["exec"]["command"]
        assert command == ["python", "-m", "agents.health", path, *map(str, ports.values())]
        assert container[f"{kind}Probe"]["timeoutSeconds"] > health.SECONDS
    for of_one, name in (("periodSeconds", "liveness"), ("failureThreshold", "liveness"), ("periodSeconds", "startup")):
        assert container[f"{name}Probe"][of_one] == CONTAINER[f"{name}Probe"][of_one]


def streams_with_a_source(directory: Path) -> Path:
    """Return a streams file with a source for intake."""
    path = directory / "streams.toml"
    path.write_text('[sources.s]\ntopic = "t"\nrole = "forecast"\nevent_id = "id"\nstream = "cards"\np = "score"\n')
    return path


@needs_kubectl
def test_dashboards_are_what_the_sidecar_looks_for() -> None:
    found = rendered(ROOT / "deploy/grafana")
    assert len(found) == 4
    for manifest in found:
        assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((name, text),) = manifest["data"].items()
        assert text == (ROOT / "deploy/grafana/dashboards" / name).read_text()
