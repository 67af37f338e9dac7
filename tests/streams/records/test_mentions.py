"""Which records that could not be read speak of an event."""

import io
import json

import fastavro
import pytest

from streams.records.mentions import mentions

SCORE = {"type": "record", "name": "Score", "fields": [{"name": n, "type": "string"} for n in ("id", "country")]}


def avro(event_id: str, country: str) -> bytes:
    fastavro.schemaless_writer(into := io.BytesIO(), SCORE, {"id": event_id, "country": country})
    return b"\0\0\0\0\1" + into.getvalue()


def protobuf(event_id: str) -> bytes:
    """Return a message of the event's id, and of a number whose tag is the byte of ``1``."""
    length = len(event_id.encode())
    return b"\n" + bytes([length] if length < 128 else [length & 127 | 128, length >> 7]) + event_id.encode() + b"1\1"


@pytest.mark.parametrize("event_id", ["a1", "a-1", "é1", 'a"1', 'é"/1', "x" * 64, "x" * 100, "x" * 128])
def test_an_event_is_found_in_every_format_and_no_other_that_begins_with_its_name(event_id: str) -> None:
    holds = mentions([event_id, "never"])
    for name in (event_id, f"{event_id}2", f"b{event_id}", f"{event_id}-222"):
        for value in (
            json.dumps({"id": name}).encode(),
            json.dumps({"id": name}, ensure_ascii=False).encode(),
            json.dumps({"id": name}).replace("/", r"\/").replace("00e9", "00E9").encode(),
            avro(name, "11"),
            protobuf(name),
            f"id={name};p=.3".encode(),
        ):
            assert holds(value) is (name == event_id), value


def test_a_text_that_is_all_or_the_end_of_the_bytes_is_whole() -> None:
    assert mentions(["a1"])(b"a1")
    assert mentions(["a1"])(b"score of a1")
    assert not mentions(["a1"])(b"")
    assert not mentions(["a1"])(b"ba1")
