"""The trial of the images, as far as it goes without podman."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.deploy.dockerfile import ROOT
from tests.deploy.manifests import needs_kubectl
from tests.images import pod, podman, run


def test_without_podman_it_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["run"])
    assert run.main() == 0
    assert capsys.readouterr().out.startswith("skipped: there is no podman, buildah")


def test_containers_are_confined_as_in_the_compose_file() -> None:
    worker = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["worker-1"]
    expected = {f"--cap-drop={each}" for each in worker["cap_drop"]} | {f"--tmpfs={each}" for each in worker["tmpfs"]}
    expected |= {f"--security-opt={each.removesuffix(':true')}" for each in worker["security_opt"]}
    expected |= {"--read-only", f"--pids-limit={worker['deploy']['resources']['limits']['pids']}"}
    assert set(podman.CONFINED) == expected


@needs_kubectl
def test_the_pod_that_is_played_is_one() -> None:
    manifests = list(yaml.safe_load_all(pod.pod(run.WORKER, "127.0.0.1:9092", 1234)))
    for manifest in manifests:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    assert [manifest["kind"] for manifest in manifests] == ["PersistentVolumeClaim", "ConfigMap", "ConfigMap", "Pod"]
    claim, played = manifests[0]["metadata"]["name"], manifests[-1]["spec"]
    (container,) = played["containers"]
    assert {"name": "state", "persistentVolumeClaim": {"claimName": claim}} in played["volumes"]
    assert container["image"] == run.WORKER
    assert container["args"] == ["run", "worker"]
