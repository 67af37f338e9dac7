"""Whoever reads outputs reads JSON and Avro; one bit that is not what a worker writes is seen."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from state.events import Calibrated, Carried
from state.forecasts import Probs
from streams.records.output_avro import AvroValues
from streams.records.output_json import encode_calibrated
from streams.records.output_schemas import after, avro, text
from streams.records.output_values import OutputValues, packed
from streams.sources.registry import Registry, RegistryError
from tests.streams.sources.registries import StandIn

AVRO = AvroValues({"calibrated": 7})
ONE = Calibrated(b"k", "e", "s", 0.3, 0.1 + 0.2, 0.25, "prudent", "0123abcd", 70, 1_700_000_000_000, 12)
CARRYING = ONE._replace(carried=Carried((), b'{"customer":"c","n":5}'))


@pytest.fixture
def registry() -> Iterator[StandIn]:
    standin = StandIn({"schemas/ids/7": {"schema": text("calibrated")}})
    with standin.apart() as url:
        standin.url = url
        yield standin


@pytest.fixture
def values(registry: StandIn) -> OutputValues:
    return OutputValues(Registry(registry.url))


@pytest.mark.parametrize(
    "one", [ONE, CARRYING, ONE._replace(raw=Probs((0.5, 0.5)), p=Probs((0.1, 0.9)), draw=Probs((0.5, 0.5)))]
)
def test_both_formats_say_the_same(values: OutputValues, one: Calibrated) -> None:
    said, value = encode_calibrated(one), AVRO.calibrated(one)
    assert values.same(said, said)
    assert values.same(value, said)
    assert values.fields(said) == orjson.loads(said)
    assert values.fields(value) | {"carried": 0} == orjson.loads(said) | {"carried": 0}


def test_a_value_in_json_stays_as_it_is_and_others_become_it(values: OutputValues, registry: StandIn) -> None:
    said = encode_calibrated(ONE)
    assert values.json(said) == said
    assert orjson.loads(values.json(AVRO.calibrated(ONE))) == orjson.loads(said)
    asked = len(registry.asked)
    assert orjson.loads(values.json(AVRO.calibrated(ONE))) == orjson.loads(said)
    assert len(registry.asked) == asked > 0


def test_every_bit_counts(values: OutputValues) -> None:
    said, value = encode_calibrated(ONE), AVRO.calibrated(ONE)
    for at in range(8 * 5, 8 * len(value)):
        other = bytearray(value)
        other[at // 8] ^= 1 << at % 8
        assert not values.same(bytes(other), said), at
    assert not values.same(value + b"\0", said)
    assert not values.same(value[:-1], said)
    assert not values.same(None, said)


def test_a_number_written_in_more_bytes_than_it_needs_is_seen(values: OutputValues) -> None:
    value = AVRO.calibrated(ONE)
    assert value.endswith(b"\x18\1" + b"\0" * after("calibrated", "calibrated"))
    other = value.replace(b"\x18\1\0", b"\x98\0\1\0")
    assert values.fields(other) == values.fields(value)
    assert not values.same(other, encode_calibrated(ONE))


def test_what_is_no_number_is_never_the_same(values: OutputValues) -> None:
    value = AVRO.calibrated(ONE._replace(p=float("nan")))
    assert not values.same(value, encode_calibrated(ONE))
    assert values.compared(value, encode_calibrated(ONE)).keys() == {"p"}


def test_what_differs_is_told_by_field(values: OutputValues) -> None:
    other = ONE._replace(p=0.5)
    assert values.compared(AVRO.calibrated(other), encode_calibrated(ONE)) == {"p": (0.5, ONE.p)}
    assert values.compared(AVRO.calibrated(CARRYING), encode_calibrated(CARRYING)).keys() == {"bytes"}
    for whole in (AVRO.calibrated(ONE)[:5] + b"\2", b"\0\0"):
        assert values.compared(whole, encode_calibrated(ONE)).keys() == {"value"}
    more = CARRYING._replace(carried=Carried((), b'{"customer":"c","n":"6"}'))
    found = values.compared(AVRO.calibrated(more), encode_calibrated(CARRYING))
    assert found == {"carried": ({"customer": "c", "n": "6"}, {"customer": "c", "n": "5"})}


def test_without_its_id_a_value_is_the_same_whatever_schema_it_names(values: OutputValues) -> None:
    for one in (ONE, CARRYING):
        assert values.bare(AVRO.calibrated(one)) == packed(orjson.loads(encode_calibrated(one)))
    with pytest.raises(ValueError, match="not as a worker writes it"):
        values.bare(AVRO.calibrated(ONE).replace(b"\x18\1\0", b"\x98\0\1\0"))


def test_an_older_schema_of_fewer_fields_is_one_of_trueups(values: OutputValues, registry: StandIn) -> None:
    older = avro("calibrated")
    older["fields"] = older["fields"][:-1]
    older["fields"][0]["doc"] = "Said in another way."
    registry.schemas["schemas/ids/8"] = {"schema": json.dumps(older)}
    value = b"\0\0\0\0\x08" + AVRO.calibrated(ONE)[5:-1]
    assert values.same(value, encode_calibrated(ONE))
    assert values.json(value) == encode_calibrated(ONE)
    assert values.bare(value) == packed(orjson.loads(encode_calibrated(ONE)))


@pytest.mark.parametrize(
    ("number", "held"),
    [
        (8, {"schema": '{"type": "record", "name": "Score", "fields": []}'}),
        (9, {"schema": json.dumps({**avro("calibrated"), "fields": [{"name": "p", "type": "float"}]})}),
        (10, None),
        (11, {"schema": "message {", "schemaType": "PROTOBUF"}),
        (12, {"schema": "{}", "schemaType": "JSON"}),
    ],
)
def test_records_of_other_schemas_are_none(
    values: OutputValues, registry: StandIn, number: int, held: dict[str, Any] | None
) -> None:
    if held is not None:
        registry.schemas[f"schemas/ids/{number}"] = held
    value = b"\0" + number.to_bytes(4, "big") + AVRO.calibrated(ONE)[5:]
    with pytest.raises(ValueError, match=r"not a schema of trueup's|no schema 10|not AVRO"):
        values.fields(value)
    assert not values.same(value, encode_calibrated(ONE))


@pytest.mark.parametrize("value", [b"", b"[]", b"{", b"\0\0\0\0", b"\0\0\0\0\7", b"\0\0\0\0\7\xff\xff\xff\xff\xff\xff"])
def test_what_is_no_record_is_told_so(values: OutputValues, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        values.fields(value)


def test_without_a_registry_it_is_said_what_to_set() -> None:
    values = OutputValues(Registry())
    assert values.json(encode_calibrated(ONE)) == encode_calibrated(ONE)
    with pytest.raises(RegistryError, match="set TRUEUP_REGISTRY_URL"):
        values.fields(AVRO.calibrated(ONE))
