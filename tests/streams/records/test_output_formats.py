"""Outputs in Avro hold what the JSON records hold, to the last bit, and are read back as these."""

import io
import struct
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.events import Calibrated, Carried, Forecast, Rejected, Resolved
from state.fence import FORECASTS
from state.forecasts import Classwise, Normal, Probs, Quantiles
from streams.records import output_avro
from streams.records.limits import SCOPED
from streams.records.output_avro import SCHEMAS, AvroValues, record
from streams.records.output_json import encode_calibrated, encode_raw, encode_resolved, event_name
from streams.records.output_schemas import FIELDS, avro, rows, text
from streams.sources.avro import parsed
from tests.streams.sources.registries import unreadable_avro

IDS = {"calibrated": 7, "resolved": 1 << 31}
MADE = AvroValues(IDS)
NAMES = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")), min_size=1, max_size=200)
PROBABILITIES = st.floats(0, 1)
COUNTS = st.integers(0, 2**62)
CARRIED = st.none() | st.builds(
    Carried,
    st.just((("traceparent", b"00"),)),
    st.just(b"") | st.dictionaries(NAMES, NAMES | PROBABILITIES | st.lists(st.none())).map(orjson.dumps),
)
EVENTS = NAMES | st.tuples(NAMES, NAMES).map(SCOPED.join)
QUANTILES, LAW = Quantiles((0.1, 0.9), (-1e99, 0.1 + 0.2)), Normal(0.1, 2.0)
PROBS, EACH = Probs((0.25, 0.75)), Classwise((0.2, 5e-324))
KINDS_OF_FORECASTS = [
    (PROBS, PROBS),
    (PROBS, EACH),
    (QUANTILES, QUANTILES),
    (LAW, QUANTILES),
    (LAW, LAW),
    (0.25, 0.0),
]


def answer(raw: Any, p: Any, carried: Carried | None = None) -> Calibrated:
    return Calibrated(b"k", f"e{SCOPED}scope", "s", raw, p, p, "prudent", "0123abcd", 3, 1_700_000_000_000, 12, carried)


#: An answer with an interval and its reason.
MEASURED = answer(0.5, 0.25)._replace(event_id="e", low=0.125, high=0.75, why="raw .5")


def joined(raw: Any, p: Any, y: float) -> Resolved:
    return Resolved(b"k", "e", "s", raw, p, p, y, "prudent", 3, 1_700_000_000_000, 1_700_000_000_001, 2, implied=True)


def shown(one: Calibrated | Resolved) -> dict[str, Any]:
    """Return the fields of a JSON record: those of the event, by the names that readers know."""
    fields = {name: value for name, value in one._asdict().items() if name != "key" and value not in ("", None)}
    event, _, scope = fields.pop("event_id").partition(SCOPED)
    fields |= {"event_id": event, **({"scope": scope} if scope else {})}
    for ours, theirs in (("low", "p_low"), ("high", "p_high")):
        if ours in fields:
            fields[theirs] = fields.pop(ours)
    if isinstance(carried := fields.pop("carried", None), Carried) and carried.fields:
        fields["carried"] = orjson.loads(carried.fields)
    return fields


def dead(raw: Any, stream: str = "s") -> bytes:
    carried = Carried((), b'{"customer":"c","n":1}')
    one = Forecast(7, b"k", f"e{SCOPED}scope", stream, raw, (), 1007, None, (), carried)
    return encode_raw(Rejected(7, b"k", b"{}", FORECASTS, "features", forecast=one), one, "f", 3)


def read(label: str, value: bytes) -> dict[str, Any]:
    """Read a value as anybody does who has the schema."""
    assert value[:5] == b"\0" + IDS[label].to_bytes(4, "big")
    source = io.BytesIO(value[5:])
    found = fastavro.schemaless_reader(source, SCHEMAS[label], None)
    assert not source.read()
    assert isinstance(found, dict)
    return record(found)


def said_in(value: bytes) -> dict[str, Any]:
    """Return a JSON record with what it carries as Avro has it."""
    said: dict[str, Any] = orjson.loads(value)
    carried = said.get("carried")
    if carried is None:
        return said
    texts = {name: each if isinstance(each, str) else orjson.dumps(each).decode() for name, each in carried.items()}
    return {**said, "carried": texts}


#: Fields that answers and joined forecasts have.
NAMED = {"key": st.none(), "event_id": EVENTS, "stream": NAMES, "calibrator": NAMES, "version": COUNTS}
SHARED: dict[str, Any] = {**NAMED, **dict.fromkeys(("raw", "p", "draw"), PROBABILITIES)}
ANSWERS = st.builds(
    Calibrated,
    **SHARED,
    config=st.just("0123abcd"),
    ts=COUNTS,
    applied=COUNTS,
    carried=CARRIED,
    band=st.just("") | NAMES,
    points=st.none() | st.integers(-(2**31), 2**31 - 1),
    low=st.none(),
    high=st.none(),
    why=st.just(""),
)


@given(ANSWERS | st.just(MEASURED))
def test_an_answer_is_read_back_and_is_what_the_library_writes(one: Calibrated) -> None:
    said, value = encode_calibrated(one), MADE.calibrated(one)
    assert orjson.loads(said) == shown(one)
    assert event_name(orjson.loads(said)) == one.event_id
    assert value == MADE.of_json("calibrated", said)
    found = read("calibrated", value)
    assert found == said_in(said)
    bits = [struct.pack("<d", found[name]) for name in ("raw", "p", "draw")]
    assert bits == [struct.pack("<d", each) for each in (one.raw, one.p, one.draw)]


JOINED = st.builds(
    Resolved,
    **SHARED,
    y=st.sampled_from([0.0, 1.0]),
    issued_ts=COUNTS,
    resolved_ts=COUNTS,
    revision=COUNTS,
    implied=st.booleans(),
    carried=st.none(),
)


@given(JOINED)
def test_a_joined_forecast_is_read_back_and_is_what_the_library_writes(one: Resolved) -> None:
    said, value = encode_resolved(one), MADE.resolved(one)
    assert orjson.loads(said) == shown(one)
    assert value == MADE.of_json("resolved", said)
    found = read("resolved", value)
    assert found == orjson.loads(said)
    assert type(found["y"]) is int


@pytest.mark.parametrize(("raw", "p"), KINDS_OF_FORECASTS)
def test_forecasts_of_every_kind_are_read_back(raw: Any, p: Any) -> None:
    one = answer(raw, p, Carried((), b'{"a":null,"b":[1],"c":"text"}'))
    assert read("calibrated", MADE.calibrated(one)) == said_in(encode_calibrated(one))
    for y in (1.0, -0.5, 1e99):
        two = joined(raw, p, y if type(p) is not float else 1.0)
        assert read("resolved", MADE.resolved(two)) == orjson.loads(encode_resolved(two))


@pytest.mark.parametrize("raw", [0.25, PROBS, QUANTILES, LAW])
@pytest.mark.parametrize("stream", ["s", ""])
def test_a_raw_answer_is_read_back(raw: Any, stream: str) -> None:
    said = dead(raw, stream)
    shown = orjson.loads(said)
    assert shown["calibrated"] is False
    assert shown["stream"] == (stream or None)
    assert read("calibrated", MADE.of_json("calibrated", said)) == said_in(said)


# -- schemas -------------------------------------------------------------------------------------------------------


def test_every_field_of_every_record_in_json_has_a_place_in_the_table() -> None:
    told = {label: {json for json, *_ in rows(label)} for label in FIELDS}
    shown: dict[str, set[str]] = {"calibrated": set(), "resolved": set()}
    for raw, p in KINDS_OF_FORECASTS:
        marked = answer(raw, p, Carried((), b'{"a":1}'))._replace(
            band="review", points=600, low=0.0, high=1.0, why="raw"
        )
        shown["calibrated"] |= orjson.loads(encode_calibrated(marked)).keys()
        shown["calibrated"] |= orjson.loads(dead(raw)).keys()
        one = joined(raw, p, 1.0)._replace(event_id=f"e{SCOPED}scope")
        shown["resolved"] |= orjson.loads(encode_resolved(one)).keys()
    assert shown == told, "a new field needs a row of output_schemas.py, a line of output_json.py, and a value here"


@pytest.mark.parametrize("label", FIELDS)
def test_every_field_says_what_it_is_and_all_but_the_first_ones_have_a_default(label: str) -> None:
    fields = avro(label)["fields"]
    assert all(field["doc"].endswith(".") for field in fields)
    optional = [field for field in fields if isinstance(field["type"], list)]
    assert all(field["type"][0] == "null" and field["default"] is None for field in optional)
    assert len(optional) > len(fields) / 2
    assert orjson.loads(text(label)) == avro(label)


def test_what_is_there_is_never_taken_out() -> None:
    # The first fields that were registered: a reader of one of them must read what is written now.
    first = {
        "calibrated": "event_id stream scope raw p draw calibrator config version ts applied calibrated reason "
        "dead_letter raw_probs raw_quantiles raw_normal probs quantiles normal normalised argmax draw_probs "
        "draw_quantiles draw_normal carried",
        "resolved": "event_id stream scope raw p draw y calibrator version issued_ts resolved_ts revision implied "
        "raw_probs raw_quantiles raw_normal probs quantiles normal normalised argmax draw_probs draw_quantiles "
        "draw_normal",
    }
    for label, names in first.items():
        assert [field.name for field in FIELDS[label]][: len(names.split())] == names.split()


def test_a_later_schema_reads_older_records_and_an_older_one_later_records() -> None:
    old = avro("resolved")
    new = {**old, "fields": [*old["fields"], {"name": "more", "type": ["null", "string"], "default": None}]}
    assert not unreadable_avro(new, old)
    assert not unreadable_avro(old, new)
    older, newer = (parsed(orjson.dumps(each).decode(), ()).schema for each in (old, new))
    said = orjson.loads(encode_resolved(joined(0.5, 0.25, 1.0)))
    later = fastavro.schemaless_reader(io.BytesIO(output_avro.payload(older, said)), older, newer)
    earlier = fastavro.schemaless_reader(io.BytesIO(output_avro.payload(newer, {**said, "more": "x"})), newer, older)
    assert isinstance(later, dict)
    assert isinstance(earlier, dict)
    assert (record(later), record(earlier)) == (said, said)


@pytest.mark.parametrize("wrong", [{"p": "0.5"}, {"event_id": None}, {"carried": []}, {"version": 1 << 63}])
def test_what_is_not_of_the_schema_is_refused(wrong: dict[str, Any]) -> None:
    said = orjson.loads(encode_calibrated(answer(0.5, 0.5)))
    with pytest.raises(ValueError, match="Avro schema"):
        output_avro.payload(SCHEMAS["calibrated"], {**said, **wrong})


def test_long_texts_and_many_classes() -> None:
    one = answer(0.5, 0.5, Carried((), orjson.dumps({"long": "ä" * 100_000})))
    assert MADE.calibrated(one) == MADE.of_json("calibrated", encode_calibrated(one))
    many = Probs([0.001] * 1000)
    found = read("resolved", MADE.resolved(joined(many, many, 999.0)))
    assert (found["probs"], found["y"]) == (list(many), 999)
