"""Expiry queues."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import kinds
from state.expiry import CHUNK, Expiry, QueueEntry
from state.fence import EXPIRY, MATURITY, Fence, QueueBounds
from tests.state.histories import STEADY, Table


class Queues:
    """Expiry queues on a table, beside plain lists of what waits."""

    def __init__(self) -> None:
        self.table = Table()
        self.fence = Fence()
        self.expiry = Expiry(self.table.get, self.fence)
        self.waiting: dict[int, list[QueueEntry]] = {}
        self.born = 0

    def push(self, ttl_ms: int) -> None:
        self.born += 1
        event_id = f"event-{self.born}"
        self.expiry.push(EXPIRY, ttl_ms, self.born, event_id)
        self.waiting.setdefault(ttl_ms, []).append((self.fence.stream_time, self.born, event_id))

    def pop_due(self, most: int) -> None:
        """Pop at most so many due entries."""
        for queue in self.expiry.due():
            if not most:
                return
            assert self.expiry.pop(queue) == self.waiting[queue.ttl_ms].pop(0)
            most -= 1

    def store(self, *, restart: bool) -> None:
        """End a batch; a restart reads everything again."""
        self.table.write(self.expiry.changes())
        if restart:
            self.expiry = Expiry(self.table.get, self.fence)

    def check(self) -> None:
        """Compare bounds, due times and rows with the lists."""
        now, chunks = self.fence.stream_time, set[tuple[int, int, int]]()
        for (_, ttl_ms), queue in self.fence.queues.items():
            waiting = self.waiting[ttl_ms]
            assert queue.tail - queue.head == len(waiting)
            if waiting:
                assert queue.due == waiting[0][0] + ttl_ms
            chunks |= {(EXPIRY, ttl_ms, n) for n in range(queue.head // CHUNK, -(-queue.tail // CHUNK))}
        assert {kinds.QUEUE.of(key) for key in self.table} == chunks
        due = [entries[0][0] + ttl_ms for ttl_ms, entries in self.waiting.items() if entries]
        assert self.expiry.soonest == min(due, default=inf)
        # Two equal yields in a row would mean a queue that is not popped holds up the others.
        assert len(list(self.expiry.due())) == sum(at <= now for at in due)


@STEADY
@given(
    st.lists(
        st.tuples(st.sampled_from([10, 25]), st.integers(0, 90), st.integers(0, 30), st.integers(0, 90), st.booleans()),
        max_size=12,
    )
)
def test_entries_leave_in_order_and_in_time(moves: list[tuple[int, int, int, int, bool]]) -> None:
    queues = Queues()
    for ttl_ms, pushes, gap, pops, restart in moves:
        for _ in range(pushes):
            queues.push(ttl_ms)
        queues.fence.stream_time += gap
        queues.pop_due(pops)
        queues.store(restart=restart)
        queues.check()


def test_full_chunk_is_never_written_again_and_leaves_with_its_last_entry() -> None:
    queues = Queues()
    for _ in range(CHUNK + 1):
        queues.push(10)
    first, second = kinds.QUEUE.key(EXPIRY, 10, 0), kinds.QUEUE.key(EXPIRY, 10, 1)
    changes = queues.expiry.changes()
    assert changes.keys() == {first, second}
    queues.table.write(changes)
    queues.push(10)
    assert queues.expiry.changes().keys() == {second}
    queues.fence.stream_time = 10
    queues.pop_due(CHUNK - 1)
    assert queues.expiry.changes() == {}
    queues.pop_due(1)
    assert queues.expiry.changes() == {first: None}


def test_missing_chunk_is_named() -> None:
    fence = Fence(stream_time=10, queues={(EXPIRY, 10): QueueBounds(EXPIRY, 10, 0, 1, 10)})
    lost = Expiry(Table().get, fence)
    with pytest.raises(
        LookupError, match=f"expiry chunk {kinds.QUEUE.key(EXPIRY, 10, 0).hex()} is in the fence but not in the"
    ):
        lost.pop(next(lost.due()))


def test_keys_of_a_queue_sort_in_the_order_of_its_chunks() -> None:
    made = [kinds.QUEUE.key(EXPIRY, 10, chunk) for chunk in (0, 1, 255, 256, 2**40)]
    assert made == sorted(made)
    assert kinds.QUEUE.key(3, 1, 2) == b"Q\3" + bytes(7) + b"\1" + bytes(7) + b"\2"


def test_what_matures_goes_before_what_leaves() -> None:
    queues = Queues()
    queues.push(10)
    queues.expiry.push(MATURITY, 10, 7, "ripe")
    queues.fence.stream_time = 10
    assert [queue.role for queue in queues.expiry.due()] == [MATURITY, EXPIRY]
