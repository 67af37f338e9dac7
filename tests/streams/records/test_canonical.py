"""Source records become what the worker and the router read, or a dead letter with a reason of theirs."""

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from state.events import Forecast, Rejected
from state.policies import Policies
from state.policy import Policy
from state.routes import Label, Route
from streams.records.decoding import REASONS, Decoder
from streams.records.limits import Limits
from streams.records.making import Canonical, Reader
from streams.records.refused import Refused
from streams.records.routing import RouteDecoder, place, target
from streams.sources import config
from streams.sources.mapping import Mapping

POLICIES = Policies([("hot", Policy("platt", shards=4)), ("open-*", Policy("platt"))], None)
NOW = 1_700_000_000_000
ORIGIN = (place("scores", "6f", 3), 17)
SCORES = {
    "topic": "scores.v3",
    "role": "forecast",
    "event_id": "id",
    "stream": "model",
    "p": {"path": "risk", "scale": [0, 1000]},
    "when": {"kind": "score"},
}
LABELS = {"topic": "labels.v1", "role": "outcome", "event_id": "id", "y": "y", "stream": "model"}


def reader(table: dict[str, Any]) -> Reader:
    (source,) = config.parse({"scores": table})
    return Reader(source.name, source.role, Mapping(source), POLICIES, Limits())


def record(value: bytes | None, ts: int = NOW) -> Any:
    return SimpleNamespace(value=value, key=b"card-1", headers=(), offset=17, timestamp=ts)


def read(table: dict[str, Any], **fields: Any) -> Canonical | Rejected | None:
    return reader(table).canonical(record(orjson.dumps(fields)), "t", ORIGIN, NOW)


def scored(**fields: Any) -> Canonical | Rejected | None:
    return read(SCORES, **{"kind": "score", "id": "e1", "model": "open-a", "risk": 250, **fields})


def test_a_score_becomes_a_forecast_under_its_stream_and_a_route_under_its_event() -> None:
    made = scored()
    assert isinstance(made, Canonical)
    assert made.then is not None
    assert [each.key for each in made if each] == [b"open-a", b"e1"]
    event = Decoder(POLICIES, Limits()).forecast(0, b"open-a", made.first.value, NOW)
    assert isinstance(event, Forecast)
    assert (event.event_id, event.stream, event.raw, event.ts) == ("e1\nopen-a", "open-a", 0.25, NOW)
    (route,) = RouteDecoder().events([(0, record(made.then.value))])
    assert isinstance(route, Route)
    assert route[3:] == ("e1", "open-a", "open-a", NOW, ORIGIN)
    assert orjson.loads(made.first.value)["origin"] == list(ORIGIN)


def test_the_shards_of_a_stream_are_keys_of_their_own() -> None:
    keys = set()
    for i in range(50):
        made = scored(model="hot", id=f"e{i}")
        assert isinstance(made, Canonical)
        keys.add(made.first.key)
        assert made.first.key == target("hot", f"e{i}", 4).encode()
    assert keys == {b"hot#0", b"hot#1", b"hot#2", b"hot#3"}


@pytest.mark.parametrize(("model", "key"), [(None, ""), ("open-a", "open-a"), ("hot", target("hot", "e1", 4))])
def test_a_label_is_for_every_stream_or_for_the_one_it_names(model: str | None, key: str) -> None:
    made = read(LABELS, id="e1", y=1, **({} if model is None else {"model": model}))
    assert isinstance(made, Canonical)
    assert made.then is None
    (label,) = RouteDecoder().events([(1, record(made.first.value))])
    assert isinstance(label, Label)
    assert label[3:] == ("e1", model or "", key, 1.0, NOW, 0, NOW, ORIGIN, ())


def test_the_headers_of_a_label_that_are_named_go_on() -> None:
    sent = record(b'{"id": "e1", "y": 1}')
    sent.headers = (("traceparent", b"00-1"), ("other", b"stays"))
    made = reader(LABELS).canonical(sent, "t", ORIGIN, NOW)
    assert isinstance(made, Canonical)
    assert made.first.headers == [("traceparent", b"00-1")]
    came = record(made.first.value)
    came.headers = made.first.headers
    (label,) = RouteDecoder().events([(1, came)])
    assert isinstance(label, Label)
    assert label.headers == (("traceparent", b"00-1"),)


def test_what_the_mapping_passes_over_becomes_nothing() -> None:
    assert scored(kind="other") is None


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (scored(id=None), "event_id"),
        (scored(model=None), "stream"),
        (scored(model=7), "unknown_stream"),
        (scored(model="closed"), "unknown_stream"),
        (scored(risk=-250), "probability"),
        (read(LABELS, id="e", y="x"), "label"),
        (read(LABELS, id="e", y=1, model="closed"), "unknown_stream"),
        (read(LABELS, y=1), "event_id"),
        (reader(SCORES).canonical(record(b"no"), "t", ORIGIN, NOW), "not_json"),
        (reader(SCORES).canonical(record(b"[]"), "t", ORIGIN, NOW), "not_object"),
        (reader(SCORES).canonical(record(b""), "t", ORIGIN, NOW), "empty"),
        (reader(SCORES).canonical(record(Refused.of(1, 2, 3, "x")), "t", ORIGIN, NOW), "batch"),
        (reader(LABELS).canonical(record(b'{"id":"e","y":1}', NOW + 300_001), "t", ORIGIN, NOW), "far_ahead"),
    ],
)
def test_what_the_worker_would_refuse_is_refused_here_where_its_place_is_known(
    made: Canonical | Rejected | None, reason: str
) -> None:
    assert isinstance(made, Rejected)
    assert (made.reason, made.offset, made.key) == (reason, 17, b"card-1")
    assert reason in REASONS or reason == "far_ahead"
