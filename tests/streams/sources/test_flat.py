"""Flat Avro records are read without fastavro, and as fastavro reads them."""

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.sources.flat import flat, read

TYPES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=9),
    "string": st.text(max_size=9),
}


def schema_of(types: list[Any]) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": of} for n, of in enumerate(types)]}


@st.composite
def written(draw: st.DrawFn) -> tuple[Any, bytes]:
    """Return a schema, and a value of it that may be cut or changed."""
    one = st.sampled_from(list(TYPES))
    types = draw(st.lists(one | st.lists(one, min_size=2, max_size=3, unique=True), max_size=6))
    schema = fastavro.parse_schema(schema_of(types))
    branches = [draw(st.sampled_from(of)) if isinstance(of, list) else of for of in types]
    into = io.BytesIO()
    fastavro.schemaless_writer(into, schema, {f"f{n}": draw(TYPES[of]) for n, of in enumerate(branches)})
    made = bytearray(into.getvalue())
    if draw(st.booleans()):
        at = draw(st.integers(0, len(made)))
        made[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2) | st.sampled_from([b"\xff" * 9 + b"\1"]))
    return schema, bytes(made)


@given(written())
def test_what_is_read_is_what_fastavro_reads(made: tuple[Any, bytes]) -> None:
    schema, value = made
    fields = flat(schema)
    assert fields is not None
    found = read(fields, value)
    if found is None:
        return
    source = io.BytesIO(value)
    same: Any = fastavro.schemaless_reader(source, schema, None)
    assert source.tell() == len(value)
    assert repr(found) == repr(same)
    assert [type(each) for each in found.values()] == [type(each) for each in same.values()]


@pytest.mark.parametrize("text", ["", "abc", "äöü"])
@pytest.mark.parametrize("number", [0, -1, 2**31, -(2**62), 2**62 - 1])
def test_usual_values_are_read(text: str, number: int) -> None:
    schema = fastavro.parse_schema(schema_of(["string", "long", ["null", "string"], "double", "float", "boolean"]))
    into = io.BytesIO()
    record = dict(zip(["f0", "f1", "f2", "f3", "f4", "f5"], [text, number, text or None, 0.1, 0.5, True], strict=True))
    fastavro.schemaless_writer(into, schema, record)
    fields = flat(schema)
    assert fields is not None
    assert read(fields, into.getvalue()) == record
    for wrong in (into.getvalue()[:-1], into.getvalue() + b"\0", b""):
        assert read(fields, wrong) is None


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        ["null", "string"],
        schema_of([{"type": "array", "items": "long"}]),
        schema_of([{"type": "enum", "name": "E", "symbols": ["A"]}]),
        schema_of([{"type": "long", "logicalType": "timestamp-micros"}]),
        schema_of([["null", {"type": "bytes", "logicalType": "decimal", "precision": 4}]]),
        schema_of([schema_of(["long"]) | {"name": "Inner"}]),
    ],
)
def test_other_schemas_are_left_to_fastavro(schema: Any) -> None:
    assert flat(fastavro.parse_schema(schema)) is None


def test_types_that_other_producers_annotate_are_flat() -> None:
    java = {"type": "string", "avro.java.string": "String"}
    fields = flat(fastavro.parse_schema(schema_of([java, ["null", java]])))
    assert fields is not None
    assert read(fields, b"\2a\2\2b") == {"f0": "a", "f1": "b"}
