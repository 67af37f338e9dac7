"""``python -m deploy.grafana.write``: the dashboards as JSON, which Grafana's provisioning reads; links of alerts."""

import json
import re
from pathlib import Path
from typing import Final

from deploy.grafana import runbook
from deploy.grafana.dashboard import Dashboard

HERE: Final = Path(__file__).parent
DASHBOARDS: Final = tuple(Dashboard.read(HERE / f"{name}.toml") for name in ("overview", "stream", "operations"))
DIRECTORY: Final = HERE / "dashboards"

ALERTS: Final = HERE.parent / "prometheus/alerts.yml"
_LINKS: Final = re.compile(r"(- alert: (\w+)\n(?:(?! *- alert:).*\n)*? +runbook_url: ).*")
_PANEL: Final = re.compile(r', \{"id":')


def linked(rules: str) -> str:
    """Return rules whose alerts link to their entries in the runbook, in the Grafana that Prometheus is told about."""
    return _LINKS.sub(lambda found: f'{found[1]}"{{{{ $externalLabels.grafana }}}}{runbook.address(found[2])}"', rules)


def written() -> dict[Path, str]:
    """Return the text of each file, a line for each panel: Kubernetes bounds the size of a file."""
    documents = {each.uid: each.json() for each in DASHBOARDS} | {runbook.UID: runbook.document()}
    return {
        DIRECTORY / f"{uid.removeprefix('trueup-')}.json": _PANEL.sub(
            ',\n{"id":', json.dumps(document, ensure_ascii=False)
        )
        + "\n"
        for uid, document in documents.items()
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
    ALERTS.write_text(linked(ALERTS.read_text()))
