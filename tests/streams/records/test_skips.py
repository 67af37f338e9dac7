"""Rows of what is left out."""

import base64

import orjson

from streams.records import skips


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
