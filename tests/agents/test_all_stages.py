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


def settings(directory: Path, text: str = SOURCES, **more: str) -> Settings:
    streams = directory / "streams.toml"
    streams.write_text(text)
    return Settings.from_env({"TRUEUP_STREAMS": str(streams), **more})


def test_sources_of_their_own_need_intake_and_router(tmp_path: Path) -> None:
    assert all_stages.ports(settings(tmp_path)) == {"worker": 9464, "router": 9465, "intake": 9466}


def test_without_them_there_is_the_worker(tmp_path: Path) -> None:
    assert all_stages.ports(settings(tmp_path, "")) == {"worker": 9464}
    direct = SOURCES.replace("scores.v3", "forecasts")
    assert all_stages.ports(settings(tmp_path, direct, TRUEUP_FORECASTS="forecasts")) == {"worker": 9464}


def test_free_ports_are_free_ports(tmp_path: Path) -> None:
    found = all_stages.ports(settings(tmp_path, TRUEUP_METRICS_PORT="0"))
    assert found == {"worker": 0, "router": 0, "intake": 0}


def test_there_must_be_ports_enough(tmp_path: Path) -> None:
    assert all_stages.ports(settings(tmp_path, TRUEUP_METRICS_PORT="65533"))["intake"] == 65_535
    with pytest.raises(SettingsError, match="TRUEUP_METRICS_PORT=65534: worker, router, intake need a port each"):
        all_stages.ports(settings(tmp_path, TRUEUP_METRICS_PORT="65534"))
