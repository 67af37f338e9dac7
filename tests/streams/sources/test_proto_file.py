"""Protobuf schemas as text are read by protoc, with what they import; what is none is a ValueError."""

import base64

import pytest

from streams.sources.proto_file import descriptors
from streams.sources.protobuf import Protobuf
from streams.sources.registry import Fetched
from streams.sources.schemas import Schemas

SCORE = """
syntax = "proto3";
package risk.v1;
import "google/protobuf/timestamp.proto";
import public 'common/money.proto';
message Outer {
  message Score {
    map<string, int32> kinds_by_name = 7;
    optional sint32 steps = 5;
    google.protobuf.Timestamp at = 4;
    common.Money amount = 10;
    message Inner { bytes raw = 1; }
  }
}
message Party { string name = 1; }
"""
MONEY = 'syntax = "proto3"; package common; message Money { int64 units = 1; }'
GROUPS = 'syntax = "proto2"; message Score { repeated group Part = 3 { optional int32 n = 1; } }'
EDITION = 'edition = "2023"; message Score { int32 n = 1; }'


def decoded(payload: bytes, text: str, **references: str) -> object:
    held = Schemas()
    named = tuple((name.replace("__", "/") + ".proto", said) for name, said in references.items())
    held._keep(7, Fetched("PROTOBUF", text, named))
    return Protobuf(None, None, held, "").decode(b"\0\0\0\0\7" + payload, ())


@pytest.mark.parametrize("form", ["text", "descriptor"])
def test_a_value_is_read_by_a_schema_that_imports_others(form: str) -> None:
    money, score = MONEY, SCORE
    if form == "descriptor":
        made = descriptors([("common/money.proto", MONEY), ("a.proto", SCORE)])
        found = {each.name: base64.b64encode(each.SerializeToString()).decode() for each in made}
        money, score = found["common/money.proto"], found["a.proto"]
    # In message 0 the message 0: kinds_by_name (7) = {"a": 1}, steps (5) = -2, amount (10) = {3}
    value = b"\4\0\0" + b"\x3a\5\n\1a\x10\1" + b"\x28\3" + b"\x52\2\x08\3"
    said = {"kinds_by_name": {"a": 1}, "steps": -2, "amount": {"units": "3"}}
    assert decoded(value, score, common__money=money) == said
    assert decoded(b"\4\0\0\2\n\1x"[:3], score, common__money=money) == {"kinds_by_name": {}}
    assert decoded(b"\2\2\n\1x", score, common__money=money) == {"name": "x"}
    inner = decoded(b"\6\0\0\0\n\1x", score, common__money=money)
    assert inner == {"raw": "eA=="}, "a map's entry is counted behind the messages that the file names"


def test_groups_and_editions_are_read() -> None:
    assert decoded(b"\0\x1b\x08\x07\x1c", GROUPS) == {"part": [{"n": 7}]}
    assert decoded(b"\0\x08\x07", EDITION) == {"n": 7}


@pytest.mark.parametrize("name", ["../a.proto", "/etc/a.proto", "a/../../b.proto", "", "a" * 201, "a\0b", "b.proto/a"])
def test_a_reference_names_no_file_elsewhere(name: str) -> None:
    with pytest.raises(ValueError, match=r"is (not allowed as )?the name of a"):
        descriptors([("b.proto", MONEY), (name, MONEY)])


def test_what_is_wrong_with_a_file_stands_in_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="protoc refuses it"):
        descriptors([("a.proto", 'syntax = "proto3";\nmessage A { string = 1; }')])
    assert "a.proto:2:20: Expected field name." in capfd.readouterr().err
