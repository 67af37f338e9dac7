"""Who writes which topics: a second application is refused, a change of one's own or a takeover is not."""

from pathlib import Path

import pytest

from streams.config.settings import Settings
from streams.kafka import owners
from streams.kafka.owners import Kept, conflicts

SOURCES = """
[sources.scores]
topic = "scores"
role = "forecast"
event_id = "id"
stream = "fraud"
p = "score"

[sources.labels]
topic = "labels"
role = "outcome"
event_id = "id"
y = "y"
"""


@pytest.fixture
def streams(tmp_path: Path) -> str:
    path = tmp_path / "streams.toml"
    path.write_text(SOURCES)
    return str(path)


def settings(**named: str) -> Settings:
    return Settings.from_env({f"TRUEUP_{name}": value for name, value in named.items()})


def kept(*each: Settings) -> list[Kept]:
    claims = [claim for one in each for claim in owners.of(one)]
    return [Kept(n, claim.group, claim) for n, claim in enumerate(claims)]


def test_copy_with_another_id_is_refused_with_both_names_and_the_remedy(streams: str) -> None:
    production, copy = settings(STREAMS=streams), settings(STREAMS=streams, APP_ID="staging")
    (said,) = conflicts(copy, kept(production))
    assert said.startswith(
        "topics calibrated, dead-letters, forecasts, outcomes, resolved belong to application trueup, and "
        "TRUEUP_APP_ID=staging would write there, too: set TRUEUP_TOPIC_PREFIX or TRUEUP_CALIBRATED, "
    )
    assert "'trueup topics take'" in said
    # The router is asked on its own, and so is an intake beside workers with outputs of their own.
    (of_router,) = conflicts(copy.router, kept(production))
    assert "dead-letters, outcomes belong to application trueup" in of_router
    assert "TRUEUP_DEAD_LETTERS, TRUEUP_OUTCOMES to give" in of_router
    outputs = {"CALIBRATED": "c", "RESOLVED": "r", "DEAD_LETTERS": "d"}
    (of_inputs,) = conflicts(settings(STREAMS=streams, APP_ID="staging", **outputs), kept(production))
    assert of_inputs.startswith("topics forecasts, outcomes belong to application trueup")


def test_what_has_topics_of_its_own_is_served(streams: str) -> None:
    production = settings(STREAMS=streams)
    staging = settings(STREAMS=streams, APP_ID="staging", TOPIC_PREFIX="staging-")
    # A shadow reads what production reads, and writes elsewhere.
    shadow = settings(APP_ID="shadow", CALIBRATED="s-c", RESOLVED="s-r", DEAD_LETTERS="s-d")
    everybody = kept(production, staging, shadow)
    assert [conflicts(each, everybody[:n]) for n, each in ((3, staging), (6, shadow))] == [[], []]
    # Whoever began after it does not stop it from starting again.
    assert [conflicts(each, everybody) for each in (production, staging, shadow)] == [[], [], []]


def test_one_id_on_other_topics_is_refused_with_both_sets() -> None:
    one = settings()
    (said,) = conflicts(settings(FORECASTS="f", CALIBRATED="c"), kept(one))
    assert said.startswith(
        "application trueup works on other topics: it reads forecasts and writes calibrated, and with "
        "TRUEUP_APP_ID=trueup and these settings it reads f and writes c; set another TRUEUP_APP_ID, or"
    )
    assert "it reads forecasts, outcomes and writes" in conflicts(settings(TOPIC_PREFIX="p-"), kept(one))[0]


def test_outputs_may_be_added_and_left_out(streams: str) -> None:
    plain, more = settings(), settings(STREAMS=streams, MAPS="maps")
    assert conflicts(more, kept(plain)) == conflicts(plain, kept(more)) == []
    (said,) = conflicts(settings(MAPS="maps", APP_ID="b", TOPIC_PREFIX="b-"), kept(settings(MAPS="b-maps")))
    assert said.startswith("topic b-maps belongs to application trueup")
