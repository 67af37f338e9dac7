"""Byte frames."""

from struct import pack
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.frames import OVERHEAD, CorruptFrame, seal, unseal
from tests.state.histories import STEADY

BYTE = st.integers(0, 255)
PAYLOAD = st.binary(max_size=80)


@STEADY
@given(BYTE, BYTE, PAYLOAD)
def test_unsealed_payload_is_the_sealed_one(kind: int, version: int, payload: bytes) -> None:
    frame = seal(kind, version, payload)
    assert unseal(kind, version, frame) == payload
    assert len(frame) == len(payload) + OVERHEAD


def test_layout_is_the_documented_one() -> None:
    body = b"L\x01payload"
    assert seal(ord("L"), 1, b"payload") == body + pack("<I", crc32(body))


@STEADY
@given(PAYLOAD, st.data())
def test_any_changed_bits_within_four_bytes_are_refused(payload: bytes, data: st.DataObject) -> None:
    frame = bytearray(seal(76, 1, payload))
    at = data.draw(st.integers(0, len(frame) - 4))
    mask = data.draw(st.binary(min_size=4, max_size=4).filter(any))
    for i, bits in enumerate(mask):
        frame[at + i] ^= bits
    with pytest.raises(CorruptFrame, match="checksum of a"):
        unseal(76, 1, bytes(frame))


@STEADY
@given(st.binary(min_size=1, max_size=80))
def test_cut_frame_is_refused_wherever_it_was_cut(payload: bytes) -> None:
    frame = seal(76, 1, payload)
    for length in range(len(frame)):
        with pytest.raises(CorruptFrame):
            unseal(76, 1, frame[:length])


def test_row_of_another_kind_is_refused() -> None:
    with pytest.raises(CorruptFrame, match="found a 'S' row where a 'L' row belongs"):
        unseal(ord("L"), 1, seal(ord("S"), 1, b"payload"))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_unknown_version_is_refused_and_named(version: int) -> None:
    with pytest.raises(CorruptFrame, match=f"a 'L' row has format version {version}, this build reads version 1"):
        unseal(ord("L"), 1, seal(ord("L"), version, b"payload"))


@pytest.mark.parametrize(("kind", "version"), [(-1, 0), (256, 0), (0, -1), (0, 256)])
def test_kind_and_version_must_fit_a_byte(kind: int, version: int) -> None:
    with pytest.raises(ValueError, match="range"):
        seal(kind, version, b"")
