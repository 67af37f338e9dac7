"""A thousand mappings, good and bad, over records of every format: an error, a record or a refusal; no traceback."""

import json
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from state.events import Forecast, Outcome, Rejected
from state.policies import Policies
from state.policy import Policy
from streams.records.decoding import REASONS, Decoder
from streams.records.limits import Limits
from streams.sources import config
from streams.sources.fields import FIELDS, FORECAST, OUTCOME
from streams.sources.formats import asks_registry
from streams.sources.mapping import Mapping
from streams.sources.refusal import Refusal
from streams.sources.registry import Fetched
from streams.sources.schemas import Schemas
from tests.night import EXAMPLES
from tests.streams.sources.test_formats import RECORD, SCHEMA, avro, framed, message, serialized

NOW = 1_700_000_000_000
DECODER = Decoder(Policies(default=Policy()), Limits())

NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, 1, 2, 100, 1000, NOW, 0.5])
GOOD = [
    "a",
    "b",
    "a.b",
    "a[0]",
    "a.b[1].c",
    "@key",
    "@header.h",
    "@topic",
    "@timestamp",
    "{a}-{b}",
    "{@key}",
    "id",
    "risk",
]
BAD = ["{", "a..b", "", "@", "@key.a", '"a']
WORDS = st.sampled_from(GOOD)
#: One in thirty is none: a mapping has several.
PATHS = st.sampled_from(GOOD * 14 + BAD)
SCALARS = PATHS | NUMBERS | st.booleans() | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PATHS, inner, max_size=3), max_leaves=6
)
SETTINGS = {
    "path": PATHS | st.lists(PATHS, max_size=3),
    "constant": SCALARS,
    "default": SCALARS,
    "scale": st.sampled_from(["percent", "log-odds", "stars", [0, 1000], [1, 1], [0]]),
    "unit": st.sampled_from(["s", "ms", "us", "ns", "h"]),
    "format": st.sampled_from(["%Y", "%d.%m.%Y", "%", "x", "%Q"]),
    "zone": st.sampled_from(["UTC", "Europe/Berlin", "Mars/X", "", "../x"]),
    "labels": st.dictionaries(st.sampled_from(["a", "1", "true", "null", "*"]), NUMBERS | st.just("skip"), max_size=3),
    "range": st.lists(NUMBERS, max_size=3),
    "categories": st.lists(SCALARS, max_size=3),
    "each": st.lists(PATHS, max_size=3),
    "levels": st.lists(NUMBERS | PATHS, max_size=3),
    "values": st.lists(PATHS, max_size=3) | PATHS,
    "mean": PATHS,
    "std": PATHS,
}
SPECS = st.one_of(
    PATHS,
    PATHS,
    st.lists(PATHS, max_size=3),
    st.fixed_dictionaries({}, optional=SETTINGS),
    st.fixed_dictionaries({"path": PATHS}, optional={name: SETTINGS[name] for name in ("scale", "unit", "labels")}),
    st.dictionaries(st.sampled_from(["a", "b"]), PATHS | st.fixed_dictionaries({}, optional=SETTINGS), max_size=2),
    VALUES,
)
WHENS = st.dictionaries(
    PATHS,
    SCALARS
    | st.lists(SCALARS, max_size=3)
    | st.fixed_dictionaries({}, optional=dict.fromkeys(["not", "exists", "min", "max"], SCALARS)),
    max_size=2,
)


PLACES = {"path": WORDS, "default": st.sampled_from([0, 1, 0.5])}
#: What a field may say, mostly.
SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "p": st.fixed_dictionaries(
        {"path": WORDS}, optional={"scale": st.sampled_from(["percent", "log-odds", [0, 1000]])}
    ),
    "probs": WORDS | st.fixed_dictionaries({"each": st.lists(WORDS, min_size=1, max_size=3)}),
    "quantiles": st.fixed_dictionaries({"levels": st.just([0.1, 0.9]) | WORDS, "values": st.lists(WORDS, min_size=1)}),
    "normal": st.fixed_dictionaries({"mean": WORDS, "std": WORDS | st.fixed_dictionaries({"constant": st.just(1)})}),
    "ts": st.fixed_dictionaries({"path": WORDS}, optional={"unit": st.sampled_from(["s", "ms", "us", "ns"])}),
    "x": WORDS | st.dictionaries(st.sampled_from("ab"), st.fixed_dictionaries({**PLACES, "range": st.just([0, 5])})),
    "segments": st.dictionaries(st.sampled_from("ab"), WORDS, min_size=1),
    "y": WORDS | st.fixed_dictionaries({"path": WORDS}, optional={"labels": st.just({"a": 1, "1": 0, "*": "skip"})}),
}


def specs(draw: st.DrawFn, name: str) -> Any:
    """Return what is said of a field: nine times in ten something that it may say."""
    return draw(SENSIBLE.get(name, PATHS) if draw(st.integers(0, 9)) else SPECS)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Return the table of a source, mostly with what it must have."""
    role = draw(st.sampled_from([FORECAST, OUTCOME]))
    must = ("event_id", "stream", draw(st.sampled_from(["p", "probs", "quantiles", "normal"])))
    made: dict[str, Any] = {"topic": "t", "role": role}
    for name in must if role == FORECAST else ("event_id", "y"):
        made[name] = specs(draw, name)
    for name in draw(st.lists(st.sampled_from(FIELDS[role]), max_size=3)):
        if name not in ("p", "probs", "quantiles", "normal"):
            made[name] = specs(draw, name)
    others = {
        "format": st.sampled_from(["json", "avro", "avro", "protobuf", "xml"]),
        "key_format": st.sampled_from(["json", "avro", "protobuf"]),
        "cloudevents": st.booleans(),
        "when": WHENS,
        "precedence": st.integers(0, 8),
        "schema": st.sampled_from(["", '"string"', json.dumps(SCHEMA)]),
        "message": st.just("a.B"),
        "weight": st.just(1),
        "carry": st.dictionaries(st.sampled_from(["a", "b", ""]), PATHS | VALUES, max_size=3),
        "carry_headers": st.lists(st.sampled_from(["h", "ce_*", "*", "a*b"]), max_size=2),
    }
    for name in draw(st.lists(st.sampled_from(["format", "format", "key_format", *sorted(others)]), max_size=1)):
        made[name] = draw(others[name])
    return made


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.one_of(
    st.dictionaries(st.sampled_from(["a", "b", "c", "id"]), JSON, max_size=4).map(orjson.dumps),
    JSON.map(orjson.dumps),
    st.just(framed(7, avro(RECORD))),
    st.just(framed(8, message(id=1, model="b", risk=0.5), b"\4\2\0")),
    st.binary(max_size=30),
)
HELD = Schemas()
HELD._keep(7, Fetched("AVRO", json.dumps(SCHEMA), ()))
HELD._keep(8, Fetched("PROTOBUF", serialized(), ()))


@settings(max_examples=10 * EXAMPLES)
@given(
    table=tables(),
    values=st.lists(RECORDS, min_size=1, max_size=3),
    key=st.none() | RECORDS,
    ts=st.integers(0, NOW * 2),
)
def test_any_mapping_is_an_error_or_reads_any_record(
    table: dict[str, Any], values: list[bytes], key: bytes | None, ts: int
) -> None:
    try:
        (source,) = config.parse({"a": table})
    except ValueError as exc:
        assert str(exc).startswith("sources.a: ")  # noqa: PT017 - there need not be an error
        return
    assert asks_registry(source.table) in (True, False)
    mapping = Mapping(source, HELD)
    for value in values:
        headers = (("h", b"x"), ("ce_specversion", b"1.0"))
        mapping.lacking(value, key, headers)
        made = mapping.read(value, key, headers, "t", ts)
        if isinstance(made, Refusal):
            assert made.passed or made.reason in REASONS
            if made.fields is not None:
                DECODER.left(0, key, made.fields, ts, headers)
            continue
        carried = made.pop("carried", None)
        if carried is not None:
            assert isinstance(orjson.loads(carried.fields or b"{}"), dict)
            assert set(carried.headers) <= set(headers)
        decode = DECODER.forecast if source.role == FORECAST else DECODER.outcome
        assert isinstance(decode(0, key, orjson.dumps(made), ts), Forecast | Outcome | Rejected)
