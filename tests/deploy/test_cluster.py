"""The manifests at a real Kubernetes API server. It is built from its Go modules, by the hashes in cluster/go.sum."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lab.jvm import free_port
from tests.deploy.manifests import KUBECTL, KUBERNETES, Manifest, needs_kubectl, rendered
from tests.e2e.world import wait_for

pytestmark = needs_kubectl

PATH: Final = f"{os.environ['PATH']}:/usr/local/go/bin"
#: Who may do everything.
WHO: Final = "anybody"
#: What the Prometheus operator adds to an API; its kinds are taken as they are.
OPERATED: Final = ("ServiceMonitor", "PrometheusRule")
#: Says where a pod would be refused, which no controller makes here.
WARNED: Final = {"pod-security.kubernetes.io/warn": "restricted"}


class Cluster:
    """An API server, and kubectl for it."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._command = [KUBECTL or "kubectl", f"--server=https://127.0.0.1:{port}", f"--token={WHO}"]
        self._command += ["--insecure-skip-tls-verify", f"--cache-dir={directory}"]

    def asked(self, *arguments: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command of kubectl."""
        return subprocess.run([*self._command, *arguments], input=given, capture_output=True, text=True, check=False)

    def apply(self, manifests: Sequence[Manifest]) -> "subprocess.CompletedProcess[str]":
        """Apply manifests at the server, which refuses a field that it does not know; a warning is a failure."""
        options = ("--server-side", "--validate=strict", "--warnings-as-errors", "--filename=-")
        return self.asked("apply", *options, given=yaml.safe_dump_all(manifests))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    go = shutil.which("go", path=PATH)
    if go is None:
        pytest.skip("go is missing, which builds the API server")
    source, directory = Path(__file__).parent / "cluster", tmp_path_factory.mktemp("cluster")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([go, *arguments], cwd=source, capture_output=True, text=True, check=False)

    if (had := run("mod", "download")).returncode:
        pytest.skip(f"the API server's modules cannot be fetched: {had.stderr[-300:]}")
    built = run("build", "-mod=readonly", f"-o={directory / 'cluster'}", ".")
    assert not built.returncode, built.stderr[-3000:]
    key, tokens, port = directory / "key.pem", directory / "tokens.csv", free_port()
    made = rsa.generate_private_key(65537, 2048)
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    tokens.write_text(f"{WHO},{WHO},{WHO},system:masters\n")
    flags = [
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={directory / 'certificates'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://trueup.example",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([directory / "cluster", directory / "etcd", *flags], stdout=log, stderr=log)
    server = Cluster(directory, port)

    def ready() -> bool:
        assert process.poll() is None, (directory / "log").read_text()[-3000:]
        return server.asked("get", "--raw=/readyz").returncode == 0

    try:
        wait_for("the API server", ready)
        assert not (done := server.apply([kind(each) for each in OPERATED])).returncode, done.stderr
        plural = [f"crd/{each.lower()}s.monitoring.coreos.com" for each in OPERATED]
        assert not server.asked("wait", "--for=condition=Established", *plural).returncode
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": WARNED}}
        assert not (done := server.apply([space])).returncode, done.stderr
        yield server
    finally:
        process.terminate()
        process.wait()


def kind(name: str) -> Manifest:
    """Return the definition of a kind of the Prometheus operator, without a schema."""
    plural = f"{name.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": name, "plural": plural, "singular": name.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@pytest.mark.parametrize("parts", ["../production", "../base\n- ../monitoring\ncomponents:\n- ../sources\n- ../sasl"])
def test_a_server_takes_all_manifests_without_a_warning(cluster: Cluster, tmp_path: Path, parts: str) -> None:
    """Defaults, admission and fields that may not change are the server's; pods would meet the restricted standard."""
    shutil.copytree(KUBERNETES.parent, tmp_path / "deploy", ignore=shutil.ignore_patterns("lib", "targets"))
    place = tmp_path / "deploy/kubernetes/ours"
    place.mkdir()
    (place / "kustomization.yaml").write_text(f"resources:\n- {parts}\n")
    manifests = rendered(place)
    for each in manifests:
        if each["kind"] == "Namespace":
            each["metadata"]["labels"] |= WARNED
    for _ in range(2):  # the second one changes nothing that may not change
        applied = cluster.apply(manifests)
        assert applied.returncode == 0, applied.stderr
        assert len(applied.stdout.splitlines()) == len(manifests)


def test_a_mistake_is_refused_by_the_server(cluster: Cluster) -> None:
    (wrong,) = (each for each in rendered(KUBERNETES / "base") if each["kind"] == "StatefulSet")
    wrong["spec"]["replica"] = 2
    refused = cluster.apply([wrong])
    assert refused.returncode
    assert "replica" in refused.stderr
