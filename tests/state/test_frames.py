"""Byte frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.frames import CorruptFrame, seal, unseal
from tests.state.histories import STEADY

PAYLOAD = st.binary(max_size=80)


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
