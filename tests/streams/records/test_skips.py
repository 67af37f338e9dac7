"""Rows of what is left out."""

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


def test_a_dead_letter_names_the_offset_that_was_asked_for() -> None:
    why = skips.why(7, "a: b")
    assert skips.of_letter({"refused": why}) == (7, why)
    for said in ({}, {"refused": 7}, {"refused": "zstd that expands"}, {"refused": "skipped at x: y"}):
        assert skips.of_letter(said) is None
