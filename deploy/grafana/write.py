"""``python -m deploy.grafana.write``: the dashboards as JSON, which Grafana's provisioning reads."""

import json
from pathlib import Path
from typing import Final

from deploy.grafana.operations import OPERATIONS
from deploy.grafana.overview import OVERVIEW
from deploy.grafana.stream import STREAM

DASHBOARDS: Final = (OVERVIEW, STREAM, OPERATIONS)
DIRECTORY: Final = Path(__file__).parent / "dashboards"


def written() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        DIRECTORY / f"{each.uid.removeprefix('trueup-')}.json": json.dumps(each.json(), indent=2, ensure_ascii=False)
        + "\n"
        for each in DASHBOARDS
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
