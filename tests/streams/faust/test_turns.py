"""A router's partitions go through a backlog together, and at rest none waits for another."""

import random

import pytest
from faust.types import TP

from state.witnesses import SLACK
from streams.faust.routed_outputs import by_time
from streams.faust.turns import Turns
from streams.records.encoding import EncodedRecord
from streams.records.merge import PartitionBuffer
from tests.streams.fakes import record

HOUR = 3_600_000


class Partitions:
    """Partitions whose topics hold records of some times, as far as they were fetched."""

    def __init__(self, *times: tuple[list[int], list[int]], clock: list[float] | None = None) -> None:
        self.logs = {TP("fo"[n], p): each for p, both in enumerate(times) for n, each in enumerate(both)}
        self.read = dict.fromkeys(self.logs, 0)
        #: Topic-partitions of which nobody knows where they end.
        self.unknown: set[TP] = set()
        self.buffers = [PartitionBuffer(p, (TP("f", p), TP("o", p))) for p in range(len(times))]
        self.turns = Turns(200, 1 << 20, 10.0, together=True, clock=lambda: clock[0] if clock else 0.0)

    def caught_up(self, tp: TP) -> bool:
        return tp not in self.unknown and self.read[tp] == len(self.logs[tp])

    def has_read(self, tp: TP, offset: int) -> bool:
        return self.read[tp] >= offset

    def fetch(self, tp: TP, most: int = 1000) -> None:
        at, end = self.read[tp], min(self.read[tp] + most, len(self.logs[tp]))
        made = [record(tp.topic, tp.partition, at + i, ts) for i, ts in enumerate(self.logs[tp][at:end])]
        self.buffers[tp.partition].add("fo".index(tp.topic), made)
        self.read[tp] = end

    def fetch_all(self) -> None:
        for tp in self.logs:
            self.fetch(tp)

    def take(self) -> list[int]:
        """Take batches, fold and answer them, and return the times of what is sent as one."""
        batches = self.turns.take(self.buffers, self)
        for batch in batches:
            self.buffers[batch.partition].busy = False
            self.buffers[batch.partition].acknowledged(batch)
        runs = [[sent(each.timestamp) for _, each in batch.records] for batch in batches]
        return [stamp or 0 for _, _, stamp, _ in by_time(runs)]


def sent(stamp: int) -> EncodedRecord:
    return None, b"", stamp, []


@pytest.mark.parametrize("seed", range(5))
def test_a_backlog_is_sent_in_order_of_time_however_it_is_fetched(seed: int) -> None:
    rng = random.Random(seed)
    hours = [rng.randrange(2000) * HOUR for _ in range(3000)]
    held: list[tuple[list[int], list[int]]] = [([], []) for _ in range(5)]
    for ts in sorted(hours):
        held[min(rng.randrange(7), 4)][rng.randrange(2)].append(ts)  # one has more than the others
    held.append(([], []))
    partitions, found = Partitions(*held), list[int]()
    while len(found) < len(hours):
        partitions.fetch(rng.choice(list(partitions.logs)), rng.randrange(1, 400))
        found += partitions.take()
    assert found == sorted(hours)


def test_a_record_stamped_ahead_holds_its_partition_back_neither_in_turns_nor_in_what_is_sent() -> None:
    hours = [n * HOUR for n in range(600)]
    wild = [*hours[:3], 9999 * HOUR, *hours[3:]]
    partitions, found = Partitions((wild, []), (hours, [])), list[int]()
    partitions.fetch_all()
    while taken := partitions.take():
        found += [ts for ts in taken if ts < 9999 * HOUR]
    assert found == sorted(hours + hours)


def test_at_rest_nobody_waits() -> None:
    partitions = Partitions(([0, SLACK], [SLACK]), ([5], []), ([], []))
    partitions.fetch_all()
    first, second = partitions.turns.take(partitions.buffers, partitions)
    assert (len(first.records), len(second.records)) == (3, 1)
    partitions.logs[TP("f", 2)].append(SLACK)
    partitions.fetch_all()
    assert [batch.partition for batch in partitions.turns.take(partitions.buffers, partitions)] == [2]


def test_a_partition_of_which_nothing_is_known_holds_a_backlog_for_its_patience() -> None:
    clock = [0.0]
    partitions = Partitions(([0, HOUR], []), ([HOUR], []), ([], []), clock=clock)
    partitions.unknown.add(TP("f", 2))
    partitions.fetch_all()
    assert partitions.take() == []
    clock[0] = 10.0
    assert partitions.take() == [0]
    partitions.logs[TP("f", 0)] += [2 * HOUR, 9 * HOUR]
    partitions.fetch_all()
    assert partitions.take() == [HOUR, HOUR], "nor any longer"


def test_a_turn_begins_when_the_one_before_is_folded() -> None:
    partitions = Partitions((list(range(0, 9 * HOUR, HOUR)), []), (list(range(9)), []))
    partitions.fetch_all()
    assert len(partitions.turns.take(partitions.buffers, partitions)) == 2
    partitions.logs[TP("f", 0)].append(20 * HOUR)
    partitions.fetch_all()
    partitions.buffers[0].busy = False
    assert partitions.turns.take(partitions.buffers, partitions) == []
    partitions.buffers[1].busy = False
    assert len(partitions.turns.take(partitions.buffers, partitions)) == 1


def test_while_two_turns_are_not_answered_none_begins() -> None:
    partitions = Partitions(([0], []), ([0], []), ([], []))

    def next_turn(partition: int) -> list[int]:
        partitions.logs[TP("f", partition)].append(1)
        partitions.fetch_all()
        turn = partitions.turns.take(partitions.buffers, partitions)
        for batch in turn:
            partitions.buffers[batch.partition].busy = False
        return [batch.partition for batch in turn]

    partitions.fetch_all()
    first = partitions.turns.take(partitions.buffers, partitions)
    assert len(first) == 2
    assert next_turn(2) == [2]
    assert next_turn(2) == [], "nor of a partition that has nothing under way"
    for batch in first:
        partitions.buffers[batch.partition].busy = False
        partitions.buffers[batch.partition].acknowledged(batch)
    assert next_turn(1) == [1, 2], "and then it takes what all have"


def test_a_batch_that_waits_alone_holds_up_no_turn() -> None:
    partitions = Partitions(([0], []), ([0], []), ([0], []))
    for partition in range(3):
        partitions.fetch(TP("f", partition))
        (batch,) = partitions.turns.take(partitions.buffers, partitions)
        batch.turn = 0
        assert batch.partition == partition


def test_of_many_partitions_each_has_a_share_of_a_turn() -> None:
    taken = []
    for n in (4, 16):
        partitions = Partitions(*[(list(range(1000)), []) for _ in range(n)])
        partitions.fetch_all()
        taken.append([len(batch.records) for batch in partitions.turns.take(partitions.buffers, partitions)])
    assert taken == [[200] * 4, [50] * 16]
