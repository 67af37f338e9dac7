"""``python -m deploy.kubernetes.rules``: writes the rules of deploy/prometheus as a PrometheusRule for the operator."""

from pathlib import Path
from typing import Final

import yaml

HERE: Final = Path(__file__).parent
SOURCES: Final = (HERE.parent / "prometheus/recording.yml", HERE.parent / "prometheus/alerts.yml")
TARGET: Final = HERE / "monitoring/rules.yaml"
HEADER: Final = "# Made from deploy/prometheus by make manifests; a test fails when it is out of date.\n"


class _Dumper(yaml.SafeDumper):
    """Writes queries of several lines as people write them."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def written() -> str:
    """Return the text of the manifest."""
    groups = [group for source in SOURCES for group in yaml.safe_load(source.read_text())["groups"]]
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "trueup", "labels": {"app.kubernetes.io/name": "trueup"}},
        "spec": {"groups": groups},
    }
    return HEADER + yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    TARGET.write_text(written())
