"""Read the Kubernetes manifests from their files, or as Kustomize renders them."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.dockerfile import ROOT

KUBERNETES: Final = ROOT / "deploy/kubernetes"
#: Every directory with a kustomization.yaml.
KUSTOMIZED: Final = (*sorted(path.parent for path in KUBERNETES.rglob("kustomization.yaml")), ROOT / "deploy/grafana")
KUBECTL: Final = shutil.which("kubectl")

needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is missing, which has kustomize built in")

Manifest = dict[str, Any]


def kustomization(directory: Path) -> Manifest:
    """Return a directory's kustomization.yaml."""
    found = yaml.safe_load((directory / "kustomization.yaml").read_text())
    assert isinstance(found, dict)
    return found


def written() -> Iterator[tuple[Path, Manifest]]:
    """Yield every manifest that a kustomization names, with its file."""
    for directory in KUSTOMIZED:
        for name in kustomization(directory).get("resources", []):
            if (directory / name).is_file():
                for manifest in yaml.load_all((directory / name).read_text(), yaml.CSafeLoader):
                    yield directory / name, manifest


def of(kind: str, name: str = "trueup") -> Manifest:
    """Return the manifest of a kind and name as it is written."""
    (found,) = (each for _, each in written() if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def rendered(directory: Path) -> list[Manifest]:
    """Return the manifests that Kustomize renders from a directory."""
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", str(directory)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr
    return list(yaml.safe_load_all(done.stdout))
