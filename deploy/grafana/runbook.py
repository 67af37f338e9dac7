"""The runbook as a dashboard: a panel for each entry, so that links to it work wherever Grafana runs.

The text is that of ``docs/how-to/runbook.md``. Links to other pages become plain words, because Grafana lacks those
pages.
"""

import re
from pathlib import Path
from typing import Any, Final

UID: Final = "trueup-runbook"
SOURCE: Final = Path(__file__).resolve().parents[2] / "docs/how-to/runbook.md"
_ENTRY: Final = re.compile(r"^### (Trueup\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def entries() -> dict[str, str]:
    """Return what the runbook says about each alert, as Markdown, in the order of the page."""
    return {name: _LINK.sub(r"\1", text).strip() for name, text in _ENTRY.findall(SOURCE.read_text())}


#: Number of the panel of each alert.
PANELS: Final = {name: number for number, name in enumerate(entries(), 1)}


def address(alert: str) -> str:
    """Return the address of an alert's entry."""
    return f"/d/{UID}?viewPanel={PANELS[alert]}"


def document() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": UID,
        "title": "trueup / Runbook",
        "description": "What each alert means, where to look first, and what to do.",
        "tags": ["trueup"],
        "editable": False,
        "schemaVersion": 39,
        "links": [],
        "panels": [
            {
                "id": number,
                "type": "text",
                "title": name,
                "gridPos": {"x": 12 * ((number - 1) % 2), "y": 10 * ((number - 1) // 2), "w": 12, "h": 10},
                "pluginVersion": "11.5.2",
                "options": {"mode": "markdown", "content": text},
            }
            for number, (name, text) in enumerate(entries().items(), 1)
        ],
    }
