"""Rows of what is left out."""

import base64

import orjson
import pytest

from state.frames import CorruptFrame, seal
from streams.records import skips
from streams.records.skips import Skip

ONE = Skip(1, 2**40, "a defect: №7", "ann", "2026-11-22T03:00:00+00:00")


def test_a_skip_is_read_as_it_was_written() -> None:
    assert skips.read([skips.row(ONE), skips.row(ONE._replace(topic=0))]) == [ONE, ONE._replace(topic=0)]


@pytest.mark.parametrize(
    "value", [b"", b"K\x01{}", seal(ord("K"), 1, b"{}"), seal(ord("K"), 2, b"{}"), seal(ord("F"), 1, b"")]
)
def test_a_damaged_row_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptFrame):
        skips.read([(skips.row(ONE)[0], value)])


def letter(said: object, reason: str = "skipped") -> bytes:
    value = base64.b64encode(orjson.dumps(said)).decode()
    return orjson.dumps({"topic": "outcomes", "partition": 3, "offset": 9, "reason": reason, "value": value})


def test_a_dead_letter_names_the_offset_that_was_asked_for() -> None:
    why = skips.why(7, "a: b")
    assert skips.of_dead_letter(letter({"refused": why})) == ("outcomes", 3, 7, why)
    wrong: tuple[object, ...] = ({}, {"refused": 7}, {"refused": "zstd"}, {"refused": "skipped at x: y"}, [], 1)
    for said in wrong:
        assert skips.of_dead_letter(letter(said)) is None
    assert skips.of_dead_letter(letter({"refused": why}, "batch")) is None
    for junk in (b"", b"junk", b'{"reason":"skipped"}', b'["reason":"skipped"', b'[""reason":"skipped""]'):
        assert skips.of_dead_letter(junk) is None
