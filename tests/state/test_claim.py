"""The claim's row."""

import pytest

from state import kinds
from state.claim import Claim
from state.frames import CorruptFrame, seal


def test_a_claim_is_read_as_it_was_written() -> None:
    claim = Claim(2**40, 32_767, "größe/1")
    assert Claim.decode(claim.encode()) == claim


@pytest.mark.parametrize("payload", [b"", bytes(9)], ids=len)
def test_a_claim_that_is_too_short_is_refused(payload: bytes) -> None:
    with pytest.raises(CorruptFrame, match=f"a claim of {len(payload)} bytes"):
        Claim.decode(seal(kinds.CLAIM.letter[0], 1, payload))


def test_a_claim_stands_beside_no_other_row() -> None:
    letters = [
        kinds.FENCE.key(),
        kinds.LEDGER.letter,
        kinds.CALIBRATOR.letter,
        kinds.SCORES.letter,
        kinds.WINDOWS.letter,
        kinds.VECTORS.letter,
        kinds.QUEUE.letter,
    ]
    assert kinds.CLAIM.key() not in letters
