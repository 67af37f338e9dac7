"""A .proto file is read as protoc reads it; what is none is a ValueError, whatever it is."""

import random
import re

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from streams.sources.proto_file import descriptor

PROTO3 = """
// A payment's score.
syntax = "proto3";
package risk.v1;
import "google/protobuf/timestamp.proto";
import public 'common/money.proto';
option java_package = "risk";
option (audited) = { by: "a; }" tags: ["x", "y"] };

message Outer {
  message Score {
    int64 id = 1; string model = 2 [deprecated = true, (mask) = { as: "]" }];
    double risk = 0x3;  /* from 0
      to 1 */
    google.protobuf.Timestamp at = 4;
    optional sint32 steps = 5;
    repeated float parts = 6 [packed=true];
    map<string, Outer.Kind> kinds_by_name = 7;
    oneof who { option (x) = 1; string card = 8; .risk.v1.Party party = 9; }
    common.Money amount = 10;
    message Inner { bytes raw = 1; }
    Inner inner = 11;
    reserved 12 to 15, 20 to max; reserved "old";
    Kind kind = 16;
  }
  enum Kind { option allow_alias = true; UNKNOWN = 0; NONE = 0 [deprecated = true]; BAD = -1; reserved 9; }
  ;
}
message Party { string name = 1; }
enum Colour { RED = 0; }
service Scores { rpc Get (Party) returns (stream Outer.Score) { option (http) = { get: "/v1/{name}" }; } }
extend google.protobuf.FieldOptions { string mask = 50000; }
"""
MONEY = 'syntax = "proto3"; package common; message Money { int64 units = 1; }'
PROTO2 = """
syntax = "proto2";
message Score {
  required string id = 1;
  optional double risk = 2 [default = -1.5e-3];
  repeated group Part = 3 { optional int32 n = 1; optional Score whole = 2; }
  extensions 100 to 199;
  extend Score { optional int32 more = 100; }
  oneof of { group Card = 4 { optional string number = 1; } string bank = 5; }
}
"""


def pool(**files: str) -> DescriptorPool:
    made = DescriptorPool()
    made.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for name, text in files.items():
        file = descriptor(text)
        file.name = name.replace("__", "/") + ".proto"
        made.AddSerializedFile(file.SerializeToString())
    return made


def fields(of: Descriptor) -> dict[str, tuple[int, int]]:
    return {each.name: (each.number, each.type) for each in of.fields}


def message(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def test_a_file_of_proto3_has_the_messages_that_protoc_finds_in_it() -> None:
    found = pool(common__money=MONEY, score=PROTO3)
    score = found.FindMessageTypeByName("risk.v1.Outer.Score")
    kind = FieldDescriptorProto
    assert fields(score) == {
        "id": (1, kind.TYPE_INT64),
        "model": (2, kind.TYPE_STRING),
        "risk": (3, kind.TYPE_DOUBLE),
        "at": (4, kind.TYPE_MESSAGE),
        "steps": (5, kind.TYPE_SINT32),
        "parts": (6, kind.TYPE_FLOAT),
        "kinds_by_name": (7, kind.TYPE_MESSAGE),
        "card": (8, kind.TYPE_STRING),
        "party": (9, kind.TYPE_MESSAGE),
        "amount": (10, kind.TYPE_MESSAGE),
        "inner": (11, kind.TYPE_MESSAGE),
        "kind": (16, kind.TYPE_ENUM),
    }
    by_name = score.fields_by_name
    assert [message(by_name[name]).full_name for name in ("party", "amount", "inner", "at")] == [
        "risk.v1.Party",
        "common.Money",
        "risk.v1.Outer.Score.Inner",
        "google.protobuf.Timestamp",
    ]
    assert {name for name in by_name if by_name[name].has_presence} == {
        *("at", "steps", "card", "party", "amount", "inner")
    }
    assert {name for name in by_name if by_name[name].is_repeated} == {"parts", "kinds_by_name"}
    assert {each.name: [one.name for one in each.fields] for each in score.oneofs} == {
        "who": ["card", "party"],
        "_steps": ["steps"],
    }
    assert [(each.name, each.GetOptions().map_entry) for each in score.nested_types] == [
        ("Inner", False),
        ("KindsByNameEntry", True),
    ], "a map's entry is counted behind the messages that the file names"
    kinds = by_name["kind"].enum_type
    assert kinds is not None
    assert {each.name: each.number for each in kinds.values} == {
        "UNKNOWN": 0,
        "NONE": 0,
        "BAD": -1,
    }


def test_values_are_read_by_a_file_as_they_were_written() -> None:
    made = GetMessageClass(pool(common__money=MONEY, score=PROTO3).FindMessageTypeByName("risk.v1.Outer.Score"))
    # model (2) = "m", steps (5) = -2, parts (6) = [.5, 2] packed, kinds_by_name (7) = {"a": -1}, amount (10) = {3}
    minus_one = b"\xff" * 9 + b"\x01"
    entry = b"\n\1a\x10" + minus_one
    said = b"\x12\1m" + b"\x28\3" + b"\x32\x08\0\0\0\x3f\0\0\0\x40" + b"\x3a" + bytes([len(entry)]) + entry
    read = made.FromString(said + b"\x52\2\x08\3")
    assert (read.model, read.steps, list(read.parts)) == ("m", -2, [0.5, 2.0])  # type: ignore[attr-defined]
    assert (dict(read.kinds_by_name), read.amount.units) == ({"a": -1}, 3)  # type: ignore[attr-defined]


def test_a_file_of_proto2_has_groups_and_what_is_required() -> None:
    score = pool(score=PROTO2).FindMessageTypeByName("Score")
    kind = FieldDescriptorProto
    assert fields(score) == {
        "id": (1, kind.TYPE_STRING),
        "risk": (2, kind.TYPE_DOUBLE),
        "part": (3, kind.TYPE_GROUP),
        "card": (4, kind.TYPE_GROUP),
        "bank": (5, kind.TYPE_STRING),
    }
    assert score.fields_by_name["id"].is_required
    assert message(message(score.fields_by_name["part"]).fields_by_name["whole"]) is score
    made = GetMessageClass(score)
    assert made.FromString(b"\n\1e\x1b\x08\x07\x1c").part[0].n == 7  # type: ignore[attr-defined]
    assert descriptor("message A {}").syntax == "", "a file without a syntax is of proto2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('syntax = "proto4";', "syntax 'proto4' cannot be read"),
        ('edition = "2023";', "only the syntax proto2 and proto3"),
        ("message A {\n  string = 1;\n}", "line 2: a name was expected, not '='"),
        ("message A { string a = 1", "';' was expected, not ''"),
        ("message A { string a = x; }", "a whole number was expected, not 'x'"),
        ("message A { string a = 1.5; }", "a whole number was expected"),
        ("message A { string a = 99999999999; }", "out of range"),
        ("message A { option a = (", "the file ends too early"),
        ("message A {} table B {}", "a message, an enum or another part of a .proto file was expected, not 'table'"),
        ('import "a', "'\"a' cannot be read"),
        ("enum A { B = 09; }", "invalid literal"),
        ("message A {" * 40, "more than 32 deep"),
        ("// " + "a" * 4_000_000, "longer than"),
    ],
)
def test_what_is_no_such_file_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        descriptor(text)


@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_is_read_or_refused(seed: int) -> None:
    dice = random.Random(seed)
    words = re.findall(r"\w+|\s+|.", dice.choice([PROTO3, PROTO2]), re.DOTALL)
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(words))
        words[at : at + dice.randrange(3)] = dice.choices(
            [*words, "\ud800", "é", "\0", "{", "}", '"'], k=dice.randrange(3)
        )
    try:
        found = descriptor("".join(words))
    except ValueError:
        return
    assert FileDescriptorProto.FromString(found.SerializeToString()) == found


@given(text=st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        descriptor(text)
    except ValueError as exc:
        assert str(exc)  # noqa: PT017 - most texts are refused
