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
