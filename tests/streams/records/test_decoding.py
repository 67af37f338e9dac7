"""Bytes to events and outputs to bytes: nothing a record holds is an error, and everything has a reason."""

import base64
import json
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.entities import number
from state.events import Event, Forecast, Outcome, Passed, Rejected
from state.fence import FORECASTS, OUTCOMES
from state.forecasts import Normal, Probs, Quantiles
from state.policies import Policies
from state.policy import Policy
from streams.config.settings import Settings
from streams.records.decoding import KEY_IDS, REASONS, Decoder
from streams.records.encoding import encoded
from streams.records.limits import Limits
from streams.records.output_json import encode_letter

LIMITS = Limits()
NOW = 1_357_034_400_000
OPEN = Decoder(Policies(default=Policy()), LIMITS)
FEATURES = Decoder(
    Policies(
        [
            ("list", Policy(calibrator="calibrated_regression", features=2)),
            ("named", Policy(calibrator="calibrated_regression", features=("age", "amount"))),
        ],
        None,
    ),
    LIMITS,
)

VERSIONED = Decoder(Policies(default=Policy(model_version="model.version")), LIMITS)
WEIGHED = Decoder(Policies(default=Policy(weight="amount", label_rate="decision.chance")), LIMITS)


def forecast(value: bytes | None, decoder: Decoder = OPEN, key: bytes | None = b"k") -> Forecast | Rejected:
    """Decode a forecast; the value it keeps for a dead letter is checked here and left out."""
    event = decoder.forecast(7, key, value, NOW)
    assert not isinstance(event, Passed)
    if isinstance(event, Rejected):
        return event
    assert event.value == value
    return event._replace(value=None)


def outcome(value: bytes | None, decoder: Decoder = OPEN, key: bytes | None = b"k") -> Outcome | Rejected:
    event = decoder.outcome(7, key, value, NOW)
    assert not isinstance(event, Passed)
    return event


def made(**fields: Any) -> bytes:
    """Return a forecast's value: a good one, but for the fields given."""
    return json.dumps({"event_id": "e", "stream": "s", "p": 0.5, **fields}).encode()


def happened(**fields: Any) -> bytes:
    """Return an outcome's value: a good one, but for the fields given."""
    return json.dumps({"event_id": "e", "y": 1, **fields}).encode()


def reason(event: Event) -> str | None:
    return event.reason if isinstance(event, Rejected) else None


# -- whatever it holds ---------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=140)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))
NAMES = ["event_id", "stream", "p", "probs", "quantiles", "normal", "x", "y", "ts", "revision", "segments"]
RECORDS = st.dictionaries(st.sampled_from(NAMES) | st.text(), JSON).map(lambda record: json.dumps(record).encode())
KEYS = st.none() | st.binary(max_size=1100)


@given(st.none() | st.binary(max_size=300) | RECORDS, KEYS, st.integers(0, 2**62))
@example(b"[" * 50_000, None, 0)
@example(b'{"a":' * 10_000, None, 0)
@example(b"[" * 1000 + b"]" * 1000, None, 0)
@example(b'"\\ud800"', None, 0)
@example(b'{"event_id":"\xed\xa0\x80","stream":"s","p":1}', None, 0)
@example(b'{"event_id":"e","stream":"s","p":' + b"9" * 400 + b"}", None, 0)
@example(b'{"event_id":"e","stream":"s","p":1e-400,"y":1e-400}', None, 0)
@example(b'{"event_id":"e","stream":"s","p":1,"y":1,"ts":' + b"9" * 30 + b"}", None, 0)
def test_any_bytes_decode_to_an_event_and_nothing_is_raised(
    value: bytes | None, key: bytes | None, timestamp: int
) -> None:
    for decoder in (OPEN, FEATURES):
        for topic, event in (
            (FORECASTS, decoder.forecast(3, key, value, timestamp)),
            (OUTCOMES, decoder.outcome(3, key, value, timestamp)),
        ):
            assert isinstance(event, Passed) == (value is None), "only a tombstone is passed over"
            if isinstance(event, Passed):
                continue
            assert (event.offset, event.key) == (3, key)
            if isinstance(event, Rejected):
                assert event.reason in REASONS
                assert (event.value, event.topic) == (value, topic)
            elif isinstance(event, Forecast):
                assert topic == FORECASTS
                assert type(event.raw) is float
                assert 0 <= event.raw <= 1
                assert all(type(x) is float and -1 <= x <= 1 for x in event.x)
                assert 0 < len(event.stream.encode()) <= LIMITS.id_bytes
            else:
                assert topic == OUTCOMES
                assert type(event.y) is float
                assert event.y in (0.0, 1.0)
            if not isinstance(event, Rejected):
                assert 0 < len(event.event_id.encode()) <= LIMITS.id_bytes
                assert 0 <= event.ts <= timestamp + LIMITS.ahead_ms


class Bad(NamedTuple):
    """A record that cannot be used."""

    reason: str
    value: bytes | None
    key: bytes | None = b"k"


BOTH = [
    Bad("empty", b""),
    Bad("oversized", b" " * LIMITS.record_bytes + b"1"),
    Bad("oversized", made(y=1), b"k" * (KEY_IDS * LIMITS.id_bytes + 1)),
    Bad("not_json", b"\xff\xfe"),
    Bad("not_json", b"e,s,0.5"),
    Bad("not_json", b'{"event_id":"e"'),
    Bad("not_json", b'\xef\xbb\xbf{"event_id":"e"}'),
    Bad("not_json", made(y=1) + made(y=1)),
    Bad("not_object", b"null"),
    Bad("not_object", b"[]"),
    Bad("not_object", b"0.5"),
    Bad("not_object", b'"e"'),
    Bad("event_id", b"{}"),
    *(Bad("event_id", made(event_id=bad, y=1)) for bad in (None, "", 1, True, ["e"], {"e": 1}, 0.5)),
    Bad("event_id", made(event_id="e" * 129, y=1)),
    Bad("event_id", made(event_id="é" * 65, y=1)),
    Bad("event_id", made(event_id="\x00", y=1)),
    Bad("event_id", made(event_id="a\nb", y=1)),
    Bad("event_id", made(event_id="a\x7fb", y=1)),
    Bad("event_id", made(event_id="a\u200bb", y=1)),
    *(Bad("timestamp", made(y=1, ts=bad)) for bad in (-1, 0.5, 1e12, True, "now", [1], 2**70)),
    Bad("timestamp", made(y=1, ts=NOW + LIMITS.ahead_ms + 1)),
]
NO_PROBABILITIES: tuple[object, ...] = (True, False, "0.5", [0.5], {}, -1e-9, 1.0000001, 2, -1, 10**30)
NO_LABELS: tuple[object, ...] = (None, 2, -1, 0.5, "1", [1], {}, 10**30)
FORECAST_ONLY = [
    *(Bad("stream", made(stream=bad)) for bad in (None, "", 1, "s" * 129, "é" * 65, "a\tb", "\ud7ff\ue000")),
    Bad("forecast", b'{"event_id":"e","stream":"s"}'),
    Bad("forecast", made(p=None)),
    Bad("forecast", made(probs=[0.5, 0.5])),
    Bad("forecast", made(p=None, probs=[1], quantiles={})),
    Bad("unsupported", made(p=None, probs=[0.5, 0.5])),
    Bad("unsupported", made(p=None, quantiles={"levels": [0.5], "values": [1]})),
    Bad("unsupported", made(p=None, normal={"mean": 0, "std": 1})),
    *(Bad("probability", made(p=bad)) for bad in NO_PROBABILITIES),
    Bad("not_json", made(p=float("nan"))),
    Bad("not_json", made(p=float("inf"))),
    Bad("not_json", b'{"event_id":"e","stream":"s","p":1e400}'),
    Bad("not_json", b'{"event_id":"\\ud800","stream":"s","p":1}'),
]
OUTCOME_ONLY = [
    Bad("label", b'{"event_id":"e"}'),
    *(Bad("label", happened(y=bad)) for bad in NO_LABELS),
    Bad("not_json", happened(y=float("nan"))),
    *(Bad("revision", happened(revision=bad)) for bad in (0, -1, 2**32, 1.0, "1", True)),
]


@pytest.mark.parametrize(("p", "read"), [(1.0000000000000002, 1.0), (1 + 2e-15, 1.0), (-1e-17, 0.0)])
def test_what_rounding_alone_has_put_beyond_one_or_zero_is_one_or_zero(p: float, read: float) -> None:
    found = forecast(made(p=p))
    assert isinstance(found, Forecast)
    assert found.raw == read
    others = [1 - read, 0.0] if read else [0.5, 0.5]
    classes = forecast(made(stream="classes", p=None, probs=[p, *others]), VECTORS)
    assert isinstance(classes, Forecast)
    assert classes.raw == Probs([read, *others])


def test_times_decades_before_their_kafka_timestamp_count_and_are_told_apart() -> None:
    decoder = Decoder(Policies(default=Policy()), LIMITS)
    for ts in (NOW // 1000, NOW - 10 * 365 * 86_400_000, NOW):
        assert isinstance(decoder.forecast(1, None, made(ts=ts), NOW), Forecast)
    assert isinstance(decoder.outcome(1, None, happened(ts=NOW // 1000), NOW), Outcome)
    assert (decoder.far_off, decoder.far_off_last[FORECASTS]) == ([1, 1], (NOW // 1000, NOW))


@pytest.mark.parametrize("bad", BOTH + FORECAST_ONLY, ids=str)
def test_an_unusable_forecast_is_rejected_whole_with_its_reason(bad: Bad) -> None:
    assert forecast(bad.value, key=bad.key)[:5] == Rejected(7, bad.key, bad.value, FORECASTS, bad.reason)[:5]


@pytest.mark.parametrize("bad", BOTH + OUTCOME_ONLY, ids=str)
def test_an_unusable_outcome_is_rejected_whole_with_its_reason(bad: Bad) -> None:
    assert outcome(bad.value, key=bad.key)[:5] == Rejected(7, bad.key, bad.value, OUTCOMES, bad.reason)[:5]


VECTORS = Decoder(
    Policies(
        [
            ("classes", Policy("multiclass", {"classes": 3})),
            ("numbers", Policy("quantile", {"levels": (0.1, 0.5, 0.9)})),
        ],
        Policy(),
    ),
    LIMITS,
)
LAW = {"levels": [0.25, 0.75], "values": [-1, 1]}
BAD_PROBS: list[object] = [[0.5, 0.5], [0.2, 0.3, 0.4], [0.2, 0.3, "0.5"], [-0.2, 0.7, 0.5], [True, 0, 0], 1, {}]
BAD_NORMALS: list[object] = [1, {"mean": 0}, {"mean": 0, "std": 0}, {"mean": "0", "std": 1}, {"mean": 1e300, "std": 1}]
UNUSABLE_VECTORS = [
    Bad("forecast", made(stream="classes", p=None)),
    Bad("forecast", made(stream="classes", probs=[0.2, 0.3, 0.5])),
    Bad("unsupported", made(stream="classes")),
    Bad("unsupported", made(stream="classes", p=None, quantiles=LAW)),
    Bad("unsupported", made(stream="numbers", p=None, probs=[0.2, 0.3, 0.5])),
    *(Bad("probs", made(stream="classes", p=None, probs=bad)) for bad in BAD_PROBS),
    *(
        Bad("quantiles", made(stream="numbers", p=None, quantiles=bad))
        for bad in (
            1,
            {},
            LAW | {"values": [1, -1]},
            LAW | {"levels": [0, 1]},
            LAW | {"values": [1]},
            LAW | {"values": 1},
        )
    ),
    *(Bad("normal", made(stream="numbers", p=None, normal=bad)) for bad in BAD_NORMALS),
]


@pytest.mark.parametrize("bad", UNUSABLE_VECTORS, ids=str)
def test_an_unusable_forecast_of_classes_or_numbers_is_rejected_with_its_reason(bad: Bad) -> None:
    assert reason(VECTORS.forecast(7, bad.key, bad.value, NOW)) == bad.reason


@pytest.mark.parametrize(
    ("stream", "given", "read"),
    [
        ("classes", {"probs": [0, 0.25, 0.75]}, Probs((0.0, 0.25, 0.75))),
        ("numbers", {"quantiles": LAW}, Quantiles((0.25, 0.75), (-1.0, 1.0))),
        ("numbers", {"normal": {"mean": 3, "std": 2}}, Normal(3.0, 2.0)),
    ],
)
def test_a_forecast_is_read_as_what_its_stream_takes(stream: str, given: dict[str, object], read: object) -> None:
    event = VECTORS.forecast(7, b"k", made(stream=stream, p=None, **given), NOW)
    assert isinstance(event, Forecast)
    assert event.raw == read
    assert type(event.raw) is type(read)


@pytest.mark.parametrize(("y", "accepted"), [(2, True), (-3.5, True), (1e99, True), (1e101, False), ("2", False)])
def test_where_not_all_streams_are_binary_an_outcome_is_judged_when_it_meets_its_forecast(
    *, y: object, accepted: bool
) -> None:
    event = VECTORS.outcome(7, b"k", happened(y=y), NOW)
    assert isinstance(event, Outcome) is accepted
    assert isinstance(outcome(happened(y=y)), Rejected)


def test_a_stream_that_no_pattern_matches_is_rejected_where_streams_are_closed() -> None:
    assert reason(forecast(made(stream="new"), FEATURES)) == "unknown_stream"
    assert reason(forecast(made(stream="new"))) is None


# -- what is accepted ----------------------------------------------------------------------------------------------


#: A forecast and an outcome as `made` and `happened` make them.
PLAIN = Forecast(7, b"k", "e", "s", 0.5, (), NOW)
ONE = Outcome(7, b"k", "e", 1.0, NOW, None)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        *((made(p=p), PLAIN._replace(raw=float(p))) for p in (0, 1, 0.0, 1.0, 5e-324, 0.25)),
        *((made(ts=ts), PLAIN._replace(ts=ts)) for ts in (0, 1, NOW, NOW + LIMITS.ahead_ms)),
        (made(ts=None), PLAIN),
        (b'{"event_id":"a","p":2,"event_id":"e","stream":"s","p":0.5}', PLAIN),
        (made(weight=3, nested={"p": [9]}, y=1, probs=None, quantiles=None, normal=None, x="whatever"), PLAIN),
        (made(segments={"country": "DE"}), PLAIN),
    ],
)
def test_a_forecast_is_read_by_the_last_of_each_field_that_its_stream_knows(value: bytes, read: Forecast) -> None:
    found = forecast(value)
    assert found == read
    assert isinstance(found, Forecast)
    assert type(found.raw) is float
    assert forecast(value, key=None) == read._replace(key=None)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        *((happened(y=y), ONE._replace(y=float(y))) for y in (0, 1, False, True, 0.0, 1.0)),
        *((happened(ts=ts), ONE._replace(ts=ts)) for ts in (0, 1, NOW, NOW + LIMITS.ahead_ms)),
        *((happened(revision=n), ONE._replace(revision=n or 0)) for n in (None, 1, 2**32 - 1)),
        (happened(p=0.9, stream=5, comment="\x00"), ONE),
    ],
)
def test_an_outcome_is_read_by_its_label_time_and_revision(value: bytes, read: Outcome) -> None:
    found = outcome(value)
    assert found == read._replace(value=value)
    assert isinstance(found, Outcome)
    assert type(found.y) is float
    assert outcome(value, key=None) == read._replace(key=None, value=value)


@pytest.mark.parametrize("name", ["e", "e" * 128, "é" * 64, "漢" * 42 + "ab", "🂡" * 32, "a b", '"\\/', "{}", "0"])
def test_a_name_of_up_to_128_bytes_is_kept_as_it_is(name: str) -> None:
    assert forecast(made(event_id=name, stream=name)) == Forecast(7, b"k", name, name, 0.5, (), NOW)
    assert outcome(happened(event_id=name)) == Outcome(7, b"k", name, 1.0, NOW, happened(event_id=name))


@given(st.text(min_size=1, max_size=16))
def test_the_limit_of_a_name_is_in_bytes_of_utf_8(name: str) -> None:
    decoder = Decoder(Policies(default=Policy()), Limits(id_bytes=10))
    accepted = not isinstance(outcome(happened(event_id=name), decoder), Rejected)
    assert accepted == (name.isprintable() and len(name.encode()) <= 10)


def test_a_value_and_a_key_as_long_as_their_limits_are_accepted() -> None:
    value = made(y=1).ljust(LIMITS.record_bytes)
    key = b"k" * (KEY_IDS * LIMITS.id_bytes)
    assert isinstance(forecast(value, key=key), Forecast)
    assert isinstance(outcome(value, key=key), Outcome)


@pytest.mark.parametrize(
    ("stream", "x", "read"),
    [("named", {"amount": -1, "other": 5, "age": 0.25}, (0.25, -1.0)), ("list", [1, -0.5], (1.0, -0.5))],
)
def test_features_come_in_the_order_of_the_policy_or_in_their_own(
    stream: str, x: object, read: tuple[float, ...]
) -> None:
    event = forecast(made(stream=stream, x=x), FEATURES)
    assert event == Forecast(7, b"k", "e", stream, 0.5, read, NOW)
    assert all(type(each) is float for each in event.x)


# -- what leaves ---------------------------------------------------------------------------------------------------


@given(KEYS, st.none() | st.binary(max_size=300), st.integers(0, 100))
def test_a_letter_holds_key_and_value_in_base64_up_to_the_limit(
    key: bytes | None, value: bytes | None, limit: int
) -> None:
    letter = orjson.loads(
        encode_letter(Rejected(5, key, value, OUTCOMES, "label"), "my-outcomes", 3, Limits(letter_bytes=limit))
    )
    assert {name: letter[name] for name in ("reason", "topic", "partition", "offset")} == {
        "reason": "label",
        "topic": "my-outcomes",
        "partition": 3,
        "offset": 5,
    }
    for name, whole in (("key", key), ("value", value)):
        assert (letter[name] is None) == (whole is None)
        if whole is not None:
            assert base64.b64decode(letter[name], validate=True) == whole[:limit]
    assert letter["value_bytes"] == len(value or b"")


# -- segments ------------------------------------------------------------------------------------------------------

SEGMENTED = Decoder(
    Policies(
        [("strict", Policy(segments=("country",), segments_required=True)), ("s", Policy(segments=("country", "shop")))]
    ),
    LIMITS,
)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"country": "DE", "shop": "web", "other": "x"}, ("DE", "web")),
        ({"shop": "web"}, ("", "web")),
        ({"country": None, "shop": 7}, ("", "")),
        ({"country": "x" * 64, "shop": "x" * 65}, ("x" * 64, "")),
        ({"country": "é" * 32, "shop": "é" * 33}, ("é" * 32, "")),
        ({"country": "a\tb", "shop": ["web"]}, ("", "")),
        (None, ("", "")),
        (["DE"], ("", "")),
        ("DE", ("", "")),
    ],
)
def test_a_segment_without_a_usable_value_has_none_and_the_forecast_is_answered(
    given: object, values: tuple[str, ...]
) -> None:
    found = forecast(made(segments=given), SEGMENTED)
    assert isinstance(found, Forecast)
    assert found.segments == values
    assert isinstance(forecast(made(stream="strict", segments={"country": "DE"}), SEGMENTED), Forecast)


def test_an_event_of_a_scope_is_another_than_that_of_its_id_alone() -> None:
    names = [forecast(made(**scope)).event_id for scope in ({}, {"scope": "a"}, {"scope": "b"})]  # type: ignore[union-attr]
    assert len(set(names)) == 3
    event = outcome(happened(scope="a"))
    assert isinstance(event, Outcome)
    assert event.event_id == names[1]


@pytest.mark.parametrize(
    ("path", "fields", "name"),
    [
        ("", {}, ""),
        ("", {"entity": None}, ""),
        ("", {"entity": "a-17"}, "a-17"),
        ("", {"entity": 17}, "17"),
        ("account", {"account": "a-17", "entity": "other"}, "a-17"),
        ("customer.account", {"customer": {"account": 17}}, "17"),
        ("customer.account", {"customer": "x", "entity": "mapped"}, "mapped"),
        ("customer.account", {"customer": {}}, ""),
    ],
)
def test_what_a_forecast_is_about_is_read_where_the_stream_says(path: str, fields: dict[str, Any], name: str) -> None:
    event = forecast(made(**fields), Decoder(Policies(default=Policy(entity=path)), LIMITS))
    assert isinstance(event, Forecast)
    assert event.entity == (number(name.encode()) if name else 0)


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({"amount": 12.5, "decision": {"chance": 0.02}}, (12.5, 0.02)),
        ({"amount": 0, "decision": {"chance": 1}}, (0.0, 1.0)),
        ({"weight": 1e9, "label_rate": 0.5}, (1e9, 0.5)),
        ({"amount": 7, "weight": 9, "decision": {}, "label_rate": 0.25}, (7.0, 0.25)),
    ],
)
def test_weight_and_chance_of_a_label_are_read_where_the_stream_says(
    fields: dict[str, Any], read: tuple[float, float]
) -> None:
    event = forecast(made(**fields), WEIGHED)
    assert isinstance(event, Forecast)
    assert (event.weight, event.chance) == read
    plain = forecast(made(**fields))
    assert isinstance(plain, Forecast)
    assert (plain.weight, plain.chance) == (1.0, 1.0)


def test_a_chance_that_is_a_number_is_that_of_every_forecast() -> None:
    event = forecast(made(), Decoder(Policies(default=Policy(label_rate=0.02)), LIMITS))
    assert isinstance(event, Forecast)
    assert (event.weight, event.chance) == (1.0, 0.02)


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"model": {"version": "7.1"}, "model_version": "other"}, "7.1"),
        ({"model": {"version": 7}}, "7"),
        ({"model": "fraud", "model_version": "mapped"}, "mapped"),
    ],
)
def test_the_version_of_the_model_is_read_where_the_stream_says(fields: dict[str, Any], version: str) -> None:
    event = forecast(made(**fields), VERSIONED)
    assert isinstance(event, Forecast)
    assert event.version == version
    plain = forecast(made(**fields))
    assert isinstance(plain, Forecast)
    assert plain.version == ""


#: By the reason of its dead letter: who reads, and fields that cannot be used.
UNUSABLE_FIELDS: dict[str, tuple[Decoder, list[dict[str, Any]]]] = {
    "features": (
        FEATURES,
        [
            *(
                {"stream": "list", "x": x}
                for x in (None, [], [0], [0, 0, 0], {"age": 0, "amount": 0}, "00", [0, 1.1], [0, True], [0, "0"])
            ),
            *(
                {"stream": "named", "x": x}
                for x in (None, {}, {"age": 0}, [0, 0], {"age": 0, "amount": -2}, {"age": 0, "amount": None})
            ),
        ],
    ),
    "segments": (
        SEGMENTED,
        [
            {"stream": "strict", "segments": given}
            for given in (None, {}, {"country": ""}, {"country": 1}, {"country": "x" * 65}, "DE")
        ],
    ),
    "entity": (OPEN, [{"entity": given} for given in ("", 1.5, True, ["a"], "a\nb", "x" * 129)]),
    "label_rate": (
        WEIGHED,
        [{"amount": 1, "decision": {"chance": chance}} for chance in (None, 0, -0.5, 1.0001, True, "0.5", [0.5])],
    ),
    "weight": (WEIGHED, [{"amount": given, "label_rate": 1} for given in (None, -0.5, 1.1e9, True, "5", [5])]),
    "model_version": (
        VERSIONED,
        [{}, {"model": {"version": None}}, {"model_version": ""}, {"model_version": 1.5}],
    ),
    "scope": (OPEN, [{"scope": given} for given in (None, "", 1, "a\nb", "x" * 129)]),
}


@pytest.mark.parametrize("why", UNUSABLE_FIELDS)
def test_a_forecast_whose_field_is_missing_or_none_of_its_kind_is_a_dead_letter(why: str) -> None:
    decoder, several = UNUSABLE_FIELDS[why]
    for fields in several:
        assert reason(forecast(made(**fields), decoder)) == why, fields
    for fields in several if why == "scope" else ():
        assert reason(outcome(happened(**fields))) == why, fields


def test_id_and_scope_fit_the_rows_together() -> None:
    long = "x" * 127
    assert isinstance(forecast(made(event_id=long, scope=long)), Forecast)
    assert reason(forecast(made(event_id=long + "x", scope=long))) == "scope"


def test_a_withheld_letter_says_where_the_record_stands_and_how_long_it_is() -> None:
    withheld = Rejected(5, b"key", b"x" * 900, OUTCOMES, "erased", withheld=True)
    ((key, letter, *_),) = encoded([withheld], Settings(outcomes="my-outcomes"), 3)["dead-letters"]
    assert key is None
    assert orjson.loads(letter) == {
        "reason": "erased",
        "topic": "my-outcomes",
        "partition": 3,
        "offset": 5,
        "key": None,
        "value": None,
        "value_bytes": 900,
        "withheld": True,
    }
