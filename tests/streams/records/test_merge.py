"""Two topics become one order, which is a function of the records and not of how they arrived."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import pytest
from aiokafka.structs import ConsumerRecord
from faust.types import TP
from hypothesis import given
from hypothesis import strategies as st

from state.journal import NONE, Entry, Journal, last
from state.witnesses import SLACK
from streams.records.merge import BEHIND, Batch, PartitionBuffer, RewrittenError, believed
from tests.streams.clock import Clock
from tests.streams.fakes import record

F, O = 0, 1  # noqa: E741 - forecasts and outcomes, as `state.fence` numbers them
SOURCES = (TP("f", 3), TP("o", 3))
Record: TypeAlias = ConsumerRecord[bytes | None, bytes | None]


def buffer() -> PartitionBuffer:
    return PartitionBuffer(3, SOURCES)


def made(topic: int, *timestamps: int, start: int = 0, value: bytes | None = b"v") -> list[Record]:
    name = SOURCES[topic].topic
    return [record(name, 3, start + i, ts, value=value) for i, ts in enumerate(timestamps)]


def never(_: TP) -> bool:
    return False


def always(_: TP) -> bool:
    return True


def only(topic: int) -> Callable[[TP], bool]:
    return lambda tp: tp == SOURCES[topic]


class Reading:
    """How far the topics have been read: wherever a test says so."""

    def __init__(self, caught_up: Callable[[TP], bool] = always) -> None:
        self._caught_up = caught_up

    def caught_up(self, tp: TP) -> bool:
        return self._caught_up(tp)


def take(
    of: PartitionBuffer,
    caught_up: Callable[[TP], bool] = always,
    *,
    limit: int = 1000,
    size: int = 1_000_000,
    patience: float = 10.0,
    clock: Callable[[], float] | None = None,
) -> Batch | None:
    return of.take(limit, size, Reading(caught_up), patience, clock or Clock(100.0))


def acknowledge(of: PartitionBuffer) -> None:
    """Say that a batch is folded, and answered."""
    of.busy = False
    of.acknowledged(of.out[0])


def order(batch: Batch | None) -> list[tuple[int, int]]:
    """Return topic and timestamp of a batch's records."""
    return [] if batch is None else [(topic, each.timestamp) for topic, each in batch.records]


def drained(of: PartitionBuffer) -> list[tuple[int, Record]]:
    """Take all there is, batch by batch; return topics and records."""
    found: list[tuple[int, Record]] = []
    while batch := take(of):
        found += cast("list[tuple[int, Record]]", batch.records)
        acknowledge(of)
    return found


def stamps(of: PartitionBuffer) -> list[tuple[int, int]]:
    """Take all there is; return topics and timestamps."""
    return [(topic, each.timestamp) for topic, each in drained(of)]


# -- holding back --------------------------------------------------------------------------------------------------


def test_one_batch_is_folded_at_a_time_and_two_are_out() -> None:
    of = buffer()
    of.add(F, made(F, 1, 2, 3))
    assert order(take(of, limit=1)) == [(F, 1)]
    assert take(of, limit=1) is None
    of.busy = False
    assert order(take(of, limit=1)) == [(F, 2)]
    of.busy = False
    assert take(of) is None
    acknowledge(of)
    assert order(take(of)) == [(F, 3)]


def test_a_batch_that_is_acknowledged_before_the_one_it_follows_is_an_error() -> None:
    of = buffer()
    of.add(F, made(F, 1, 2))
    take(of, limit=1)
    of.busy = False
    second = take(of)
    assert second is not None
    with pytest.raises(RuntimeError, match="partition 3"):
        of.acknowledged(second)


def test_patience_runs_from_the_first_refusal_and_then_the_topic_goes_on_alone() -> None:
    of, clock = buffer(), Clock(100.0)
    of.add(O, made(O, 1, 2))
    assert take(of, never, clock=clock) is None
    clock.now += 9.9
    assert take(of, never, clock=clock) is None
    clock.now += 0.1
    assert order(take(of, never, clock=clock)) == [(O, 1), (O, 2)]


def test_patience_starts_anew_when_the_partner_came_meanwhile() -> None:
    of, clock = buffer(), Clock(100.0)
    of.add(F, made(F, 1, 3))
    assert take(of, never, clock=clock) is None
    clock.now += 9
    of.add(O, made(O, 2))
    assert order(take(of, never, clock=clock)) == [(F, 1), (O, 2)]
    acknowledge(of)
    clock.now += 9
    assert take(of, never, clock=clock) is None
    clock.now += 10
    assert order(take(of, never, clock=clock)) == [(F, 3)]


# -- limits, ends, epochs ------------------------------------------------------------------------------------------


def test_a_record_counts_the_bytes_of_its_key_and_of_its_value_where_it_has_them() -> None:
    of = buffer()
    bare = record("f", 3, 0, 1, None, None)
    of.add(F, [bare, record("f", 3, 1, 2, b"k" * 30, None), record("f", 3, 2, 3, None, b"v")])
    assert of.sizes == [31, 0]
    assert len(order(take(of, size=30))) == 2
    assert of.sizes == [1, 0]


def test_ends_pass_over_offsets_that_are_not_records() -> None:
    of = buffer()
    of.add(F, [*made(F, 1, start=4), *made(F, 2, start=9)])  # 5 to 8 were control records, or compacted
    batch = take(of)
    assert batch is not None
    assert batch.ends == {SOURCES[F]: 10}


# -- whatever arrives ----------------------------------------------------------------------------------------------


def test_a_new_buffer_begins_an_epoch() -> None:
    assert buffer().epoch != buffer().epoch


def merged(forecasts: Sequence[int], outcomes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the two-way merge, written as plainly as can be."""
    return spanned((forecasts, outcomes), (0, 0), (len(forecasts), len(outcomes)))


def spanned(topics: Sequence[Sequence[int]], first: Sequence[int], end: Sequence[int]) -> list[tuple[int, int]]:
    """Return the merge of whole topics from some offsets to others."""
    order: list[tuple[int, int]] = []
    at = list(first)
    while at[F] < end[F] and at[O] < end[O]:
        heads = [times[i] for times, i in zip(topics, at, strict=True)]
        later = F if heads[F] > heads[O] else O
        if heads[later] - heads[1 - later] > SLACK:
            heads[later] = believed(heads[later], topics[later][at[later] + 1 : at[later] + 1 + BEHIND])
        topic = F if heads[F] <= heads[O] else O
        order.append((topic, topics[topic][at[topic]]))
        at[topic] += 1
    return order + [(topic, ts) for topic in (F, O) for ts in topics[topic][at[topic] : end[topic]]]


def by_stamp(forecasts: Sequence[int], outcomes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the two-way merge that believes every timestamp."""
    order: list[tuple[int, int]] = []
    topics = [list(forecasts), list(outcomes)]
    while all(topics):
        first = 0 if topics[0][0] <= topics[1][0] else 1
        order.append((first, topics[first].pop(0)))
    return order + [(topic, ts) for topic, times in enumerate(topics) for ts in times]


MINUTE = 60_000
#: Close together, or minutes apart in any order.
TIMESTAMPS = st.lists(st.integers(0, 20), max_size=25) | st.lists(
    st.integers(0, 60).map(lambda minutes: minutes * MINUTE), max_size=25
)


@given(TIMESTAMPS, TIMESTAMPS, st.data())
def test_the_order_is_the_two_way_merge_however_arrivals_and_batches_were_cut(
    forecasts: list[int], outcomes: list[int], data: st.DataObject
) -> None:
    of = buffer()
    waiting = (made(F, *forecasts), made(O, *outcomes))
    taken: list[tuple[int, int]] = []
    ends: dict[TP, int] = {}

    def drain() -> None:
        limit, size = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
        while batch := take(of, lambda tp: not waiting[SOURCES.index(tp)], limit=limit, size=size):
            assert 0 < len(batch.records) <= limit
            for tp, end in batch.ends.items():
                assert end > ends.get(tp, 0)
            ends.update(batch.ends)
            taken.extend(order(batch))
            acknowledge(of)

    while any(waiting):
        topic = data.draw(st.sampled_from([topic for topic in (F, O) if waiting[topic]]))
        n = data.draw(st.integers(1, len(waiting[topic])))
        of.add(topic, waiting[topic][:n])
        del waiting[topic][:n]
        drain()
    drain()
    assert taken == merged(forecasts, outcomes)
    assert ends == {tp: len(stamps) for tp, stamps in zip(SOURCES, (forecasts, outcomes), strict=True) if stamps}


@given(TIMESTAMPS, TIMESTAMPS, st.data())
def test_what_comes_later_does_not_change_the_order_of_a_batch(
    forecasts: list[int], outcomes: list[int], data: st.DataObject
) -> None:
    """Records come one by one, and whatever has come is all there is; so a live topic is read."""
    of, topics = buffer(), (forecasts, outcomes)
    waiting = (made(F, *forecasts), made(O, *outcomes))
    at = [0, 0]
    while any(waiting):
        for topic in (F, O):
            n = data.draw(st.integers(0, len(waiting[topic])))
            of.add(topic, waiting[topic][:n])
            del waiting[topic][:n]
        while batch := take(of):
            end = [batch.ends.get(tp, at[topic]) for topic, tp in enumerate(SOURCES)]
            assert order(batch) == spanned(topics, at, end)
            at = end
            acknowledge(of)
    assert at == [len(forecasts), len(outcomes)]


def entries(number: int, records: Sequence[tuple[int, Record]], size: int) -> list[Entry]:
    """Return journal entries of records in this order, so many in each."""
    made, ends, latest = list[Entry](), [0, 0], [NONE, NONE]
    for at in range(0, len(records), size):
        begins, part = (ends[F], ends[O]), records[at : at + size]
        for topic, each in part:
            ends[topic], latest[topic] = each.offset + 1, last(each.timestamp, each.value)
        topics = bytes([topic for topic, _ in part])
        now = ends[F], ends[O]
        made.append(Entry(number + len(made), begins, now, 0, 0, (0, 0, 0), bytes(16), (latest[F], latest[O]), topics))
    return made


def journaled(*folded: Entry) -> PartitionBuffer:
    of = buffer()
    of.begin((0, 0), Journal(0, (NONE, NONE), list(folded)))
    return of


@pytest.mark.parametrize("other", range(5))
def test_a_topic_that_was_cut_and_gave_its_offsets_to_other_records_is_noticed(other: int) -> None:
    """The last record that is in the rows, and the last of each journal entry, are compared."""
    old = [(F, each) for each in made(F, *range(5))]
    of = buffer()
    one, *journal = entries(6, old, 2)
    of.begin(one.ends, Journal(9, one.last, journal))
    records = [each for _, each in old][1:]
    changed = [*records[:other], *made(F, *range(1 + other, 5), start=1 + other, value=b"other")]

    def fold() -> int:
        of.add(F, changed)
        return len(drained(of))

    if other == 4:
        assert fold() == 3
    else:
        with pytest.raises(RewrittenError, match="f/3 offset"):
            fold()


@given(TIMESTAMPS, TIMESTAMPS, st.integers(0, 40), st.integers(1, 9))
def test_where_a_crash_cut_does_not_show_in_the_order(
    forecasts: list[int], outcomes: list[int], cut: int, size: int
) -> None:
    """Clocks run as they like; before the cut the journal says the order, whatever it was."""
    whole = buffer()
    whole.add(F, made(F, *forecasts))
    whole.add(O, made(O, *outcomes))
    uncut = drained(whole)
    restarted = journaled(*entries(0, uncut[:cut], size))
    restarted.add(F, made(F, *forecasts))
    restarted.add(O, made(O, *outcomes))
    assert drained(restarted) == uncut


# -- stamped ahead -------------------------------------------------------------------------------------------------

HOUR = 60 * MINUTE
#: Nights and outages between records, and records that are up to five minutes late.
HEALTHY = st.lists(st.tuples(st.sampled_from((0, 1, MINUTE, 8 * HOUR)), st.integers(0, SLACK)), max_size=25).map(
    lambda steps: [sum(step for step, _ in steps[: i + 1]) - late for i, (_, late) in enumerate(steps)]
)
SORTED = st.lists(st.integers(0, 60).map(lambda minutes: minutes * MINUTE), max_size=25).map(sorted)


@pytest.mark.parametrize(
    ("behind", "by"),
    [
        ((10, 20, 30, 40), 10),
        ((10, 5, 30, HOUR + SLACK), 5),
        ((2 * HOUR, 20, 30, 40), 20),
        ((10, 20, 30), 10),
        ((10, 20), HOUR),
        ((), HOUR),
        ((2 * HOUR, 2 * HOUR, 30, 40), HOUR),
        ((HOUR - SLACK, 20, 30, 2 * HOUR), HOUR),
    ],
)
def test_a_record_is_believed_unless_three_of_the_four_behind_it_are_earlier(behind: tuple[int, ...], by: int) -> None:
    assert believed(HOUR, behind) == by


@given(HEALTHY, HEALTHY)
def test_a_topic_whose_stamps_fall_back_by_little_is_merged_by_its_stamps(
    forecasts: list[int], outcomes: list[int]
) -> None:
    of = buffer()
    of.add(F, made(F, *forecasts))
    of.add(O, made(O, *outcomes))
    assert stamps(of) == by_stamp(forecasts, outcomes)


@given(SORTED, SORTED, st.integers(0, 25), st.integers(0, 25), st.integers(0, 2), st.integers(0, 2), st.data())
def test_up_to_two_records_in_a_row_that_are_stamped_ahead_change_no_place_but_their_own(
    forecasts: list[int], outcomes: list[int], at_f: int, at_o: int, n_f: int, n_o: int, data: st.DataObject
) -> None:
    ahead = st.integers(24 * HOUR, 48 * HOUR)
    topics = []
    for healthy, at, n in ((forecasts, at_f, n_f), (outcomes, at_o, n_o)):
        place = min(at, len(healthy) - 3)
        wild = [data.draw(ahead) for _ in range(n)] if place >= 0 else []
        topics.append([*healthy[: max(place, 0)], *wild, *healthy[max(place, 0) :]])
    of = buffer()
    of.add(F, made(F, *topics[F]))
    of.add(O, made(O, *topics[O]))
    found = stamps(of)
    assert [each for each in found if each[1] < 24 * HOUR] == by_stamp(forecasts, outcomes)
    for topic in (F, O):
        assert [ts for which, ts in found if which == topic] == topics[topic]


def test_three_records_ahead_confirm_each_other_as_after_a_night() -> None:
    of = buffer()
    of.add(F, made(F, 1, 2, 3))
    of.add(O, made(O, HOUR, HOUR, HOUR, 1, 2, 3, 4))
    assert order(take(of))[:3] == [(F, 1), (F, 2), (F, 3)]


def test_a_head_far_ahead_waits_for_the_records_behind_it_until_the_topic_is_caught_up() -> None:
    of = buffer()
    of.add(F, made(F, 1, 2, 3))
    of.add(O, made(O, HOUR, 1, 2))
    assert take(of, only(F)) is None
    assert of.awaited == SOURCES[O]
    of.add(O, made(O, 3, 4, start=3))
    assert order(take(of, only(F)))[:3] == [(F, 1), (O, HOUR), (O, 1)]
    assert of.awaited is None


def test_patience_also_ends_the_wait_for_the_records_behind_a_head() -> None:
    of, clock = buffer(), Clock(100.0)
    of.add(F, made(F, 1))
    of.add(O, made(O, HOUR, 1))
    assert take(of, never, clock=clock) is None
    clock.now += 10
    assert order(take(of, never, clock=clock)) == [(F, 1)]


def test_a_thread_may_ask_whether_a_partition_is_behind_while_batches_are_handed_out() -> None:
    of = buffer()

    class Handed:
        @property
        def again(self) -> None:  # meanwhile the loop hands out the next one
            of.out.append(cast("Batch", self))

    of.out.append(cast("Batch", Handed()))
    assert not of.behind
