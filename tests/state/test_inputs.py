"""The row of the topics that a partition's records came from."""

import pytest

from state import kinds
from state.frames import CorruptFrame, seal
from state.inputs import InputIds, Widths

ONE, TWO = "0" * 32, "f" * 32


def test_ids_are_read_as_they_were_written() -> None:
    ids = InputIds(ONE, TWO)
    assert InputIds.decode(ids.encode()) == ids


def test_the_bytes_are_those_of_the_ids() -> None:
    payload = bytes.fromhex(ONE) + bytes.fromhex(TWO)
    assert InputIds(ONE, TWO).encode() == seal(kinds.INPUTS.letter[0], 1, payload)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_row_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(CorruptFrame, match=f"these are {size}"):
        InputIds.decode(seal(kinds.INPUTS.letter[0], 1, bytes(size)))


def test_widths_are_read_as_they_were_written_and_others_refused() -> None:
    assert Widths.decode(Widths(8, 16).encode()) == Widths(8, 16)
    with pytest.raises(CorruptFrame, match="these are 7"):
        Widths.decode(seal(kinds.WIDTHS.letter[0], 1, bytes(7)))
