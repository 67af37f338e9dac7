"""An audit derives outputs in Avro to the last bit, and those of a topic whose format changed."""

import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from replay.audit.mapper import Made
from replay.audit.plan import ANSWERS
from replay.audit.rows import digest
from streams.config.settings import Settings
from streams.records.output_avro import SCHEMAS
from streams.records.output_schemas import NAMES
from streams.records.output_values import OutputValues
from streams.sources.registry import RegistryError
from tests.replay.audit.partitions import RAW, Kept, Topics, carrying, difference, served


def changed(label: str, value: bytes, **fields: object) -> bytes:
    """Return a value with other fields."""
    head, data = value[:5], value[5:]
    found = fastavro.schemaless_reader(io.BytesIO(data), SCHEMAS[label], None)
    assert isinstance(found, dict)
    into = io.BytesIO()
    fastavro.schemaless_writer(into, SCHEMAS[label], found | fields)
    return head + into.getvalue()


def with_schema(topics: Topics, label: str) -> list[Kept]:
    return [each for each in topics.records[label] if (each.value or b"").startswith(b"\0")]


@examples(max_examples=7, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_what_was_written_with_a_schema_is_derived_as_what_was_written_in_json(
    avro: Settings, seed: int, crashes: float
) -> None:
    sent = carrying(seed % 7)
    topics = served(sent, avro, seed, crashes)
    plain = served(sent, RAW, seed, crashes)
    for label in NAMES:
        assert len(with_schema(topics, label)) == len(topics.records[label]) == len(plain.records[label])
    assert not with_schema(topics, "dead-letters")
    checked = topics.audit(avro).checked
    assert checked == plain.audit().checked
    assert checked.raw_answers > 50


@pytest.mark.parametrize(("label", "name"), [("calibrated", "p"), ("calibrated", "version"), ("resolved", "y")])
def test_a_record_that_was_changed_is_named_with_the_field(avro: Settings, label: str, name: str) -> None:
    topics = served(carrying(1), avro)
    wanted = [each for each in with_schema(topics, label) if b"forecasts" not in (each.value or b"")]
    other = {name: 0 if name != "p" else 0.123}
    values = [(each, changed(label, each.value or b"", **other)) for each in wanted[20:]]
    record, value = next((each, value) for each, value in values if value != each.value)
    topics.replace(label, record.offset, value)
    found = difference(topics, avro)
    assert (found.topic, found.offset, list(found.fields)) == (label, record.offset, [name])


def test_a_copy_may_stand_there_in_another_format_and_must_say_the_same(avro: Settings) -> None:
    topics, plain = served(carrying(1), avro), served(carrying(1), RAW)
    before = topics.audit(avro).checked
    copy = next(each for each in plain.records["calibrated"] if b'"applied"' in (each.value or b"") and each.offset > 9)
    topics.append("calibrated", copy.key, copy.value, copy.timestamp, copy.headers)
    assert topics.audit(avro).checked.copies == before.copies + 1
    again = topics.records["calibrated"][copy.offset]
    value = changed("calibrated", again.value or b"", p=0.123)
    topics.append("calibrated", again.key, value, headers=again.headers)
    assert difference(topics, avro).fields.keys() == {"p"}


def test_raw_answers_of_intake_are_met_with_those_that_are_made(avro: Settings) -> None:
    topics, plain = served(carrying(1), avro), served(carrying(1), RAW)
    values = OutputValues(avro.registry)
    raw = [each for each in plain.records["calibrated"] if b'"calibrated":false' in (each.value or b"")]
    assert len(raw) > 50
    for each in raw:
        made = Made(ANSWERS, 3, each.key, each.value or b"", None, list(each.headers))
        value = topics.records["calibrated"][each.offset].value or b""
        assert value.startswith(b"\0")
        found = digest(3, each.key, values.bare(value), None, each.headers)
        assert found == made.packed != made.digest


def test_without_the_registry_nothing_is_judged(avro: Settings) -> None:
    topics = served(carrying(1), avro)
    with pytest.raises(RegistryError, match="set TRUEUP_REGISTRY_URL"):
        topics.audit(RAW)
