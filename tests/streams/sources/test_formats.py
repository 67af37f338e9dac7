"""Avro and Protobuf are read by the schemas that records name; what cannot be read is refused, never raised."""

import asyncio
import base64
import io
import json
import logging
import ssl
import tomllib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import fastavro
import pytest
import trustme
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from lab.jvm import free_port
from streams.config.settings import Settings, SettingsError
from streams.sources import config, registry, wait
from streams.sources.avro import Avro, parsed
from streams.sources.mapping import Mapping
from streams.sources.references import Headers
from streams.sources.refusal import Refusal, Unfit
from streams.sources.registry import Fetched, Registry, RegistryError, SchemaId
from streams.sources.schemas import Schemas
from tests.streams.sources.registries import StandIn

NOW = 1_700_000_000_000
AT = datetime.fromtimestamp(NOW / 1000, UTC)
GUID = uuid.UUID(int=7)
BASE = 'topic = "scores"\nrole = "forecast"\nevent_id = "id"\nstream = "{model}"\np = "risk"\nts = "at"\n'
AVRO = f'{BASE}format = "avro"\n'
PROTOBUF = f'{BASE}format = "protobuf"\n'
SCHEMA = {
    "type": "record",
    "name": "Score",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "model", "type": ["null", {"type": "enum", "name": "Model", "symbols": ["a", "b"]}]},
        {"name": "risk", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
RECORD = {
    "id": uuid.UUID(int=5),
    "model": "b",
    "risk": 0.25,
    "at": AT,
    "micros": AT,
    "amount": Decimal("12.50"),
    "day": AT.date(),
}
ID = str(uuid.UUID(int=5))
EXPECTED = {"event_id": ID, "stream": "b", "p": 0.25, "ts": NOW}


def avro(record: object, schema: object = SCHEMA) -> bytes:
    into = io.BytesIO()
    fastavro.schemaless_writer(into, fastavro.parse_schema(schema), record)  # type: ignore[arg-type]
    return into.getvalue()


def single(record: object, schema: Any) -> bytes:
    """Return a record in the single-object encoding."""
    mark = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return b"\xc3\x01" + bytes.fromhex(mark) + avro(record, schema)


def by_itself(schema: object) -> Avro:
    """Return what reads values of one schema."""
    return Avro(json.dumps(schema), Schemas(), "")


def framed(schema: int, payload: bytes, place: bytes = b"") -> bytes:
    return b"\0" + schema.to_bytes(4, "big") + place + payload


def proto() -> FileDescriptorProto:
    """Return the descriptor of messages Other, Outer and Outer.Score."""
    kind = FieldDescriptorProto
    file = FileDescriptorProto(name="score.proto", package="risk.v1", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other")
    score = file.message_type.add(name="Outer").nested_type.add(name="Score")
    fields = (
        ("id", kind.TYPE_INT64),
        ("model", kind.TYPE_STRING),
        ("risk", kind.TYPE_DOUBLE),
        ("at", kind.TYPE_MESSAGE),
    )
    for number, (name, of) in enumerate(fields, 1):
        made = score.field.add(name=name, number=number, type=of, label=kind.LABEL_OPTIONAL)
        if of == kind.TYPE_MESSAGE:
            made.type_name = ".google.protobuf.Timestamp"
    return file


def message(**fields: Any) -> bytes:
    pool = DescriptorPool()
    pool.AddSerializedFile(Timestamp.DESCRIPTOR.file.serialized_pb)
    pool.AddSerializedFile(proto().SerializeToString())
    made = GetMessageClass(pool.FindMessageTypeByName("risk.v1.Outer.Score"))(**fields)
    made.at.FromMilliseconds(NOW)  # type: ignore[attr-defined]
    return made.SerializeToString()


def serialized() -> str:
    return base64.b64encode(proto().SerializeToString()).decode()


def mapping(text: str, held: Schemas | None = None) -> Mapping:
    (source,) = config.parse(tomllib.loads(f"[sources.a]\n{text}")["sources"])
    return Mapping(source, held)


def loaded(**given: Fetched) -> Schemas:
    """Return schemas as if they had been fetched, by ``i`` and their id."""
    held = Schemas()
    for name, fetched in given.items():
        held._keep(int(name[1:]) if name[0] == "i" else str(GUID), fetched)
    return held


def read(found: Mapping, value: bytes, headers: Headers = (), key: bytes | None = None) -> Any:
    return found.read(value, key, headers, "scores", NOW)


# -- Avro --------------------------------------------------------------------------------------------------------------


def test_avro_is_read_behind_its_id_by_its_guid_and_by_a_schema_of_the_source() -> None:
    fetched = Fetched("AVRO", json.dumps(SCHEMA), ())
    held = loaded(i7=fetched, guid=fetched)
    payload = avro(RECORD)
    assert read(mapping(AVRO, held), framed(7, payload)) == EXPECTED
    assert read(mapping(AVRO, held), payload, [("__value_schema_id", b"\1" + GUID.bytes)]) == EXPECTED
    assert read(mapping(AVRO, held), payload, [("other", b"x"), ("__value_schema_id", framed(7, b""))]) == EXPECTED
    own = mapping(f"{AVRO}schema = '{json.dumps(SCHEMA)}'")
    assert read(own, payload) == EXPECTED
    assert read(own, single(RECORD, SCHEMA)) == EXPECTED


def test_a_record_of_another_schema_than_those_of_the_files_is_a_dead_letter_and_never_read_as_one(
    tmp_path: Path,
) -> None:
    field = {"name": "id", "type": "string"}, {"name": "risk", "type": "double"}, {"name": "at", "type": "long"}
    threshold = {"name": "threshold", "type": "double"}
    v1 = {"type": "record", "name": "Score", "fields": [*field]}
    v2 = v1 | {"fields": [field[0], threshold, *field[1:]]}
    v3 = v1 | {"fields": [*field, {"name": "country", "type": ["null", "string"]}]}
    record = {"id": "a1", "risk": 0.25, "at": NOW, "threshold": 0.9, "country": "DE"}
    for n, schema in enumerate((v1, v2), 1):
        (tmp_path / f"v{n}.avsc").write_text(json.dumps(schema))
    table = AVRO.replace('"{model}"', '{ constant = "m" }')
    one = mapping(f'{table}schema_file = "{tmp_path}/v1.avsc"')
    both = mapping(f'{table}schema_file = ["{tmp_path}/v1.avsc", "{tmp_path}/v2.avsc"]')
    made = {"event_id": "a1", "stream": "m", "p": 0.25, "ts": NOW}
    assert [read(each, write(record, v1)) for each in (one, both) for write in (avro, single)] == [made] * 4
    assert [read(both, write(record, v2)) for write in (avro, single)] == [made] * 2
    for found, value in (
        (one, avro(record, v2)),
        (one, single(record, v2)),
        (one, avro(record, v3)),
        (one, avro(record, v1)[:-1]),
        (both, single(record, v3)),
    ):
        refused = read(found, value)
        assert isinstance(refused, Refusal)
        assert refused.reason == "schema"
        assert "schema_file = [" in refused.why
    held = loaded(i7=Fetched("AVRO", json.dumps(v1), ()))
    left = read(mapping(table, held), framed(7, avro(record, v3)))
    assert (left.reason, "bytes are left over" in left.why) == ("format", True)
    container = io.BytesIO()
    fastavro.writer(container, fastavro.parse_schema(v1), [record])
    assert "object container file" in read(one, container.getvalue()).why


def test_a_record_that_two_schema_files_read_in_different_ways_is_a_dead_letter() -> None:
    other = SCHEMA | {"fields": [*SCHEMA["fields"][:2], {"name": "threshold", "type": "double"}, *SCHEMA["fields"][3:]]}
    found = mapping(f"{AVRO}schema = {json.dumps([json.dumps(SCHEMA), json.dumps(other)])}")
    assert (read(found, avro(RECORD)).reason, read(found, single(RECORD, SCHEMA))) == ("schema", EXPECTED)
    same = mapping(f"{AVRO}schema = {json.dumps([json.dumps(SCHEMA), json.dumps(SCHEMA | {'doc': 'the same'})])}")
    assert read(same, avro(RECORD)) == EXPECTED


def test_logical_types_become_times_numbers_and_text() -> None:
    held = loaded(i7=Fetched("AVRO", json.dumps(SCHEMA), ()))
    table = AVRO.replace('p = "risk"', 'p = { path = "amount", scale = [0, 100] }')
    for at in ("micros", "day"):
        found = read(mapping(table.replace('"at"', f'"{at}"'), held), framed(7, avro(RECORD)))
        assert (found["p"], found["event_id"]) == (0.125, ID)
        assert found["ts"] == (NOW if at == "micros" else NOW // 86_400_000 * 86_400_000)


@pytest.mark.parametrize(
    ("whole", "payload", "found"),
    [
        ({"type": "record", "name": "O", "fields": [{"name": "i", "type": "n.Inner"}]}, b"\2e", {"i": {"id": "e"}}),
        (["null", "n.Inner"], b"\2\2e", {"id": "e"}),
        ({"type": "map", "values": "n.Inner"}, b"\2\2a\2e\0", {"a": {"id": "e"}}),
    ],
    ids=["record", "union", "map"],
)
def test_an_avro_schema_of_any_kind_may_refer_to_others(whole: Any, payload: bytes, found: object) -> None:
    inner = {"type": "record", "name": "Inner", "namespace": "n", "fields": [{"name": "id", "type": "string"}]}
    held = loaded(i7=Fetched("AVRO", json.dumps(whole), (("n.Inner", json.dumps(inner)),)))
    assert Avro(None, held, "").decode(framed(7, payload), ()) == found


def test_a_schema_that_is_refused_is_parsed_once_and_one_that_was_not_there_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = loaded(i7=Fetched("AVRO", '{"type": "array", "items": "null"}', ()))
    found, tried = Avro(None, held, ""), Mock(side_effect=parsed)
    monkeypatch.setattr("streams.sources.avro.parsed", tried)
    for _ in range(3):
        for number, why in ((7, "take no bytes"), (8, "has no schema 8")):
            with pytest.raises(Unfit, match=why) as refused:
                found.decode(framed(number, b"\0"), ())
            assert refused.value.args[0] == "schema"
    assert tried.call_count == 1
    held._keep(8, Fetched("AVRO", json.dumps(EMPTY), ()))
    assert found.decode(framed(8, b""), ()) == {"nothing": None}


def test_schemas_are_asked_for_together_but_not_all_at_once() -> None:
    class Slow:
        asking = most = 0
        asked: list[SchemaId] = []  # noqa: RUF012 - one test's

        @asynccontextmanager
        async def session(self) -> AsyncIterator[None]:
            yield

        async def fetch(self, _: None, schema: SchemaId) -> None:
            self.asking += 1
            self.most = max(self.most, self.asking)
            self.asked.append(schema)
            await asyncio.sleep(0.001)
            self.asking -= 1
            if schema == 999:
                raise TypeError("a defect")

    registry = Slow()
    found = Schemas(cast("Any", registry))
    asyncio.run(found.load(range(100)))
    assert (registry.most, sorted(registry.asked)) == (16, [*range(100)])
    assert not any(map(found.lacks, range(100)))
    with pytest.raises(TypeError, match="a defect"):
        asyncio.run(found.load([998, 999]))


@pytest.mark.parametrize("place", ["value", "key"])
@pytest.mark.parametrize(("name", "longest"), [("json", 8 << 20), ("avro", 1 << 20), ("protobuf", 1 << 20)])
def test_what_is_too_long_to_be_held_is_not_read(name: str, longest: int, place: str) -> None:
    table = 'topic = "l"\nrole = "outcome"\nevent_id = "@key.txn"\ny = { constant = 1 }\n'
    table += f'key_format = "{name}"' if place == "key" else f'key_format = "json"\nformat = "{name}"'
    for size, reasons in ((longest, {"not_json", "schema"}), (longest + 1, {"oversized"})):
        data = framed(7, b"").ljust(size, b"x")
        found = read(mapping(table, loaded()), *((b"{}", (), data) if place == "key" else (data, (), b"{}")))
        assert found.reason in reasons
    assert mapping(table).lacking(*((b"{}", data) if place == "key" else (data, b"{}")), ()) == []


def test_a_key_may_be_of_avro_too() -> None:
    held = loaded(i8=Fetched("AVRO", '{"type":"record","name":"K","fields":[{"name":"txn","type":"long"}]}', ()))
    table = 'topic = "l"\nrole = "outcome"\nevent_id = "@key.txn"\ny = { constant = 1 }\nkey_format = "avro"'
    assert read(mapping(table, held), b"{}", key=framed(8, b"\x0a")) == {"event_id": "5", "y": 1}
    assert mapping(table).lacking(b"{}", framed(9, b""), ()) == [9]


NESTED = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
OTHER = {"type": "record", "name": "B", "fields": [{"name": "a", "type": ["null", "A"]}]}
EMPTY = {"type": "record", "name": "E", "fields": [{"name": "nothing", "type": "null"}]}


def chained(levels: int) -> list[Any]:
    """Return a schema that does not refer to itself, and has values of so many levels."""
    return [{"type": "record", "name": "R1", "fields": []}] + [
        {"type": "record", "name": f"R{n}", "fields": [{"name": "next", "type": ["null", f"R{n - 1}"]}]}
        for n in range(2, levels + 1)
    ]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "array", "items": {"type": "null"}}, "take no bytes"),
        ({"type": "array", "items": EMPTY}, "take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take no bytes"),
        ({"type": "map", "values": ["null", {"type": "array", "items": EMPTY}]}, "take no bytes"),
        (
            [
                EMPTY,
                {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "E"}}]},
            ],
            "take no bytes",
        ),
        (NESTED, "nest deeper than 100"),
        ({"type": "record", "name": "A", "fields": [{"name": "b", "type": ["null", OTHER]}]}, "nest deeper than 100"),
        ({"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}, "nest deeper than 100"),
        (
            {"type": "record", "name": "N", "fields": [{"name": "kids", "type": {"type": "array", "items": "N"}}]},
            "nest deeper than 100",
        ),
        (
            {"type": "record", "name": "N", "fields": [{"name": "kids", "type": {"type": "map", "values": "N"}}]},
            "nest deeper than 100",
        ),
        (chained(101), "nest deeper than 100"),
        (chained(5000), "not an Avro schema"),
    ],
)
def test_a_schema_whose_values_have_no_bound_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        by_itself(schema)
    found = read(mapping(AVRO, loaded(i7=Fetched("AVRO", json.dumps(schema), ()))), framed(7, b"\x80\xa8\xd6\xb9\7"))
    assert found.reason == "schema"


def test_a_value_may_nest_a_hundred_levels() -> None:
    found = by_itself(chained(100)).decode(avro(99, "long") + b"\2" * 98 + b"\0", ())
    for _ in range(98):
        found = found["next"]
    assert found == {"next": None}


@pytest.mark.parametrize("count", [2**31, -(2**31), 2**62, -(2**62)])
@pytest.mark.parametrize(
    "items", ["boolean", "string", ["null", "int"], {"type": "map", "values": "null"}], ids=["1", "2", "3", "4"]
)
def test_a_count_beyond_the_bytes_ends_with_them(items: Any, count: int) -> None:
    found = by_itself({"type": "array", "items": items})
    with pytest.raises(Unfit, match="its bytes end before it does"):
        found.decode(avro(count, "long") + b"\0" * 16, ())


# -- Protobuf ----------------------------------------------------------------------------------------------------------


def test_protobuf_is_read_by_the_place_of_its_message_and_by_a_name() -> None:
    held = loaded(i7=Fetched("PROTOBUF", serialized(), ()), guid=Fetched("PROTOBUF", serialized(), ()))
    payload = message(id=2**60, model="b", risk=0.25)
    expected = EXPECTED | {"event_id": str(2**60)}
    assert read(mapping(PROTOBUF, held), framed(7, payload, b"\4\2\0")) == expected, "message 1, and in it message 0"
    assert read(mapping(PROTOBUF, held), payload, [("__value_schema_id", b"\1" + GUID.bytes + b"\4\2\0")]) == expected
    files = FileDescriptorSet(file=[proto()])
    own = (
        f'{PROTOBUF}message = "risk.v1.Outer.Score"\nschema = "{base64.b64encode(files.SerializeToString()).decode()}"'
    )
    assert read(mapping(own), payload) == expected
    assert read(mapping(own), message(id=1, model="b"))["p"] == 0.0, "a default is not sent, and counts"
    assert read(mapping(own), payload + b"\x78\1")["p"] == 0.25, "a field of a later version is passed over"
    for strange in (b"\x1a\x01a", b"\x78\1"):  # risk as text; none but others
        refused = read(mapping(own), strange)
        assert (refused.reason, "another message" in refused.why) == ("schema", True)
    with pytest.raises(ValueError, match=r"message 'risk\.v1\.None'"):
        mapping(own.replace("Outer.Score", "None"))


@pytest.mark.parametrize("place", [b"\2", b"\2\4", b"\4\2\2", b"\1", b"\x80" * 9, b"", b"\4\1\0"])
def test_a_place_without_a_message_is_refused(place: bytes) -> None:
    held = loaded(i7=Fetched("PROTOBUF", serialized(), ()))
    found = read(mapping(PROTOBUF, held), b"\0\0\0\0\7" + place)
    assert isinstance(found, Refusal)
    assert found.reason in ("format", "schema")


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_a_cloud_event_asks_for_the_schema_of_what_it_holds_in_both_modes(kind: str) -> None:
    schema, text = (json.dumps(SCHEMA), AVRO) if kind == "AVRO" else (serialized(), PROTOBUF)
    payload = framed(7, avro(RECORD) if kind == "AVRO" else b"\4\2\0" + message(id=5, model="b", risk=0.25))
    held = Schemas()
    for name in ("id", "risk", "at"):
        text = text.replace(f'"{name}"', f'"data.{name}"')
    found = mapping(text.replace("{model}", "{data.model}") + "cloudevents = true\n", held)
    envelope = {"specversion": "1.0", "id": "1"}
    structured: Headers = [("Content-Type", b"application/cloudevents+json")]
    packed = json.dumps(envelope | {"data_base64": base64.b64encode(payload).decode()}).encode()
    assert found.lacking(packed, None, structured) == [7]
    assert found.lacking(payload, None, [("ce_specversion", b"1.0")]) == [7]
    for other in (b"", b"{", b"[]", b"{}", json.dumps(envelope | {"data_base64": "?"}).encode()):
        assert found.lacking(other, None, structured) == []
    assert found.lacking(json.dumps(envelope | {"data": {}}).encode(), None, structured) == []
    held._keep(7, Fetched(kind, schema, ()))
    assert found.lacking(packed, None, structured) == []
    said = read(found, packed, structured)
    assert said["stream"] == "b"
    assert said == read(found, payload, [("ce_specversion", b"1.0")])


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_what_is_not_of_its_schema_is_refused_with_a_reason() -> None:
    held = loaded(
        i7=Fetched("AVRO", json.dumps(SCHEMA), ()),
        i8=Fetched("JSON", "{}", ()),
        i9=Fetched("AVRO", '{"type": "unheard"}', ()),
        i10=Fetched("PROTOBUF", "?", ()),
        i11=Fetched("AVRO", '"string"', ()),
    )

    def reason(text: str, value: bytes) -> str:
        found = read(mapping(text, held), value)
        assert isinstance(found, Refusal), found
        return found.reason

    assert reason(AVRO, b"{}") == "format", "no frame"
    assert reason(AVRO, framed(7, b"")) == "format"
    assert reason(AVRO, framed(6, b"")) == "schema", "the registry has none"
    assert [reason(AVRO, framed(n, b"")) for n in (8, 9, 10)] == ["schema"] * 3
    assert [reason(PROTOBUF, framed(n, b"", b"\0")) for n in (6, 7, 8, 10)] == ["schema"] * 4
    assert reason(AVRO, framed(11, b"\2a")) == "not_object"


# -- the registry ------------------------------------------------------------------------------------------------------


def test_schemas_are_asked_for_once_also_where_there_is_none() -> None:
    stand_in = StandIn(
        {
            f"schemas/guids/{GUID}": {"schemaType": "AVRO", "schema": '"string"'},
            "schemas/ids/8": {"schemaType": "PROTOBUF", "schema": "syntax = ..."},
            "schemas/ids/8?format=serialized": {"schemaType": "PROTOBUF", "schema": serialized()},
        }
    )

    async def scene() -> None:
        async with stand_in.served() as url:
            held = Schemas(Registry(url))
            assert held.lacks(9)
            await held.load([8, 9, str(GUID)])
            assert held.get(8) == Fetched("PROTOBUF", serialized(), ())
            assert held.get(str(GUID)) is not None
            assert held.get(9) is None
            assert mapping(AVRO, held).lacking(framed(9, b""), None, ()) == [], (
                "for a while it counts that there is none"
            )
            assert len(stand_in.asked) == 5

    asyncio.run(scene())


def asked(stand_in: StandIn, tls: ssl.SSLContext | None = None, **registry: Any) -> Fetched | None:
    """Return what a registry gives of schema 1."""

    async def scene() -> Fetched | None:
        async with stand_in.served(tls) as url:
            made = Registry(url, **registry)
            async with made.session() as session:
                return await made.fetch(session, 1)

    return asyncio.run(scene())


@pytest.mark.parametrize("status", [200, 403, 503])
def test_only_a_registry_can_say_that_there_is_no_schema(status: int) -> None:
    assert asked(StandIn(types=status)) is None
    for none in (StandIn(types=404), StandIn(statuses={"schemas/ids/1": 400, "schemas/types": 400})):
        with pytest.raises(RegistryError, match="is not the address of Confluent's interface"):
            asked(none)


def test_a_registry_that_nobody_serves_is_named_and_no_certificate_is_suspected() -> None:
    port = free_port()

    async def scene() -> None:
        made = Registry(f"http://127.0.0.1:{port}")
        async with made.session() as session:
            await made.fetch(session, 1)

    with pytest.raises(RegistryError, match="schemas/ids/1 cannot be asked: Cannot connect") as caught:
        asyncio.run(scene())
    assert "ssl" not in str(caught.value)


def test_an_answer_is_read_no_further_than_schemas_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LONGEST", 1 << 20)
    with pytest.raises(RegistryError, match="its answer is longer than 1 MiB"):
        asked(StandIn(bodies={"schemas/ids/1": b'{"schema": "%b"}' % bytes(4 << 20)}))


def test_schemas_that_refer_to_each_other_are_collected_once() -> None:
    subjects = {f"subjects/{name}/versions/1": referring(*"ab") for name in "ab"}
    found = asked(StandIn({"schemas/ids/1": referring("a"), **subjects}))
    assert found is not None
    assert [name for name, _ in found.references] == ["b", "a"]


def test_the_registry_is_asked_with_a_password_a_token_and_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    schema, word = {"schemas/ids/1": {"schema": '"string"'}}, "s3cret"
    basic = StandIn(schema, authorization="Basic " + base64.b64encode(f"me:{word}".encode()).decode())
    assert asked(basic, username="me", password=word) is not None
    assert asked(StandIn(schema, authorization=f"Bearer {word}"), token=word) is not None
    assert asked(StandIn(schema), context, cafile=str(tmp_path / "ca.pem")) is not None
    with pytest.raises(RegistryError, match="answered 401"):
        asked(basic)
    with pytest.raises(RegistryError, match="certificate verify failed"):
        asked(StandIn(schema), context)
    assert word not in repr(Registry("https://a", username="me", password=word))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"schema": ' + b"[" * 100_000,
        b"{}",
        b'{"schema": 1}',
        *(
            b'{"schema": "1", "references": %b}' % references
            for references in (b"7", b"true", b"[7]", b'[{"name": "a"}]', b'[{"name": "", "subject": 7, "version": 1}]')
        ),
        *(
            b'{"schema": "1", "references": [{"name": "a", "subject": "s", "version": %b}]}' % version
            for version in (b"null", b'"x"', b"1e999", b'"%b"' % (b"9" * 5000))
        ),
    ],
    ids=lambda answer: repr(answer[:80]),
)
def test_an_answer_that_is_none_is_waited_out_and_ends_nothing(answer: bytes) -> None:
    async def scene() -> None:
        paths = ("schemas/ids/1", "subjects/s/versions", "subjects/s")
        async with StandIn(bodies=dict.fromkeys(paths, answer)).served() as url:
            made = Registry(url)
            async with made.session() as session:
                with pytest.raises(RegistryError):
                    await made.fetch(session, 1)
                for ask in (made.register, made.registered):
                    with pytest.raises(RegistryError):
                        await ask(session, "s", '"string"')

    asyncio.run(scene())


def test_a_schema_without_a_kind_is_avro_and_of_any_other_kind_a_refusal() -> None:
    async def scene(kind: str) -> Schemas:
        body = b'{"schema": "\\"string\\"", "schemaType": %b, "references": null}' % kind.encode()
        async with StandIn(bodies={"schemas/ids/1": body}).served() as url:
            held = Schemas(Registry(url))
            await held.load([1])
            return held

    assert asyncio.run(scene("null")).get(1) == Fetched("AVRO", '"string"', ())
    for kind in ("7", "[]", '["AVRO"]', '"XML"'):
        found = mapping(AVRO, asyncio.run(scene(kind)))
        assert read(found, framed(1, b"")).reason in ("schema", "format"), kind


def referring(*names: str) -> dict[str, Any]:
    """Return a schema that refers to others, each the only version of its subject."""
    references = [{"name": name, "subject": name, "version": 1} for name in names]
    return {"schema": '"string"', "references": references}


@pytest.mark.parametrize("status", [400, 404, 422])
def test_an_id_that_the_registry_refuses_and_a_reference_that_it_lacks_are_no_schema(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in = StandIn(
        {
            "schemas/ids/1": referring(),
            "schemas/ids/8": referring("here", "gone"),
            "schemas/ids/9": referring("in a row 0"),
            "subjects/here/versions/1": referring(),
            **{f"subjects/in%20a%20row%20{n}/versions/1": referring(f"in a row {n + 1}") for n in range(2000)},
        },
        {"schemas/ids/7": status, "subjects/gone/versions/1": status},
    )

    async def scene() -> None:
        async with stand_in.served() as url:
            held = Schemas(Registry(url))
            await asyncio.wait_for(held.load([7, 8, 9, 1]), 60)
            assert [held.get(number) is None for number in (7, 8, 9, 1)] == [True, True, True, False]
            assert not held.lacks(7)

    with caplog.at_level(logging.WARNING, "trueup"):
        asyncio.run(scene())
    assert [said.split(" cannot be fetched")[0] for said in caplog.messages] == ["schema 8", "schema 9"]
    assert "it refers to subjects/gone/versions/1, which does not exist" in caplog.messages[0]


def test_who_waits_says_for_which_schema_of_which_source(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wait, "FIRST_PAUSE", 0.01)
    stand_in = StandIn({"schemas/ids/7": referring()}, {"schemas/ids/7": 500})

    async def scene() -> None:
        async with stand_in.served() as url:
            held = Schemas(Registry(url))
            waiting = asyncio.create_task(held.load({7: "scores"}))
            while not caplog.messages:  # noqa: ASYNC110 - the log is what is looked at
                await asyncio.sleep(0.01)
            assert held.wait.said == "waiting for the schema registry, for schema 7"
            assert "to know schema 7 of source scores: " in caplog.messages[0]
            stand_in.statuses.clear()
            await waiting
            assert held.wait.said == ""

    with caplog.at_level(logging.WARNING, "trueup"):
        asyncio.run(scene())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"URL": "registry:8081"}, "must be http"),
        ({"URL": "http://me@a"}, "without a password"),
        ({"USERNAME": "me"}, "TRUEUP_REGISTRY_URL is not"),
        ({"URL": "https://a", "USERNAME": "me"}, "belong together"),
        ({"URL": "https://a", "USERNAME": "me", "PASSWORD": "w", "TOKEN": "t"}, "set one of them"),
        ({"URL": "http://a", "TOKEN": "t"}, "in the clear"),
        ({"URL": "https://a", "KEYFILE": "k"}, "CERTFILE is not"),
    ],
)
def test_a_registry_that_cannot_be_asked_safely_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings.from_env({f"TRUEUP_REGISTRY_{name}": value for name, value in given.items()})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{AVRO}schema = "x"', "it is not an Avro schema"),
        (f'{AVRO}schema_file = "/nowhere.avsc"', "schema_file: cannot read /nowhere.avsc"),
        (f'{AVRO}schema = "x"\nschema_file = "y"', "give one of them"),
        (f'{BASE}schema = "x"', "schema is of avro and protobuf; format is json"),
        (f'{PROTOBUF}schema = "x"', "belong together"),
        (f'{PROTOBUF}message = "x"', "belong together"),
        (f'{PROTOBUF}message = "x"\nschema = "?"', "it is not a FileDescriptorSet"),
        (f"{AVRO}schema = 1", "schema is text"),
    ],
)
def test_a_schema_that_is_none_is_refused_at_the_start(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mapping(text)


def test_a_schema_file_is_read_once_and_a_registry_is_asked_for_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "score.avsc"
    file.write_text(json.dumps(SCHEMA))
    found = mapping(f'{AVRO}schema_file = "{file}"')
    file.unlink()
    assert read(found, avro(RECORD)) == EXPECTED
    plan = tmp_path / "streams.toml"
    plan.write_text(f"[sources.a]\n{AVRO}")
    with pytest.raises(SettingsError, match="set TRUEUP_REGISTRY_URL, or give schema_file"):
        Settings.from_env({"TRUEUP_STREAMS": str(plan)})
