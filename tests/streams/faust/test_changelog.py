"""The changelog's claims: who may append, in what order, and what an overtaken worker is told."""

import asyncio

import pytest

from state import kinds
from streams.faust.changelog import Changelog, FencedError, MovedError, TooLargeError, Writer
from streams.kafka.producer_ids import ProducerIdentity
from tests.streams.clock import Clock
from tests.streams.fakes import Producer

TOPIC = "changelog"


class Worker(Changelog):
    """A worker's changelog, run to completion call by call."""

    def __init__(self, producer: Producer, name: str, clock: Clock | None = None) -> None:
        super().__init__(lambda: TOPIC, lambda: producer, name, clock=clock or Clock())  # type: ignore[arg-type,return-value]

    def take_up(self, partition: int = 0) -> None:
        asyncio.run(self.claim(partition))
        self.activate(partition)

    def write(self, *names: bytes, partition: int = 0) -> int:
        return asyncio.run(self.append({partition: dict.fromkeys(names, b"row")}))[partition]


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_was_folded_before_a_new_claim_is_refused_until_it_is_adopted(producer: Producer) -> None:
    worker = Worker(producer, "one")
    worker.take_up()
    asyncio.run(worker.claim(0))  # the partition left and came back: others may have written it
    with pytest.raises(FencedError):
        worker.write(b"old state")
    worker.activate(0)
    worker.write(b"new state")
    worker.activate(0)
    worker.write(b"more of it")
    assert [row.key for row in producer.rows(TOPIC)][-2:] == [b"new state", b"more of it"]


def test_a_partition_that_was_not_claimed_or_has_moved_is_not_written(producer: Producer) -> None:
    worker = Worker(producer, "one")
    with pytest.raises(MovedError, match=r"\[0\] have moved"):
        worker.write(b"a")
    worker.take_up()
    worker.release(0)
    with pytest.raises(MovedError):
        worker.write(b"a")
    assert len(producer.rows(TOPIC)) == 1


def test_numbers_begin_again_where_kafka_begins_again() -> None:
    writer = Writer(ProducerIdentity(7, 3), 0.0, sequence=2**31 - 2)
    assert [writer.stamp(n) for n in (1, 3, 1)] == [(7, 3, 2**31 - 2), (7, 3, 2**31 - 1), (7, 3, 2)]


# -- claims that grow old ------------------------------------------------------------------------------------------


def test_a_claim_is_due_when_it_has_not_been_confirmed_for_long(producer: Producer, clock: Clock) -> None:
    worker = Worker(producer, "one", clock)
    worker.take_up()
    clock.now = 6 * 3600.0 - 1
    worker.write(b"a")
    assert not worker.due(0)
    clock.now += 1
    assert worker.due(0)
    rows, offset = asyncio.run(worker.confirm(0))
    assert (list(rows), offset) == ([kinds.CLAIM.key()], 2)
    assert not worker.due(0)
    assert kinds.CLAIM.decode(rows[kinds.CLAIM.key()] or b"").epoch == 1
    worker.write(b"b")


def test_rows_too_large_for_a_batch_use_up_no_number(producer: Producer) -> None:
    worker = Worker(producer, "one")
    worker.take_up()
    worker._size = 1000
    with pytest.raises(TooLargeError):
        asyncio.run(worker.append({0: {bytes([i]): bytes(500) for i in range(3)}}))
    worker.write(b"a")  # the log would refuse it after a gap


def test_an_overtaken_worker_that_confirms_is_told_and_overtakes_nobody(producer: Producer) -> None:
    one, two = Worker(producer, "one"), Worker(producer, "two")
    one.take_up()
    two.take_up()
    with pytest.raises(FencedError):
        asyncio.run(one.confirm(0))
    two.write(b"a")


def test_a_worker_whose_claim_was_forgotten_ends(producer: Producer) -> None:
    worker = Worker(producer, "one")
    worker.take_up()
    producer.given.clear()
    producer.given["other"] = ProducerIdentity(7, 0)
    with pytest.raises(FencedError, match="have forgotten the claim of partition 0"):
        asyncio.run(worker.confirm(0))
