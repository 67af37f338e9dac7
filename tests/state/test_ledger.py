"""Ledger rows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import kinds, ledger
from state.forecasts import PROBABILITY
from state.frames import OVERHEAD, CorruptFrame, seal
from state.ledger import EARLY, IMMATURE, ISSUED, NO_CONFIG, RESOLVED, WAITING, Entry, Shadow
from tests.state.histories import STEADY

COUNT = st.integers(0, 2**64 - 1)
NUMBER = st.integers(0, 2**32 - 1)
TIME = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False)
NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=255).filter(lambda name: len(name.encode()) <= 255)
CONFIG = st.binary(min_size=4, max_size=4).map(bytes.hex)
SHADOWS = st.lists(st.builds(Shadow, CONFIG, COUNT, FLOAT, FLOAT, st.binary(max_size=70)), max_size=3).map(tuple)
SEGMENTS = st.just((b"", ())) | st.tuples(
    st.binary(min_size=4, max_size=4), st.lists(st.integers(0, 1023), min_size=1, max_size=16).map(tuple)
)
ENTRIES = st.builds(
    lambda segments, entity, *parts: Entry(*parts, *segments)._replace(entity=entity),
    SEGMENTS,
    NUMBER,
    st.sampled_from([EARLY, ISSUED, RESOLVED, IMMATURE, WAITING]),
    COUNT,
    COUNT,
    TIME,
    TIME,
    FLOAT,
    FLOAT,
    FLOAT,
    FLOAT,
    COUNT,
    CONFIG,
    st.text("abcdefgh_+", max_size=40),
    NAME,
    st.binary(max_size=70),
    st.just(PROBABILITY),
    SHADOWS,
    TIME,
    NUMBER,
    NUMBER,
    st.integers(0, 255),
    st.none() | st.binary(max_size=40),
)
ENTRY = Entry(ISSUED, 7, 7, 1000, 0, math.nan, 0.9, 0.75, 0.7, 3, "0011aaff", "minimax", "flüge", b"\1\0\2\0")


@STEADY
@given(ENTRIES)
def test_decoded_entry_is_the_encoded_one(entry: Entry) -> None:
    assert ledger.decode(entry.encode()) == entry


def test_what_is_not_yet_known_comes_back_as_nan() -> None:
    assert math.isnan(ledger.decode(ENTRY.encode()).y)
    parked = ledger.parse(ledger.early(5, 1.0, 900))
    assert all(isinstance(value, float) and math.isnan(value) for value in parked[6:9])


@STEADY
@given(ENTRIES)
def test_parts_of_a_payload_lie_where_they_are_read(entry: Entry) -> None:
    payload = ledger.unsealed(entry.encode())
    end = ledger.names_end(payload)
    assert payload[0] == entry.status
    kind = entry.kind | (0x40 if entry.shadows else 0)
    kind |= (0x10 if entry.revisions else 0) | (0 if entry.key == b"" else 0x08)
    block = 2 + sum(31 + len(each.ticket) for each in entry.shadows) if entry.shadows else 0
    block += bool(entry.revisions)
    block += 0 if entry.key == b"" else 2 + len(entry.key or b"")
    kind |= 0x04 if entry.groups else 0
    block += 5 + 2 * len(entry.groups) if entry.groups else 0
    last = entry.as_of, entry.number, entry.window, entry.entity
    assert ledger.HEAD.unpack_from(payload) == (entry.status, kind, *entry[1:10], *last)
    assert payload[ledger.HEAD.size : end] == ledger.names(entry.config, entry.calibrator, entry.stream)
    assert payload.endswith(entry.ticket)
    assert len(payload) == end + len(entry.ticket) + block
    assert ledger.parse(payload) == entry
    assert ledger.sealed(payload) == entry.encode()


def test_size_is_the_documented_one() -> None:
    assert len(ENTRY.encode()) == OVERHEAD + 100 + len("minimax") + len("flüge".encode()) + 4


def test_issued_payload_is_the_entry_of_its_arguments() -> None:
    who = ledger.names("0011aaff", "minimax", "flüge")
    made = ledger.issued(7, 1000, 0.9, 0.75, 0.7, 3, who, b"\1\0\2\0")
    assert ledger.sealed(made) == ENTRY.encode()


SHADOW = Shadow("a9c7921d", 2, 0.5, 0.25, b"\3\0\4\0")


def shadowed_by(block: bytes) -> bytes:
    who, kind = ledger.names("0011aaff", "minimax", "flüge"), PROBABILITY | ledger.SHADOWED
    return ledger.issued(7, 1000, 0.9, 0.75, 0.7, 3, who, b"\1\0\2\0", kind, parts=block)


def test_challengers_stand_before_the_ticket() -> None:
    shadowed = shadowed_by(ledger.shadowed(SHADOW.encode() + SHADOW.encode()))
    entry = ledger.parse(shadowed)
    assert ledger.sealed(shadowed) == ENTRY._replace(shadows=(SHADOW, SHADOW)).encode()
    assert (entry.ticket, entry.shadows) == (ENTRY.ticket, (SHADOW, SHADOW))
    assert ledger.answer(shadowed) == (0.9, 0.75, 0.7, ENTRY.ticket)


@pytest.mark.parametrize("length", [0, 1, 34, 36, 200, 65535])
def test_challengers_that_do_not_fill_their_block_are_refused(length: int) -> None:
    wrong = shadowed_by(length.to_bytes(2, "little") + SHADOW.encode())
    with pytest.raises(CorruptFrame):
        ledger.decode(ledger.sealed(wrong))


def test_parked_outcome_names_nobody() -> None:
    parked = ledger.parse(ledger.early(5, 1.0, 900))
    assert parked[:6] == (EARLY, 5, 5, 0, 900, 1.0)
    assert parked[9:] == (0, NO_CONFIG, "", "", b"", PROBABILITY, (), 900, 0, 0, 0, b"", b"", (), 0, b"")


@STEADY
@given(ENTRIES, st.data())
def test_cut_or_changed_row_is_refused(entry: Entry, data: st.DataObject) -> None:
    frame = entry.encode()
    at = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(CorruptFrame):
        ledger.decode(frame[:at])
    with pytest.raises(CorruptFrame):
        ledger.decode(frame[:at] + bytes((frame[at] ^ 128,)) + frame[at + 1 :])


def test_row_of_another_version_or_kind_is_refused() -> None:
    payload = ledger.unsealed(ENTRY.encode())
    with pytest.raises(CorruptFrame, match="format version 6, this build reads version 5"):
        ledger.decode(seal(ord("L"), kinds.LEDGER.version + 1, payload))
    with pytest.raises(CorruptFrame, match="found a 'Q' row where a 'L' row belongs"):
        ledger.decode(seal(ord("Q"), kinds.LEDGER.version, payload))


def test_statuses_are_part_of_the_format() -> None:
    assert (EARLY, ISSUED, RESOLVED, IMMATURE, WAITING) == (1, 2, 3, 4, 5)
