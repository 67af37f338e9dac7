"""Segments and challengers of classes and numbers as they are shown: JSON, gauges, tables and the status page."""

import random
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from agents.status import tables
from cli import show_tables
from state.events import Event, Forecast, Outcome
from state.forecasts import Normal, Probs, Quantiles
from state.policies import Policies
from state.policy import Policy
from state.scoring.vector_history import VectorHistory
from streams.metrics import vectors
from streams.metrics.description import describe
from streams.metrics.rows import StateRows
from streams.metrics.snapshot import read
from tests.state.histories import Worker, compared, judged_at_once

pytestmark = pytest.mark.usefixtures("no_warm_up")

LEVELS = (0.1, 0.5, 0.9)
POLICIES = {
    "numbers": compared("quantile", {"levels": LEVELS}, {"rate": 0.3}),
    "classes": compared("multiclass", {"classes": 3, "each": "identity"}, {"each": "platt"}),
}
BOTH = ["numbers", "classes"]


def found(stream: str, n: int = 2000) -> tuple[StateRows, Policy]:
    """Return the rows of two partitions on which forecasts of one of two countries are off."""
    policy, rng = POLICIES[stream], random.Random(3)
    rows = dict[int, Mapping[str, Mapping[bytes, bytes]]]()
    for partition in (0, 1):
        worker = Worker(Policies([(stream, policy)]))
        events: list[Event] = []
        for t in range(n):
            country = rng.choice(["DE", "FR<"])
            off = country == "FR<"
            if stream == "numbers":
                raw: Normal | Probs = Normal(0.0, 1.0)
                y = rng.gauss(1.5 if off else -1.5, 1.0)
            else:
                raw = Probs((0.6, 0.3, 0.1))
                y = float(rng.choices((0, 1, 2), (2, 6, 2) if off else (6, 3, 1))[0])
            events += [
                Forecast(t, None, f"e{t}", stream, raw, (), 1000 + t, None, (country,)),
                Outcome(t, None, f"e{t}", y, 61_000 + t),
            ]
        if stream == "numbers":  # half of them are answered before segments can be corrected
            events.sort(key=lambda event: event.offset + n // 2 * isinstance(event, Outcome))
        worker.fold(*events)
        rows[partition] = read(worker.table.get, Policies([(stream, policy)]), [stream], worker.table.fence).rows
    return StateRows(rows), policy


@pytest.fixture(scope="module", params=BOTH)
def shown(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    with judged_at_once():
        rows, policy = found(request.param)
    return request.param, describe(rows, request.param, policy)


def test_segments_that_are_off_are_named_with_their_interval(shown: tuple[str, dict[str, Any]]) -> None:
    stream, described = shown
    of = described["segments"]
    assert of["of"] == ("quantiles" if stream == "numbers" else "probs")
    assert of["scored"] == 2
    worst = of["worst"][0]
    assert worst["sounds"]
    assert worst["off"]["low"] * worst["off"]["high"] > 0.0, "the interval leaves out 0"
    assert worst["off"]["low"] < worst["off"]["mean"] < worst["off"]["high"]
    assert (worst["off"]["level"] is None) == (stream == "classes")
    assert worst["coverage"] == 1.0
    assert worst["mean_age_s"] == 60.0
    if stream == "classes":
        assert (worst["value"], of["off"]) == ("FR<", 1)
        assert worst["off"]["mean"] == pytest.approx(0.4, abs=0.05)
    assert sum(each["events"] for each in of["worst"]) == described["vectors"][POLICIES[stream].config]["resolved"]


def test_challengers_are_compared_by_the_losses_of_their_kind(shown: tuple[str, dict[str, Any]]) -> None:
    stream, described = shown
    (pair,) = described["shadows"]
    assert pair["events"] == 4000
    assert pair["difference"].keys() == ({"pinball"} if stream == "numbers" else {"brier", "log"})
    for loss, of in pair["difference"].items():
        both = (pair[side]["loss"][loss] for side in ("challenger", "champion"))
        assert of["mean"] == pytest.approx(next(both) - next(both))
        assert of["error"] > 0.0
    if stream == "classes":
        assert pair["difference"]["log"]["mean"] + 2 * pair["difference"]["log"]["error"] < 0, "platt learns the level"


def test_inspect_prints_both(shown: tuple[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    stream, described = shown
    orjson.dumps(described)
    show_tables.show({stream: described}, {}, whole=True)
    printed = capsys.readouterr().out
    assert "FR<" in printed
    assert "off by" in printed
    assert "Challengers" in printed
    assert ("pinball" if stream == "numbers" else "Brier") in printed


def test_a_stream_without_outcomes_is_described() -> None:
    policy = POLICIES["numbers"]
    worker = Worker(Policies([("numbers", policy)]))
    worker.fold(Forecast(0, None, "e", "numbers", Normal(0.0, 1.0), (), 1000, None, ("DE",)))
    held = read(worker.table.get, Policies([("numbers", policy)]), ["numbers"], worker.table.fence)
    described = describe(StateRows({0: held.rows}), "numbers", policy)
    assert described["segments"]["scored"] == 0
    (said,) = tables.segments(described["segments"])
    assert not said.rows
    assert "No segment is judged yet" in str(said.words[0])


def test_the_last_windows_are_those_of_all_partitions_together() -> None:
    law = Quantiles((0.25, 0.75), (-1.0, 1.0))
    found = {}
    for partition, (n, y) in enumerate(((1100, 0.0), (600, 2.0))):
        found[partition] = VectorHistory.of(law)
        for t in range(n):
            found[partition].observe(Normal(0.0, 1.0), law, y, b"%d" % t)
    described = vectors.describe(found)
    assert [(each["n"], each["calibrated"]) for each in described["windows"]] == [(1000, 0.25), (500, 0.25)]
    assert [len(each.recent) for each in found.values()] == [2, 1]
    shown = tables.of_stream({"stream": "s", "resolved": 0, "vectors": {"c": described}, "calibrators": ()})
    (table,) = (each for each in shown if each.title == "Windows")
    assert [row[0] for row in table.rows] == ["last", "1 before"]
