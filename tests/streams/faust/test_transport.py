"""Each override of Faust's thread, consumer and producer, on a wired application that is not started.

Where reading starts, and what a seek overtakes, is in test_seeks.py; what needs brokers is in tests/e2e.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock, call

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher as aiokafka_fetcher
from aiokafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError
from aiokafka.record.default_records import DefaultRecordBatch
from faust.types import TP, Message

from agents.topology import Topology
from streams.config.settings import Settings
from streams.faust import producing
from streams.faust.fetching import LoopConsumer, Rest, report_lost_positions
from streams.faust.membership import MembershipError
from streams.faust.producing import MANY, FaustProducer, RecordBatch
from streams.faust.transport import BatchConsumer
from streams.kafka import codecs
from streams.records.merge import Batch
from tests.streams.brokers import C0, F0, F1, O0, O1, Brokers, F, O, Run, buffer
from tests.streams.fakes import record


def take(consumer: BatchConsumer, partition: int, limit: int = 1000) -> Batch:
    """Take a batch, as turns do."""
    everything = SimpleNamespace(caught_up=lambda _: True)
    batch = consumer.partition_buffers[partition].take(limit, 1_000_000, everything, 0)
    assert batch is not None
    return batch


def acknowledge(consumer: BatchConsumer, batch: Batch) -> None:
    """Say that a batch is folded, and answered."""
    consumer.partition_buffers[batch.partition].busy = False
    consumer.partition_buffers[batch.partition].acknowledged(batch)


# -- the consumer of Kafka ------------------------------------------------------------------------------------------


@pytest.fixture
def thread(run: Run, consumer: BatchConsumer) -> Iterator[LoopConsumer]:
    """Yield one whose client of Kafka is real, is assigned three partitions, and is not started."""

    async def make() -> LoopConsumer:
        made = LoopConsumer(consumer)
        made._consumer = made._create_worker_consumer(cast("Any", consumer.transport))
        made._consumer._subscription.assign_from_user({TopicPartition(*tp) for tp in (F0, O0, F1)})
        return made

    made = run(make())
    yield made
    run(made._consumer.stop())


def test_a_consumer_that_rests_before_its_next_attempt_does_not_hold_up_the_end_of_the_thread(
    run: Run, thread: LoopConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = thread._ensure_consumer()
    kafka._coordinator, kafka._fetcher = None, Mock(close=AsyncMock(side_effect=asyncio.CancelledError))
    monkeypatch.setattr(kafka._client, "close", closed := AsyncMock())
    run(thread.on_thread_stop())
    closed.assert_awaited()
    kafka._fetcher = None


@pytest.mark.parametrize(("settings", "most"), [(Settings(), 400), (Settings(session_seconds=1), 166)])
def test_a_fetch_waits_at_its_broker_for_less_than_makes_the_broker_silent(
    run: Run, thread: LoopConsumer, most: int
) -> None:
    kafka = thread._ensure_consumer()
    assert kafka._fetch_max_wait_ms == most < kafka._client._request_timeout_ms
    kafka._fetcher = SimpleNamespace()

    async def throttle(*pair: list[TP]) -> int:
        thread.throttle(*pair)
        return cast("int", kafka._fetcher._fetch_max_wait_ms)

    assert run(throttle([F0], [])) == 100
    assert run(throttle([], [F0])) == most
    kafka._fetcher = None


def test_a_fetcher_rests_after_a_fetch_that_brought_records_of_inputs_unless_they_were_many(run: Run) -> None:
    told, comes, records = Mock(), [F1], {F0: "held, while rows are restored"}
    left = SimpleNamespace(active=False)

    async def fetch(*_: object) -> bool:
        records.update(dict.fromkeys(comes, "fetched"))
        return True

    fetcher = SimpleNamespace(
        _proc_fetch_request=fetch, _fetch_waiters=["who"], _notify=told, _records=records, _wait_consume_future=None
    )
    rest = Rest(cast("Any", SimpleNamespace(_fetcher=fetcher)), 60.0, (F, O))

    async def scenario() -> None:
        fetching = asyncio.create_task(fetcher._proc_fetch_request(left, 0, "request"))
        for _ in range(5):
            await asyncio.sleep(0)
        told.assert_called_once_with("who")
        assert not fetching.done()
        rest.end()
        assert not await fetching, "who waits was told"
        comes[:] = [C0]
        assert not await asyncio.wait_for(fetcher._proc_fetch_request(left, 0, "request"), 5.0)
        assert told.call_args_list.count(call("who")) == 2

    run(scenario())


async def test_a_fetcher_whose_rest_ends_while_records_are_taken_fetches_again_at_once() -> None:
    subscriptions, cluster = SubscriptionState(), SimpleNamespace(leader_for_partition=lambda _: 0)
    loop = asyncio.get_running_loop()
    client = SimpleNamespace(cluster=cluster, _loop=loop, _metadata_max_age_ms=300_000)
    fetcher = aiokafka_fetcher.Fetcher(client, subscriptions)
    fetched = 0

    async def fetch(*_: object) -> bool:
        nonlocal fetched
        fetched += 1
        fetcher._records[F0] = SimpleNamespace(calculate_backoff=lambda: 60.0)
        return True

    fetcher._proc_fetch_request = fetch
    rest = Rest(SimpleNamespace(_fetcher=fetcher), 60.0, (F, O))
    subscriptions.assign_from_user({F0})
    subscriptions.subscription.assignment.state_value(F0).reset_to(0)
    for _ in range(200):  # no time passes
        if fetcher._records:
            fetcher._records.clear()  # as it does where records are taken
            fetcher._notify(fetcher._wait_consume_future)
            rest.end()
        await asyncio.sleep(0)
    with suppress(asyncio.CancelledError):  # of the rest
        await fetcher.close()
    assert fetched > 10


async def test_only_lost_positions_of_the_inputs_are_errors() -> None:
    errors: list[tuple[TP, Exception]] = []
    lost = OffsetOutOfRangeError({F0: 5})
    await asyncio.sleep(0)
    states = {tp: TopicPartitionState(None) for tp in (F0, O0, C0)}
    assignment = SimpleNamespace(state_value=states.get)
    subscriptions = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    fetcher = SimpleNamespace(_set_error=lambda *each: errors.append(each), _subscriptions=subscriptions)
    report_lost_positions(fetcher, (F, O))
    fetcher._set_error(F0, lost)
    fetcher._set_error(C0, OffsetOutOfRangeError({C0: 5}))
    fetcher._set_error(O0, NoOffsetForPartitionError(O0))
    moved = TP(O, 1)  # while its committed offset was asked for
    fetcher._set_error(moved, NoOffsetForPartitionError(moved))
    assert [states[tp].awaiting_reset for tp in (F0, O0, C0)] == [False, True, True]
    assert errors == [(F0, lost)]


class Coordination:
    """What aiokafka's coordinator keeps of an error."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._closing = loop.create_future()
        self._coordination_task: asyncio.Future[None] = loop.create_future()
        self._pending_exception: Exception | None = None


async def test_a_consumer_is_expelled_when_its_coordination_has_failed_or_ended(thread: LoopConsumer) -> None:
    kafka = thread._ensure_consumer()
    await asyncio.sleep(0)
    said: list[str | None] = [repr(thread.expelled())]
    kafka._coordinator = coordination = Coordination(asyncio.get_running_loop())
    said.append(repr(thread.expelled()))
    coordination._pending_exception = KafkaError("UnknownError()")
    said.append(repr(thread.expelled()))
    coordination._pending_exception = None
    coordination._coordination_task.set_exception(KafkaError("unexpected"))
    said.append(repr(thread.expelled()))
    coordination._closing.set_result(None)
    said = [*said, repr(thread.expelled())]
    kafka._coordinator = None
    assert said == ["None", "None", "KafkaError('UnknownError()')", "KafkaError('unexpected')", "None"]


def test_a_worker_that_is_expelled_ends_and_is_not_healthy(
    topology: Topology, consumer: BatchConsumer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(topology.app.faust), "started", True)
    consumer._check_membership()
    assert topology.failure is None
    assert topology.healthy
    brokers.expels = KafkaError("FencedInstanceId")
    assert not topology.healthy
    consumer._check_membership()
    assert isinstance(topology.failure, MembershipError)
    assert "FencedInstanceId" in str(topology.failure)


# -- buffers -------------------------------------------------------------------------------------------------------


def test_a_topic_is_caught_up_when_all_the_broker_had_is_buffered(consumer: BatchConsumer, brokers: Brokers) -> None:
    assert not consumer.caught_up(F0)
    buffer(consumer, F0, 1, 2)
    assert not consumer.caught_up(F0), "the end is not known"
    brokers.ends[F0] = 3
    assert not consumer.caught_up(F0)
    brokers.positions[F0] = 3
    assert not consumer.caught_up(F0), "what has left the fetcher may not be in the buffers yet"
    buffer(consumer, F0, 3, start=2)
    assert consumer.caught_up(F0)
    brokers.ends[F0] = 4
    assert not consumer.caught_up(F0)


def test_lag_counts_what_is_buffered_and_what_is_not_fetched(consumer: BatchConsumer, brokers: Brokers) -> None:
    assert consumer.lag(F0) is None
    buffer(consumer, F0, 1, 2, 3)
    assert consumer.lag(F0) is None, "the end is not known"
    brokers.ends[F0] = 10
    assert consumer.lag(F0) == 3 + 7
    take(consumer, 0, limit=2)
    assert consumer.lag(F0) == 1 + 7
    brokers.ends[F0] = 2
    assert consumer.lag(F0) == 1, "an end from before the last fetch"
    assert consumer.lag(O0) is None


@pytest.mark.parametrize("settings", [Settings(buffer_records=1000)], ids=["a buffer of 1000 records"])
def test_throttle_pauses_what_is_far_ahead_and_resumes_it_at_half(consumer: BatchConsumer, brokers: Brokers) -> None:
    def throttle() -> list[tuple[str, object]]:
        brokers.calls.clear()
        consumer._throttle()
        return list(brokers.calls)

    buffer(consumer, F0, *range(999))
    buffer(consumer, O1, *range(1500))
    assert throttle() == [("throttle", ([O1], []))]
    buffer(consumer, F0, 999, start=999)
    assert throttle() == [("throttle", ([F0], []))]
    assert throttle() == []
    for _ in range(4):
        acknowledge(consumer, take(consumer, 0, limit=124))
    assert throttle() == []
    acknowledge(consumer, take(consumer, 0, limit=4))
    assert throttle() == [("throttle", ([], [F0]))]
    assert throttle() == []


@pytest.mark.usefixtures("brokers")
@pytest.mark.parametrize("settings", [Settings(memory_bytes=48 << 20)], ids=["a buffer of 4 MiB"])
def test_throttle_shares_the_bytes_out_and_resumes_at_half_a_share(consumer: BatchConsumer) -> None:
    consumer._buffer_of(1)
    huge, paused = [record(F, 0, i, i, None, bytes(256 << 10)) for i in range(4)], []
    steps: list[Callable[[], None]] = [
        lambda: consumer._buffer(F0, huge[:3]),  # three quarters of the share of one of four
        lambda: consumer._buffer(F0, huge[3:]),
        lambda: acknowledge(consumer, take(consumer, 0, limit=1)),
        lambda: acknowledge(consumer, take(consumer, 0, limit=1)),
    ]
    for step in steps:
        step()
        consumer._throttle()
        paused.append((consumer.paused(F0), consumer.paused(O0)))
    assert paused == [(False, False), (True, False), (True, False), (False, False)]


@pytest.mark.usefixtures("brokers")
@pytest.mark.parametrize("settings", [Settings(memory_bytes=12 << 20)], ids=["a buffer of 1 MiB"])
def test_what_the_merge_waits_for_is_fetched_however_large(consumer: BatchConsumer) -> None:
    consumer._buffer(F0, [record(F, 0, 0, 9 * 3_600_000, None, bytes(4 << 20))])
    consumer._throttle()
    assert consumer.paused(F0)
    consumer._buffer(O0, [record(O, 0, 0, 1, None, b"o")])
    reading = SimpleNamespace(caught_up=lambda _: False, has_read=lambda *_: True)
    assert consumer.partition_buffers[0].take(10, 100, reading, 10.0) is None
    consumer._throttle()
    assert not consumer.paused(F0)


# -- commits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(patience_seconds=0)], ids=["impatient"])
@pytest.mark.parametrize("stopped", ["the flow of the consumer", "the flow of the queues"])
def test_nothing_is_handed_out_while_the_flow_is_stopped(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers, stopped: str
) -> None:
    """What came into the agent's queue meanwhile would be lost: Faust clears it when the flow resumes."""
    handed: list[Message] = []

    async def callback(message: Message) -> None:
        handed.append(message)

    async def hand_out() -> int:
        consumer.hand_out()
        return len(handed)

    buffer(consumer, F0, 1)
    brokers.ends[F0] = 1
    consumer.callback = callback
    flow = topology.app.faust.flow_control
    flow.resume()
    if stopped == "the flow of the queues":
        flow.suspend()
    else:
        consumer.stop_flow()
    assert run(hand_out()) == 0
    consumer.resume_flow()
    flow.resume()
    assert run(hand_out()) == 1
    assert [len(batch.records) for batch in cast("list[Batch]", handed[0].value)] == [1]


async def test_a_turn_that_faust_does_not_take_at_once_is_an_error(
    topology: Topology, consumer: BatchConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would go on with it, and its partitions would stand still."""

    async def callback(_: object) -> None:
        await asyncio.sleep(0)

    buffer(consumer, F0, 1)
    consumer.callback = callback
    topology.app.faust.flow_control.resume()
    monkeypatch.setattr(consumer, "caught_up", lambda _: True)
    consumer.hand_out()
    assert "at once" in str(topology.failure)


async def test_what_faust_waits_for_is_given_up_when_the_flow_stops(consumer: BatchConsumer) -> None:
    """It stops the flow in a rebalance, and the callback may wait for what only the end of the rebalance brings."""
    waiting = asyncio.Event()

    async def callback(_: object) -> None:
        waiting.set()
        await asyncio.get_running_loop().create_future()

    consumer.callback = callback
    restoring = asyncio.create_task(consumer._restore(C0, [record(C0.topic, 0, 0, 0)]))
    await waiting.wait()
    consumer.stop_flow()
    await restoring


@pytest.mark.parametrize("since", ["a restart", "the partition went and came", "the partition has gone"])
def test_an_answer_to_a_batch_from_before_changes_nothing(
    run: Run, topology: Topology, consumer: BatchConsumer, since: str
) -> None:
    async def answer(batch: Batch) -> None:
        consumer.folded([batch])
        consumer.ack(consumer._message([batch]))

    buffer(consumer, F0, 1, 2)
    stale = take(consumer, 0, limit=1)
    if since == "a restart":
        consumer.hold()
    else:
        del consumer.partition_buffers[0]  # as on_partitions_revoked does
    current = None
    if since != "the partition has gone":
        buffer(consumer, F0, 1, 2)
        current = take(consumer, 0)
    run(answer(stale))
    assert consumer._new_offset(F0) is None
    if current is not None:
        assert (consumer.partition_buffers[0].busy, len(consumer.partition_buffers[0].out)) == (True, 1)
        run(answer(current))
        assert consumer._new_offset(F0) == 2
    assert topology.failure is None


def test_a_commit_is_repeated_until_the_brokers_confirm_it_and_never_backwards(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers
) -> None:
    async def flush() -> None:
        """Have nothing to flush."""

    topology.app.faust.producer.flush = flush  # type: ignore[method-assign]
    brokers.assigned, consumer._committable = {F0, O0, F1}, {F0: 8, O0: 0}
    brokers.refuses_commits = True
    assert not run(consumer.force_commit())
    brokers.refuses_commits = False
    assert run(consumer.force_commit()), "Faust alone takes the offset for committed"
    consumer._committable[F0] = 7
    assert not run(consumer.force_commit())
    assert brokers.calls == [("commit", {F0: 8, O0: 0})] * 2


# -- the producer --------------------------------------------------------------------------------------------------


class Batched:
    """Stands for a record batch."""

    def __init__(self, stamp: tuple[int, int, int] | None = None, records: int = 3) -> None:
        self.stamp = stamp
        self._records = records

    def sealed(self, *numbers: int) -> bytes:
        return repr(self.stamp or numbers).encode()

    def record_count(self) -> int:
        return self._records

    def size(self) -> int:
        return 0


@pytest.fixture
def producer(run: Run, topology: Topology) -> FaustProducer:
    async def make() -> FaustProducer:
        return cast("FaustProducer", topology.app.faust.producer_transport.create_producer())

    return cast("FaustProducer", run(make()))


@pytest.mark.parametrize("settings", [Settings(compression=name) for name in codecs.NUMBERS], ids=codecs.NUMBERS)
async def test_batch_is_packed_by_the_codec_of_the_settings(producer: FaustProducer, settings: Settings) -> None:
    producer._producer = producer._new_producer()
    batch = producer.batch()
    assert batch.extend([(b"k", b"again and again " * 100, 7, [])] * 3) == 3
    read = DefaultRecordBatch(batch.sealed(1, 0, 0))
    assert read.compression_type == codecs.NUMBERS[settings.compression]
    assert [(each.key, each.value, each.timestamp) for each in read] == [(b"k", b"again and again " * 100, 7)] * 3
    await producer._producer.stop()


def test_a_batch_compressed_before_its_stamp_is_known_has_the_same_bytes() -> None:
    def filled() -> RecordBatch:
        made = RecordBatch(1 << 20, codecs.NUMBERS["zstd"])
        made.extend([(b"k%d" % n, bytes(1000), 7, []) for n in range(MANY // 500)])
        return made

    early, late = filled(), filled()
    asyncio.run(early.compress())
    assert early.size() < late.size()
    early.stamp = late.stamp = 7, 3, 2**31 - 2
    assert early.sealed(-1, -1, -1) == late.sealed(-1, -1, -1)


@pytest.fixture
def kafka(run: Run, producer: FaustProducer) -> Iterator[Any]:
    """Give the producer a client of Kafka that is not started and has a producer id."""

    async def make() -> Any:
        made = producer._producer = producer._new_producer()
        made._txn_manager.set_pid_and_epoch(77, 5)
        return made

    made = run(make())
    yield made
    run(made.stop())


@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize(("bound", "given_up"), [(60.0, False), (0.5, True)])
def test_a_leader_that_waits_for_its_replicas_is_waited_for_but_not_for_ever(
    run: Run, producer: FaustProducer, monkeypatch: pytest.MonkeyPatch, bound: float, *, given_up: bool
) -> None:
    async def append(batches: dict[TopicPartition, bytes], waits: Callable[[], None]) -> dict[TopicPartition, int]:
        now = asyncio.get_running_loop().time
        end = now() + 1.5 * producer.request_timeout
        while now() < end:
            waits()
            await asyncio.sleep(0)
        return dict.fromkeys(batches, 3)

    monkeypatch.setattr(producer._appender, "append", append)
    monkeypatch.setattr(producing, "REPLICA_SECONDS", bound)
    producer.request_timeout = 1.0
    sending = producer.append([(cast("Any", Batched()), O, 3)])
    if given_up:
        with pytest.raises(TimeoutError, match="not acknowledged"):
            run(sending)
    else:
        assert run(sending) == [3]


@pytest.mark.usefixtures("kafka")
def test_numbers_of_records_go_on_from_zero_after_the_last_there_is(
    run: Run, producer: FaustProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    async def append(batches: dict[TopicPartition, bytes], _: object) -> dict[TopicPartition, int]:
        asked.extend(batches.values())
        return dict.fromkeys(batches, 0)

    monkeypatch.setattr(producer._appender, "append", append)
    producer._sequences[TopicPartition(O, 3)] = 2**31 - 2
    for _ in range(2):
        run(producer.append([(cast("Any", Batched()), O, 3)]))
    assert asked == [b"(77, 5, 2147483646)", b"(77, 5, 1)"]


@pytest.mark.usefixtures("kafka")
def test_append_gives_up_at_its_deadline_and_says_where(
    run: Run, producer: FaustProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> dict[TopicPartition, int]:
        await asyncio.get_running_loop().create_future()
        return {}

    monkeypatch.setattr(producer._appender, "append", silent)
    producer.request_timeout = 0.01
    producer._appender.refused = {TopicPartition("calibrated", 3): "it is gone"}
    with pytest.raises(TimeoutError, match=r"not acknowledged in 0\.01 s: calibrated/3 \(it is gone\), resolved/3"):
        run(producer.append([(cast("Any", Batched()), topic, 3) for topic in ("calibrated", "resolved")]))
