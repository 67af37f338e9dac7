"""The StatefulSet's pod as podman can play it: the same containers, settings, mounts and rights, without a cluster.

Left out is what podman has no part for: probes, which it would ask with a curl that the image has not, and the named
port, as the pod shares the host's network here.
"""

import shutil
from typing import Any

import yaml

from tests.deploy.manifests import KUBECTL, KUBERNETES, rendered


def missing() -> str | None:
    """Return why no pod can be played on this machine; None if it can."""
    if KUBECTL is None:
        return "kubectl is missing, which puts the manifests together"
    return None if shutil.which("catatonit") else "catatonit is missing, which holds a pod together"


def pod(image: str, brokers: str, port: int) -> str:
    """Return the first pod of the base with its claim and its ConfigMaps, for other brokers and on another port."""
    manifests = rendered(KUBERNETES / "base")
    (workers,) = (manifest for manifest in manifests if manifest["kind"] == "StatefulSet")
    configs = [manifest for manifest in manifests if manifest["kind"] == "ConfigMap"]
    for config in configs:
        if "TRUEUP_BROKERS" in config["data"]:
            config["data"]["TRUEUP_BROKERS"] = brokers
    name, template = f"{workers['metadata']['name']}-0", workers["spec"]["template"]
    (claim,) = workers["spec"]["volumeClaimTemplates"]
    claimed = f"{claim['metadata']['name']}-{name}"
    spec: dict[str, Any] = template["spec"]
    spec["hostNetwork"] = True
    spec["volumes"].append({"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": claimed}})
    (container,) = spec["containers"]
    for left_out in ("ports", "startupProbe", "readinessProbe", "livenessProbe"):
        del container[left_out]
    container |= {"image": image, "imagePullPolicy": "Never"}
    container["env"].append({"name": "TRUEUP_METRICS_PORT", "value": str(port)})
    volume = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claimed}, "spec": claim["spec"]}
    metadata = {"name": name, "labels": template["metadata"]["labels"]}
    played = [volume, *configs, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}]
    return yaml.safe_dump_all(played)
