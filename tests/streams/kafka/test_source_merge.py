"""The merge of source partitions: by time, each in its order, and none waits for ever."""

from types import SimpleNamespace
from typing import Any

from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.source_merge import SourceBuffers

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def record(ts: int, size: int = 1) -> Any:
    return SimpleNamespace(timestamp=ts, key=None, value=b"x" * size)


def buffers(patience: float = 10.0, records: int = 100, size: int = 10**6) -> tuple[SourceBuffers, list[float]]:
    now = [0.0]
    made = SourceBuffers(patience, records, size, lambda: now[0])
    made.assign([A, B])
    return made, now


def taken(made: SourceBuffers, limit: int = 100, behind: tuple[TopicPartition, ...] = ()) -> list[tuple[str, int]]:
    return [(tp.topic, each.timestamp) for tp, each in made.take(limit, lambda tp: tp not in behind)]


@given(st.lists(st.integers(0, 50)), st.lists(st.integers(0, 50)), st.integers(1, 9))
def test_sorted_partitions_are_one_sorted_order(a: list[int], b: list[int], limit: int) -> None:
    made, _ = buffers()
    made.add(A, [record(ts) for ts in sorted(a)])
    made.add(B, [record(ts) for ts in sorted(b)])
    found = []
    while now := taken(made, limit):
        assert len(now) <= limit
        found += now
    assert [ts for _, ts in found] == sorted(a + b)


def test_the_order_of_a_partition_is_kept_whatever_its_times_are() -> None:
    made, _ = buffers()
    made.add(A, [record(9), record(3), record(5)])
    made.add(B, [record(4)])
    assert [ts for topic, ts in taken(made) if topic == "a"] == [9, 3, 5]


def test_a_partition_that_is_behind_holds_the_others_until_their_patience_is_at_an_end() -> None:
    made, now = buffers(patience=10.0)
    made.add(A, [record(1)])
    assert taken(made, behind=(B,)) == []
    now[0] = 9.9
    assert taken(made, behind=(B,)) == []
    now[0] = 10.0
    assert taken(made, behind=(B,)) == [("a", 1)]
    made.add(A, [record(2)])
    assert taken(made, behind=(B,)) == []  # and again


def test_one_that_was_waited_for_is_merged_like_any_other_once_it_is_there() -> None:
    made, _ = buffers()
    made.add(A, [record(ts) for ts in (1, 2, 9)])
    assert taken(made, behind=(B,)) == []
    made.add(B, [record(3)])
    assert taken(made, behind=(A, B)) == [("a", 1), ("a", 2), ("b", 3)]


def test_it_stops_where_a_partition_runs_out_that_has_more() -> None:
    made, _ = buffers()
    made.add(A, [record(1)])
    made.add(B, [record(2), record(3)])
    assert taken(made, behind=(A, B)) == [("a", 1)]
    made.add(A, [record(2)])
    assert taken(made) == [("a", 2), ("b", 2), ("b", 3)]


def test_no_more_is_fetched_of_what_is_full() -> None:
    made, _ = buffers(records=3, size=100)
    made.add(A, [record(1)] * 3)
    assert made.full() == {A}
    made.add(B, [record(1, 60)])
    assert made.full() == {A, B}
    assert made.held() == {A: 3, B: 1}
    taken(made)
    assert made.full() == set()


def test_records_of_partitions_that_have_moved_are_dropped() -> None:
    made, _ = buffers()
    made.assign([B])
    made.add(A, [record(1)])
    assert taken(made) == []


HOUR = 3_600_000


def test_a_record_stamped_ahead_is_taken_with_those_behind_it() -> None:
    made, _ = buffers()
    made.add(A, [record(each) for each in (9 * HOUR, 1, 2, 3, 4, 5)])
    made.add(B, [record(each) for each in (1, 2, 3, 9 * HOUR, 9 * HOUR, 4, 5, 6, 7)])
    assert [each for each in taken(made) if each[1] < HOUR] == sorted(
        [("a", each) for each in range(1, 6)] + [("b", each) for each in range(1, 8)], key=lambda each: each[1]
    )


def test_three_records_ahead_are_believed_as_after_a_night() -> None:
    made, _ = buffers()
    made.add(A, [record(each) for each in (0, 9 * HOUR, 9 * HOUR, 9 * HOUR, 1, 2, 3)])
    made.add(B, [record(each) for each in range(1, 8)])
    assert taken(made)[:8] == [("a", 0), *(("b", each) for each in range(1, 8))]


def test_what_stands_behind_a_record_far_ahead_is_fetched_before_others_go_on() -> None:
    made, now = buffers(size=10)
    made.add(A, [record(9 * HOUR, 5), record(1, 5)])
    made.add(B, [record(1), record(2)])
    assert made.full() == {A}
    assert taken(made, behind=(A,)) == []
    assert made.full() == set(), "what is waited for is fetched, however large"
    made.add(A, [record(each) for each in (2, 3, 4)])
    assert taken(made, behind=(A,))[:2] == [("a", 9 * HOUR), ("a", 1)]
    made.add(A, [record(each) for each in (10 * HOUR, 5)])
    made.add(B, [record(5)])
    assert taken(made, behind=(A,)) == []
    now[0] += 10
    assert taken(made, behind=(A,)) == [("b", 5), ("a", 10 * HOUR), ("a", 5)]
