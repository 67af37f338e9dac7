"""Which stages the settings ask for, and where their metrics are; tests/e2e/test_all_stages.py runs them."""

from pathlib import Path

import pytest

from agents import all_stages
from streams.config.settings import Settings, SettingsError

SOURCES = """
[sources.scores]
topic = "scores.v3"
role = "forecast"
event_id = "id"
stream = "cards"
p = "score"
"""


@pytest.mark.parametrize(
    ("text", "environment", "ports"),
    [
        (SOURCES, {}, {"worker": 9464, "router": 9465, "intake": 9466}),
        ("", {}, {"worker": 9464}),
        (SOURCES.replace("scores.v3", "forecasts"), {"TRUEUP_FORECASTS": "forecasts"}, {"worker": 9464}),
        (SOURCES, {"TRUEUP_METRICS_PORT": "0"}, {"worker": 0, "router": 0, "intake": 0}),
        (SOURCES, {"TRUEUP_METRICS_PORT": "65533"}, {"worker": 65_533, "router": 65_534, "intake": 65_535}),
        (SOURCES, {"TRUEUP_METRICS_PORT": "65534"}, None),
    ],
)
def test_sources_of_their_own_need_intake_and_router_with_the_next_ports(
    tmp_path: Path, text: str, environment: dict[str, str], ports: dict[str, int] | None
) -> None:
    (tmp_path / "streams.toml").write_text(text)
    settings = Settings.from_env({"TRUEUP_STREAMS": str(tmp_path / "streams.toml"), **environment})
    if ports is not None:
        assert all_stages.ports(settings) == ports
        return
    with pytest.raises(SettingsError, match="TRUEUP_METRICS_PORT=65534: worker, router, intake need a port each"):
        all_stages.ports(settings)
