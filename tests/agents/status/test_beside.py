"""What the page of ``trueup run`` shows of the stages beside the worker."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector

from agents.server import Server
from agents.status.beside import OtherStages
from agents.status.pages import Pages
from streams.config.settings import Settings
from streams.metrics.routing import IntakeGauges, RouteGauges
from tests.agents.serving import serving
from tests.agents.status.rows import readings
from tests.agents.status.test_pages import get

PLAN = """
[sources.scores]
topics = ["scores.v3", "scores.v4"]
role = "forecast"
event_id = "id"
stream = "cards"
p = "score"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "streams.toml").write_text(PLAN)
    return Settings.from_env(
        {
            "TRUEUP_STREAMS": str(tmp_path / "streams.toml"),
            "TRUEUP_METRICS_USERNAME": "ops",
            "TRUEUP_METRICS_PASSWORD": "secret",
        }
    )


@pytest.fixture
def intake(settings: Settings) -> Iterator[Server]:
    lag = [("lag_records", ("scores.v3", "0"), 5.0), ("lag_records", ("scores.v4", "1"), 7.0)]
    gauges = IntakeGauges("1", ["scores"], lambda: lag)
    gauges.mapped("scores", "sent", "", 1200)
    gauges.mapped("scores", "dead", "probability", 3)
    ProcessCollector(registry=gauges.registry)
    with serving(gauges.exposition, unready=lambda: "no <partition> is read", access=settings.access) as server:
        yield server


@pytest.fixture
def router() -> Iterator[Server]:
    gauges = RouteGauges("1", lambda: [("lag_records", ("forecasts", "0"), 2.0)])
    with serving(gauges.exposition) as server:
        yield server


def test_the_page_says_what_every_stage_reads_and_what_becomes_of_it(
    settings: Settings, intake: Server, router: Server
) -> None:
    told = readings(settings=settings)
    beside = OtherStages(settings, {"router": router.port, "intake": intake.port})
    shown = Pages(type(told)(settings, told.mirror, told.version, beside))
    found = {each["stage"]: each for each in get(shown, "/api/streams").json["worker"]["stages"]}
    assert found["intake"]["unready"] == "no <partition> is read"
    assert found["intake"]["inputs"] == [
        {
            "name": "scores",
            "topics": ["scores.v3", "scores.v4"],
            "fates": {"sent": 1200, "passed": 0},
            "dead": 3,
            "lag": 12,
        }
    ]
    assert found["router"]["unready"] is None
    routes, labels = found["router"]["inputs"]
    assert (routes["name"], routes["topics"], routes["lag"]) == ("routes", [settings.routes], 2)
    assert (labels["name"], labels["lag"], labels["dead"]) == ("labels", None, 0)
    page = get(shown).html
    assert "intake is not ready: no &lt;partition&gt; is read" in page
    assert "scores.v3, scores.v4" in page
    assert "1,200 sent" in page
    since = datetime.fromtimestamp(found["intake"]["since"], UTC)
    assert since <= datetime.now(UTC)
    assert f"intake, {since:%Y-%m-%d %H:%M} UTC" in page


def test_a_stage_that_does_not_answer_is_said_to(settings: Settings, router: Server) -> None:
    port = router.port
    router.close()
    (found,) = OtherStages(settings, {"router": port}).read()
    assert found == {"stage": "router", "port": port, "unready": "it does not answer", "since": None, "inputs": []}
