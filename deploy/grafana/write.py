"""``python -m deploy.grafana.write``: the dashboards as JSON, which Grafana's provisioning reads."""

import json
from pathlib import Path
from typing import Final

from deploy.grafana.dashboard import Dashboard

HERE: Final = Path(__file__).parent
DASHBOARDS: Final = tuple(Dashboard.read(HERE / f"{name}.toml") for name in ("overview", "stream", "operations"))
DIRECTORY: Final = HERE / "dashboards"


def written() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        DIRECTORY / f"{each.uid.removeprefix('trueup-')}.json": json.dumps(each.json(), indent=1, ensure_ascii=False)
        + "\n"
        for each in DASHBOARDS
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
