"""What goes on from a forecast's record to its answer: what was chosen, as it came, and never beyond its bounds."""

from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.events import Carried, Forecast, Rejected
from state.fence import FORECASTS
from state.policies import Policies
from state.policy import Policy
from streams.records.decoding import Decoder
from streams.records.limits import Limits
from streams.records.making import Reader
from streams.sources import config
from streams.sources.carrying import MOST, MOST_BYTES, TRACE, Carrier, headers
from streams.sources.direct import Direct
from streams.sources.mapping import Mapping
from streams.sources.references import Headers
from streams.sources.registry import Registry

NOW = 1_700_000_000_000
PARENT = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
SCORES: dict[str, Any] = {
    "topic": "forecasts",
    "role": "forecast",
    "event_id": "txn",
    "stream": "model",
    "p": "risk",
    "carry": {"customer": "payment.customer", "place": "{country}/{city}", "lane": "@header.lane"},
    "carry_headers": ["traceparent", "x-*"],
}
VALUE = {"txn": "e", "model": "s", "risk": 0.5, "payment": {"customer": 7}, "country": "DE", "city": "Ulm"}
POLICIES = Policies(default=Policy())


def direct(*tables: dict[str, Any]) -> Decoder:
    sources = config.parse({f"s{i}": table for i, table in enumerate(tables)})
    return Decoder(POLICIES, Limits(), Direct(("forecasts", "outcomes"), (sources, ()), Registry()))


def carried(decoder: Decoder, value: dict[str, Any], given: Headers = ()) -> Carried | None:
    event = decoder.forecast(0, b"k", orjson.dumps(value), NOW, given)
    assert isinstance(event, Forecast)
    return event.carried


def test_a_source_names_the_headers_and_fields_that_go_on() -> None:
    given = [("x-a", b"1"), PARENT, ("tracestate", b"t"), ("lane", b"slow"), ("x-a", b"2"), ("x-b", None)]
    found = carried(direct(SCORES), VALUE, given)
    assert found == (
        (("x-a", b"1"), PARENT, ("x-a", b"2"), ("x-b", None)),
        b'{"customer":7,"lane":"slow","place":"DE/Ulm"}',
    )


def test_what_is_not_there_is_not_carried() -> None:
    assert carried(direct(SCORES), {"txn": "e", "model": "s", "risk": 0.5}) is None
    found = carried(direct(SCORES), {**VALUE, "payment": {"customer": None}})
    assert found == ((), b'{"place":"DE/Ulm"}')


@pytest.mark.parametrize("mapped", [True, False])
def test_the_trace_context_goes_on_where_nothing_else_is_said(*, mapped: bool) -> None:
    table = {name: said for name, said in SCORES.items() if not name.startswith("carry")}
    decoder = direct(table) if mapped else Decoder(POLICIES, Limits())
    value = VALUE if mapped else {"event_id": "e", "stream": "s", "p": 0.5}
    given = [("x-a", b"1"), PARENT, ("tracestate", b"vendor=1"), ("Traceparent", b"other")]
    assert carried(decoder, value, given) == ((PARENT, ("tracestate", b"vendor=1")), b"")


def test_no_header_goes_on_where_the_file_says_so() -> None:
    assert carried(direct({**SCORES, "carry": {}, "carry_headers": []}), VALUE, [PARENT]) is None
    plain = Decoder(POLICIES, Limits(), carry_headers=())
    assert carried(plain, {"event_id": "e", "stream": "s", "p": 0.5}, [PARENT]) is None


def test_each_source_of_a_topic_has_its_own() -> None:
    one = {**SCORES, "when": {"model": "s"}}
    other = {**SCORES, "carry": {"who": "txn"}, "carry_headers": ["lane"]}
    decoder = direct(one, other)
    given = [PARENT, ("lane", b"slow")]
    assert carried(decoder, {**VALUE, "model": "t"}, given) == ((("lane", b"slow"),), b'{"who":"e"}')
    found = carried(decoder, VALUE, given)
    assert found is not None
    assert found.headers == (PARENT,)


def test_a_canonical_record_carries_its_own_fields() -> None:
    plain = Decoder(POLICIES, Limits())
    value = {"event_id": "e", "stream": "s", "p": 0.5, "carried": {"a": [1, {"b": None}], "c": "ü"}}
    assert carried(plain, value, [PARENT]) == ((PARENT,), '{"a":[1,{"b":null}],"c":"ü"}'.encode())
    for wrong in (7, [1], "text", True):
        assert carried(plain, {**value, "carried": wrong}) is None
    assert plain.left_out("field") == 4


def test_what_a_source_s_record_calls_carried_is_nothing_that_is_carried() -> None:
    assert carried(direct({**SCORES, "carry": {}}), {**VALUE, "carried": {"a": 1}}) is None


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (datetime(2026, 1, 2, tzinfo=UTC), b'"2026-01-02T00:00:00+00:00"'),
        (Decimal("1.10"), b'"1.10"'),
        (b"text", b'"text"'),
        (b"\xff", None),
        (2**70, None),
        ({1: 2}, None),
        (float("nan"), b"null"),
    ],
)
def test_what_other_formats_hold_goes_on_as_json_has_it_or_is_left_out(value: object, kept: bytes | None) -> None:
    carrier = Carrier()
    found = carrier.carried((), {"a": value})
    assert found == (None if kept is None else ((), b'{"a":' + kept + b"}"))
    assert carrier.left_out == {"header": 0, "field": int(kept is None)}


def test_what_is_too_much_is_left_out_and_the_rest_goes_on() -> None:
    long = {**VALUE, "payment": {"customer": "x" * MOST_BYTES}}
    decoder = direct(SCORES)
    found = carried(decoder, long, [("x-long", b"x" * MOST_BYTES), PARENT])
    assert found == ((PARENT,), b'{"place":"DE/Ulm"}')
    assert (decoder.left_out("header"), decoder.left_out("field")) == (1, 1)
    many = carried(decoder, VALUE, [(f"x-{i}", b"") for i in range(20)])
    assert many is not None
    assert [name for name, _ in many.headers] == [f"x-{i}" for i in range(MOST)]
    assert decoder.left_out("header") == 1 + 4


NAMES = st.sampled_from(["traceparent", "tracestate", "x-a", "x-b", "y"])
GIVEN = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=1200)), max_size=30)
FIELDS = st.dictionaries(st.text(max_size=8), st.text(max_size=900) | st.integers() | st.floats(), max_size=24)


@given(GIVEN, FIELDS, st.lists(st.sampled_from(["traceparent", "x-*", "*", "y"]), max_size=3))
def test_whatever_comes_stays_within_the_bounds_and_is_counted(
    given_headers: list[tuple[str, bytes | None]], fields: dict[str, Any], patterns: list[str]
) -> None:
    carrier = Carrier(patterns)
    found = carrier.carried(given_headers, fields) or Carried((), b"")
    chosen = [
        each
        for each in given_headers
        if any(each[0] == p or (p.endswith("*") and each[0].startswith(p[:-1])) for p in patterns)
    ]
    assert len(found.headers) + carrier.left_out["header"] == len(chosen)
    assert len(found.headers) <= MOST
    assert sum(len(name) + len(value or b"") for name, value in found.headers) <= MOST_BYTES
    left = iter(chosen)
    assert all(each in left for each in found.headers), "in their order"
    kept = orjson.loads(found.fields or b"{}")
    assert len(kept) + carrier.left_out["field"] == len(fields)
    assert len(kept) <= MOST
    assert len(found.fields) <= MOST_BYTES
    # What went on once goes on again as it is: intake hands it to a worker.
    again = Carrier(["*"])
    assert (again.carried(found.headers, kept) or Carried((), b"")) == found
    assert again.left_out == {"header": 0, "field": 0}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"carry": ["a"]}, "carry is a table"),
        ({"carry": dict.fromkeys("abcdefghijklmnopq", "x")}, "carry is a table of at most 16"),
        ({"carry": {"a": "b..c"}}, "carry.a: 'b..c' is not a path"),
        ({"carry": {"a": {"scale": 1}}}, "carry.a: "),
        ({"carry": {"": "a"}}, "carry: a name has 1 to 100 characters"),
        ({"carry": {"a": "@key.b"}}, "key_format"),
        ({"carry_headers": "traceparent"}, "carry_headers is a list"),
        ({"carry_headers": ["a"] * 17}, "carry_headers is a list of at most 16"),
        ({"carry_headers": ["a*b"]}, "carry_headers: a name has"),
        ({"carry_headers": [""]}, "carry_headers: a name has"),
        ({"role": "outcome", "carry": {}}, "has no setting"),
    ],
)
def test_what_is_no_setting_is_refused_at_start(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as found:
        config.parse({"scores": {**SCORES, **settings}})
    assert str(found.value).startswith("sources.scores: ")


def test_sources_that_do_not_say_it_carry_what_the_file_says() -> None:
    without = {name: said for name, said in SCORES.items() if name != "carry_headers"}
    (source,) = config.parse({"s": without}, headers(["x-*"]))
    assert source.table["carry_headers"] == ["x-*"]
    (source,) = config.parse({"s": SCORES}, headers(["y"]))
    assert source.table["carry_headers"] == SCORES["carry_headers"]
    assert Mapping(config.parse({"s": without})[0]).carrier.patterns == TRACE


# -- through intake ----------------------------------------------------------------------------------------------------


def read(table: dict[str, Any], value: dict[str, Any], given: Headers, policies: Policies = POLICIES) -> Any:
    (source,) = config.parse({"scores": {**table, "topic": "scores.v3"}})
    reader = Reader(Mapping(source), policies, Limits())
    record = SimpleNamespace(value=orjson.dumps(value), key=b"card", headers=given, offset=17, timestamp=NOW)
    return reader.canonical(record, "scores.v3", ("scores@6f/0", 17), NOW)


def test_intake_hands_on_what_the_worker_would_have_carried_itself() -> None:
    given = [("x-a", b"1"), ("y", b"2"), PARENT]
    made = read(SCORES, VALUE, given)
    (_, (_, value, _, headers)), (_, (*_, of_route)) = made
    assert of_route == []
    worker = Decoder(POLICIES, Limits(), carry_headers=())
    event = worker.forecast(0, b"s", value, NOW, headers)
    assert isinstance(event, Forecast)
    assert event.carried == carried(direct(SCORES), VALUE, given)
    assert event.carried is not None
    assert event.carried.headers == (("x-a", b"1"), PARENT)


# -- forecasts that are dead letters -----------------------------------------------------------------------------------

RAW = Policies(
    [
        ("s", Policy("histogram", on_error="raw")),
        ("classes", Policy("multiclass", {"classes": 3}, on_error="raw")),
        ("x", Policy("histogram", features=1, on_error="raw")),
    ],
    None,
    on_error="raw",
)
GOOD = {"event_id": "e", "stream": "s", "p": 0.5, "ts": NOW - 5, "carried": {"a": 1}}
CARRIED = Carried((PARENT,), b'{"a":1}')


def refused(**fields: Any) -> Rejected:
    value = {name: said for name, said in {**GOOD, **fields}.items() if said is not None}
    found = Decoder(RAW, Limits()).forecast(3, b"k", orjson.dumps(value), NOW, [PARENT])
    assert isinstance(found, Rejected)
    return found


@pytest.mark.parametrize(
    ("fields", "reason", "stream", "raw", "ts"),
    [
        ({"stream": "unknown"}, "unknown_stream", "unknown", 0.5, NOW - 5),
        ({"stream": 7}, "stream", "", 0.5, NOW - 5),
        ({"stream": None}, "stream", "", 0.5, NOW - 5),
        ({"stream": "x"}, "features", "x", 0.5, NOW - 5),
        ({"stream": "classes"}, "unsupported", "classes", 0.5, NOW - 5),
        ({"ts": NOW + 10**9}, "timestamp", "s", 0.5, NOW),
        ({"ts": "soon"}, "timestamp", "s", 0.5, NOW),
        ({"p": None, "probs": [0.1, 0.9]}, "unsupported", "s", (0.1, 0.9), NOW - 5),
        ({"stream": "classes", "p": None, "probs": [0.1, 0.9]}, "probs", "classes", (0.1, 0.9), NOW - 5),
    ],
)
def test_of_a_dead_letter_that_is_answered_all_is_known_that_could_be_read(
    fields: dict[str, Any], reason: str, stream: str, raw: object, ts: int
) -> None:
    found = refused(**fields)
    assert found.reason == reason
    assert found.forecast == Forecast(3, b"k", "e", stream, raw, (), ts, None, (), CARRIED)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{", b"[]", b" " * 70_000),
        *(orjson.dumps({**GOOD, name: None}) for name in ("event_id", "p")),
        *(orjson.dumps({**GOOD, **wrong}) for wrong in ({"event_id": 7}, {"scope": "\n"}, {"probs": [0.5, 0.5]})),
        *(orjson.dumps({**GOOD, "p": p}) for p in (1.5, "0.5")),
    ],
)
def test_a_forecast_whose_event_or_score_cannot_be_read_is_not_answered(value: bytes) -> None:
    found = Decoder(RAW, Limits()).forecast(3, b"k", value, NOW, [PARENT])
    assert isinstance(found, Rejected)
    assert found.forecast is None


def test_nothing_more_is_read_of_dead_letters_where_none_is_answered() -> None:
    found = Decoder(POLICIES, Limits()).forecast(3, b"k", b'{"event_id": "e", "p": 0.5}', NOW)
    assert found == Rejected(3, b"k", b'{"event_id": "e", "p": 0.5}', FORECASTS, "stream")


def test_of_a_source_s_record_the_fields_that_can_be_read_are_known() -> None:
    table = {**SCORES, "ts": "at", "carry_headers": ["*"]}
    sources = config.parse({"s": table})
    decoder = Decoder(RAW, Limits(), Direct(("forecasts", "outcomes"), (sources, ()), Registry()))
    value = orjson.dumps({**VALUE, "at": "soon"})
    found = decoder.forecast(3, b"k", value, NOW, [PARENT])
    assert isinstance(found, Rejected)
    assert (found.reason, found.value) == ("timestamp", value)
    assert found.forecast is not None
    assert found.forecast[2:7] == ("e", "s", 0.5, (), NOW)
    assert found.forecast.carried == ((PARENT,), b'{"customer":7,"place":"DE/Ulm"}')


@pytest.mark.parametrize(
    ("fields", "reason", "key", "event"),
    [
        ({"risk": "much"}, "probability", None, None),
        ({"at": "soon"}, "timestamp", b"s", "e\ns"),
        ({"model": "unknown"}, "unknown_stream", b"unknown", "e\nunknown"),
        ({"model": None}, "stream", b"e", "e"),
        ({"txn": None}, "event_id", None, None),
    ],
)
def test_intake_s_dead_letters_have_the_key_and_scope_that_the_worker_s_answer_would_have(
    fields: dict[str, Any], reason: str, key: bytes | None, event: str | None
) -> None:
    made = read({**SCORES, "ts": "at"}, {**VALUE, "at": NOW, **fields}, [PARENT], RAW)
    assert isinstance(made, Rejected)
    assert (made.reason, made.offset, made.key) == (reason, 17, b"card")
    forecast = made.forecast
    assert (forecast and forecast.key, forecast and forecast.event_id) == (key, event)
    if forecast is not None:
        assert forecast.carried == ((PARENT,), b'{"customer":7,"place":"DE/Ulm"}')
