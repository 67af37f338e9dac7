"""The journal: what comes back from its rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import journal, kinds
from state.frames import CorruptFrame
from state.journal import NONE, SLOTS, Entry, Last
from tests.state.histories import STEADY, Table

COUNT = st.integers(0, 2**64 - 1)
LAST = st.just(NONE) | st.builds(Last, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1))
ENTRIES = st.builds(
    Entry,
    COUNT,
    st.tuples(COUNT, COUNT),
    st.tuples(COUNT, COUNT),
    COUNT,
    COUNT,
    st.tuples(COUNT, COUNT, COUNT),
    st.binary(min_size=16, max_size=16),
    st.tuples(LAST, LAST),
    st.lists(st.sampled_from([0, 1]), max_size=40).map(bytes),
    st.integers(0, 2**63 - 1),
)

BEFORE = Last(1_700_000_000_000, 4711), NONE


def entry(number: int, topics: bytes = b"\0\1\1") -> Entry:
    return Entry(number, (0, 0), (1, 2), number, 0, (7, 8, 9), bytes(16), (NONE, NONE), topics)


def written(*numbers: int, begun: int | None = None) -> Table:
    """Return a table after these entries, and a checkpoint before the entry ``begun``."""
    table = Table()
    for number in numbers:
        table[entry(number).key] = entry(number).encode()
    if begun is not None:
        table.write(dict([journal.begun(entry(begun)._replace(last=BEFORE), (7, 8, 9))]))
    return table


def read(table: Table) -> tuple[int, list[int]]:
    found = journal.read(table.get)
    assert found.last == (BEFORE if kinds.JOURNAL.letter in table else (NONE, NONE))
    return found.number, [each.number for each in found.entries]


def test_what_is_out_is_known_from_the_checkpoint_or_from_the_last_entry_that_knows_more() -> None:
    table = written(3, 4, begun=3)
    found = journal.read(table.get)
    assert (found.answered, found.said) == (3, (7, 8, 9))  # the entries say that all is perhaps not out
    knows = entry(5)._replace(answered=5, said=(17, 18, 19))
    table[knows.key] = knows.encode()
    found = journal.read(table.get)
    assert (found.answered, found.said) == (5, (17, 18, 19))


@STEADY
@given(ENTRIES)
def test_decoded_entry_is_the_encoded_one(made: Entry) -> None:
    assert Entry.decode(made.encode()) == made


def test_a_long_batch_has_a_bit_for_each_record() -> None:
    sizes = [len(entry(0, bytes(n)).encode()) for n in (0, 4000)]
    assert sizes[1] - sizes[0] == 500


def test_entries_since_the_last_checkpoint_are_read_in_order_and_numbers_go_on() -> None:
    assert read(Table()) == (0, [])
    assert read(written(0, 1, 2)) == (3, [0, 1, 2])
    assert read(written(0, 1, 2, begun=2)) == (3, [2])
    assert read(written(0, 1, 2, begun=3)) == (3, [])


def test_entries_take_the_place_of_old_ones_and_those_left_of_an_earlier_turn_are_not_read() -> None:
    numbers = range(2 * SLOTS + 5)
    table = written(*numbers, begun=2 * SLOTS - 1)
    assert len(table.of(kinds.JOURNAL.letter)) == SLOTS + 1
    assert read(table) == (2 * SLOTS + 5, list(range(2 * SLOTS - 1, 2 * SLOTS + 5)))


@pytest.mark.parametrize("key", [kinds.JOURNAL.letter, entry(1).key])
def test_damaged_row_is_not_taken_for_the_end_of_the_journal(key: bytes) -> None:
    table = written(0, 1, begun=0)
    table[key] = table[key][:-1]
    with pytest.raises(CorruptFrame):
        journal.read(table.get)
