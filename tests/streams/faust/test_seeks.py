"""Where reading starts, and that no record is lost or doubled when a fetch and a seek cross."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
from faust.assignor.client_assignment import ClientAssignment
from faust.tables.recovery import RebalanceAgain
from faust.types import TP

from agents.topology import Topology
from state import kinds
from state.fence import Fence
from state.journal import NONE, Entry, Journal, Last, begun, read
from streams.config.in_force import OtherArithmeticError
from streams.config.settings import Settings
from streams.faust.assignor import Assignor
from streams.faust.inputs import DataLossError
from streams.faust.standbys import Standbys
from streams.faust.stores import DamagedStoreError
from streams.faust.transport import BatchConsumer, BatchTransport
from streams.records.merge import Batch
from tests.streams.brokers import C0, F0, F1, O0, O1, Brokers, Fetcher, Run, buffer
from tests.streams.fakes import Producer, record

# -- where to start ------------------------------------------------------------------------------------------------


LOST = [
    pytest.param(70, 70, 75, "5 records of forecasts/0 from offset 70", id="after a clean stop"),
    pytest.param(90, 70, 80, "10 records of forecasts/0 from offset 70", id="state from an older copy"),
    pytest.param(None, 70, 75, "5 records of forecasts/0 from offset 70", id="committed offset lost"),
    pytest.param(0, 0, 3, "3 records of forecasts/0 from offset 0", id="committed before the first record"),
]


@pytest.mark.parametrize(("committed", "fence", "earliest", "lost"), LOST)
@pytest.mark.parametrize("settings", [Settings(data_loss=each) for each in ("stop", "continue")], ids=["stop", "go on"])
def test_records_that_were_deleted_unread_are_passed_over_where_that_is_allowed(
    run: Run,
    topology: Topology,
    consumer: BatchConsumer,
    brokers: Brokers,
    caplog: pytest.LogCaptureFixture,
    committed: int | None,
    fence: int,
    earliest: int,
    lost: str,
) -> None:
    at(topology, brokers, committed, fence, earliest)
    if topology.settings.data_loss == "stop":
        with pytest.raises(DataLossError, match=f"{lost}.*TRUEUP_DATA_LOSS=continue"):
            run(consumer.perform_seek())
    else:
        run(consumer.perform_seek())
        assert brokers.calls[0] == ("seek", {F0: earliest})
        assert f"{lost} were deleted unread; it goes on without them" in caplog.text


ENTRIES = [
    Entry(n, (f, 0), (f + 10, 0), f + 10, 0, (0, 0, 0), bytes(16), (Last(f + 9, 7), NONE), bytes(10))
    for n, f in enumerate((40, 50), start=3)
]


@pytest.mark.parametrize("settings", [Settings(data_loss="continue")], ids=["go on"])
def test_what_was_folded_and_cannot_be_again_is_left_out_for_good(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers
) -> None:
    """Its answers stand. A new entry must not be taken for the beginning of those that were left out."""
    at(topology, brokers, 60, 40, 45, entries=ENTRIES)
    run(consumer.perform_seek())
    assert brokers.calls == [("seek", {F0: 60})]
    assert not consumer.partition_buffers[0].journal
    found = read(topology.table.store.reader(0))
    assert (found.number, found.entries) == (5, [])
    assert Fence.decode(topology.table.store.read(0, kinds.FENCE.key()) or b"").next == [60, 0]


@pytest.mark.parametrize("settings", [Settings(data_loss="continue")], ids=["go on"])
@pytest.mark.parametrize(
    ("committed", "fence", "earliest", "end", "said"),
    [
        (5, 70, 0, 50, "forecasts/0 has applied offset 69, but the topic ends at 50"),
        (5, 0, 9, 90, "state is gone: records of forecasts before 9 are deleted"),
        (9, 0, 9, 90, "state is gone: records of forecasts before 9 are deleted"),
        (70, 0, 9, 90, "state is gone: records of forecasts before 9 are deleted"),
    ],
)
def test_what_cannot_be_folded_to_is_refused_in_any_case(
    run: Run,
    topology: Topology,
    consumer: BatchConsumer,
    brokers: Brokers,
    committed: int,
    fence: int,
    earliest: int,
    end: int,
    said: str,
) -> None:
    at(topology, brokers, committed, fence, earliest, end)
    brokers.ends[TP(topology.settings.journal, 0)] = 1
    with pytest.raises(DataLossError, match=said):
        run(consumer.perform_seek())


def at(
    topology: Topology,
    brokers: Brokers,
    committed: int | None,
    fence: int,
    earliest: int,
    end: int = 90,
    entries: Sequence[Entry] = (),
) -> None:
    """Let a partition be assigned whose last checkpoint has so much, and of which so much was folded since."""
    brokers.assigned, brokers.first, brokers.ends = {F0}, {F0: earliest}, {F0: end}
    if committed is not None:
        brokers.commits = {F0: committed}
    if fence:
        write_fence(topology, 0, fence, 0)
        cast("Producer", topology.app.producer).ends[C0.topic, 0] = 1
    if entries:
        config = topology.processor._terms.config
        rows = [(each.key, each._replace(config=config).encode()) for each in entries]
        topology.table.store.write(0, [begun(entries[0]._replace(last=(NONE, NONE)), (0, 0, 0)), *rows], 3)
        cast("Producer", topology.app.producer).ends[C0.topic, 0] = 4


# -- a position that is not there any more -----------------------------------------------------------------------


async def fetched(consumer: BatchConsumer, topology: Topology) -> list[int]:
    """Fetch until the topic's last record is buffered or the process has ended; return the offsets that are."""
    async with fetching(consumer, F0):
        while topology.failure is None and consumer._handed[F0] < 10:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0)
    return offsets(consumer, F0) if consumer.partition_buffers else []


def overtake(brokers: Brokers, consumer: BatchConsumer) -> None:
    """Let retention delete what lies between the worker and offset 7."""
    consumer._buffer_of(0)
    brokers.assigned = {F0}
    brokers.append(F0, 10)
    brokers.positions[F0] = consumer._handed[F0] = 2
    brokers.first[F0] = 7


@pytest.mark.parametrize("settings", [Settings(data_loss=each) for each in ("stop", "continue")], ids=["stop", "go on"])
def test_a_topic_that_ends_before_the_position_ends_the_worker(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers
) -> None:
    overtake(brokers, consumer)
    brokers.first[F0], brokers.positions[F0], consumer._handed[F0] = 0, 11, 9
    assert run(fetched(consumer, topology)) == []
    assert isinstance(topology.failure, DataLossError)
    assert "was read up to offset 11, but it ends at 10 now" in str(topology.failure)


def test_a_position_that_a_new_leader_lacked_for_a_moment_is_read_on_from(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers
) -> None:
    overtake(brokers, consumer)
    brokers.positions[F0] = 10
    run(consumer._out_of_range({F0: 10}))
    assert topology.failure is None
    assert brokers.positions[F0] == 10


@pytest.mark.parametrize("when", ["before the brokers are asked", "meanwhile"])
def test_an_error_of_a_position_that_was_left_is_nothing(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    overtake(brokers, consumer)
    ask = consumer.highwaters

    async def sought_elsewhere(*tps: TP) -> Mapping[TP, int]:
        brokers.positions[F0] = 8
        return await ask(*tps)

    if when == "meanwhile":
        monkeypatch.setattr(consumer, "highwaters", sought_elsewhere)
    else:
        brokers.positions[F0] = 8
    run(consumer._out_of_range({F0: 2}))
    assert topology.failure is None
    assert brokers.positions[F0] == 8


def test_a_record_that_was_applied_and_is_deleted_before_it_is_read_once_more_is_not_lost(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers
) -> None:
    overtake(brokers, consumer)
    brokers.positions[F0] = consumer._handed[F0] = 6
    consumer.partition_buffers[0].begin((7, 0), Journal(0, (Last(1, 2), NONE), []))
    assert run(fetched(consumer, topology)) == [7, 8, 9]
    assert topology.failure is None


def write_fence(topology: Topology, partition: int, forecasts: int, outcomes: int) -> None:
    row = Fence([forecasts, outcomes]).encode()
    topology.table.store.write(partition, [(kinds.FENCE.key(), row)], 0)


def test_perform_seek_forgets_what_was_buffered_in_flight_and_acknowledged(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers
) -> None:
    brokers.assigned, brokers.commits, brokers.ends = {F0, O0}, {F0: 0, O0: 0}, {F0: 3, O0: 0}
    buffer(consumer, F0, 1, 2, 3)
    stale = consumer.partition_buffers[0].take(1, 1000, consumer, 0)
    assert stale is not None
    message = consumer._message([stale])
    consumer._committable = {F0: 1}
    consumer._confirmed = {F0: 5}
    consumer._throttled = {F0}
    run(consumer.perform_seek())
    assert not consumer.flow_active, "Faust resumes the flow, after it has cleared its queues"
    assert [len(each) for each in consumer.partition_buffers[0].buffers] == [0, 0]
    assert consumer._confirmed == {F0: 0, O0: 0}
    assert brokers.calls[1:] == [("throttle", ([], [F0]))]
    assert consumer._throttled == set()
    consumer.ack(message)
    assert list(consumer._filter_tps_with_pending_acks()) == []
    assert topology.failure is None


def test_partitions_that_are_revoked_while_they_are_taken_up_are_let_go(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their gauges and their claims would stay, and so would the database of one that another worker serves by now."""
    brokers.assigned = {F0, O0, F1, O1}
    applied = topology.applied

    async def nothing(_: set[TP]) -> None: ...

    async def interrupted(partition: int, *_: object) -> tuple[tuple[int, int], Journal]:
        fence = await applied(partition)
        if partition == 0:
            consumer._on_partitions_revoked = nothing
            await consumer.on_partitions_revoked({F0, O0, F1, O1, C0})
        return fence

    async def applied_later(partition: int, *_: object) -> tuple[tuple[int, int], Journal]:
        await consumer.on_partitions_revoked({F0, O0, F1, O1, C0})  # while this one waits
        return await applied(partition)

    consumer._on_partitions_revoked = nothing
    for taken_up in (interrupted, applied_later):
        monkeypatch.setattr(topology, "applied", taken_up)
        with pytest.raises(RebalanceAgain):
            run(consumer.perform_seek())
        assert topology.gauges.partitions() == []
        assert {0, 1}.isdisjoint(topology.table.changelog.claims())
    assert topology.failure is None


def test_partitions_that_are_taken_up_while_they_are_being_revoked_are_let_go(
    run: Run, topology: Topology, consumer: BatchConsumer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revocation waits for what is in flight; a recovery that comes to its end meanwhile takes them up."""
    brokers.assigned = {F0, O0}
    applied, waiting, revoked = topology.applied, asyncio.Event(), asyncio.Event()

    async def in_flight(_: set[TP]) -> None:
        await waiting.wait()

    async def late(partition: int, *_: object) -> tuple[tuple[int, int], Journal]:
        waiting.set()
        await revoked.wait()
        raise KeyError(partition)  # its claim is forgotten

    async def revoke() -> None:
        await consumer.on_partitions_revoked({F0, O0, C0})
        revoked.set()

    async def scenario() -> None:
        await applied(0)
        revoking = asyncio.create_task(revoke())
        await asyncio.sleep(0)
        with pytest.raises(RebalanceAgain):
            await consumer.perform_seek()
        await revoking

    consumer._on_partitions_revoked = in_flight
    monkeypatch.setattr(topology, "applied", late)
    run(scenario())
    assert topology.failure is None


def test_copies_that_cannot_be_let_go_of_end_the_worker(
    run: Run, topology: Topology, consumer: BatchConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client only logs what a listener raises: the worker would hold its partitions and serve none for ever."""

    async def follow(*_: object) -> None:
        raise RuntimeError("Event loop is closed")

    copies = Copies()
    monkeypatch.setattr(copies, "follow", follow)
    cast("BatchTransport", consumer.transport).standbys = cast("Standbys", copies)
    with pytest.raises(RuntimeError, match="closed"):
        run(consumer.on_partitions_assigned({F0, O0, C0}))
    assert isinstance(topology.failure, RuntimeError)


async def test_damage_that_a_batch_finds_voids_what_was_handed_out_and_has_the_partitions_shared_out_anew(
    topology: Topology, consumer: BatchConsumer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = DamagedStoreError(1, "the rows of partition 1 are damaged")
    assignor = cast("Assignor", consumer.app.assignor)

    async def fold(_: object) -> None:
        raise damaged

    monkeypatch.setattr(topology.processor, "fold", fold)
    buffer(consumer, F0, 1)
    buffer(consumer, F1, 1)
    consumer._committable = {F0: 1}
    consumer._ours = True
    first, second = taken(consumer, 0), taken(consumer, 1)
    done = await topology.process([second], lambda: None)
    await topology.process([first], lambda: None)
    await asyncio.sleep(0)
    assert (done, consumer.holds(first) or consumer.holds(second)) == (True, False), (
        "it is acknowledged to Faust, and commits nothing"
    )
    assert consumer._committable == {F0: 1}, "what was answered before is"
    assert [name for name, _ in brokers.calls].count("rejoin") == 1
    assert assignor.lost == {1}
    assert not consumer.flow_active
    assert topology.failure is None


def taken(consumer: BatchConsumer, partition: int) -> Batch:
    batch = consumer.partition_buffers[partition].take(10, 1000, consumer, 0.0, lambda: 0.0)
    assert batch is not None
    return batch


async def taken_up(consumer: BatchConsumer, _: Topology) -> None:
    with pytest.raises(RebalanceAgain):
        await consumer.perform_seek()


async def restored(consumer: BatchConsumer, topology: Topology) -> None:
    await consumer._restore(C0, [record(C0.topic, 0, 1, 1)])
    with pytest.raises(RebalanceAgain):
        await consumer._while_ours(topology.renew())


async def sought_back(consumer: BatchConsumer, _: Topology) -> None:
    consumer._dropped = {C0}
    await consumer._seek_back()


@pytest.mark.parametrize("meeting", [taken_up, restored, sought_back], ids=lambda each: each.__name__)
def test_damage_that_is_found_while_nothing_is_folded_has_the_partitions_shared_out_anew_and_ends_nothing(
    run: Run,
    topology: Topology,
    consumer: BatchConsumer,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    meeting: Callable[[BatchConsumer, Topology], Awaitable[None]],
) -> None:
    def damaged(*_: object) -> None:
        raise DamagedStoreError(0, "the rows of partition 0 are damaged")

    async def found(*_: object) -> None:
        damaged()

    async def scenario() -> None:
        consumer._ours = True
        await meeting(consumer, topology)
        await asyncio.sleep(0)

    brokers.assigned = {F0, O0, C0}
    for name in ("applied", "renew"):
        monkeypatch.setattr(topology, name, found)
    monkeypatch.setattr(topology, "restore", damaged)
    monkeypatch.setattr(topology.table, "following", damaged)
    run(scenario())
    assert [name for name, _ in brokers.calls] == ["rejoin"], "once"
    assert cast("Assignor", consumer.app.assignor).lost == {0}
    assert topology.failure is None


async def test_what_another_build_must_take_up_is_left_to_it_and_ends_nothing(
    topology: Topology,
    consumer: BatchConsumer,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def applied(partition: int, *_: object) -> tuple[int, int]:
        raise OtherArithmeticError("abc", 7 + partition)

    brokers.assigned = {F0, O0, F1, O1}
    monkeypatch.setattr(topology, "applied", applied)
    consumer._ours = True
    with pytest.raises(RebalanceAgain):
        await consumer.perform_seek()
    assert topology.failure is None
    assert cast("Assignor", consumer.app.assignor).needs == {0: 7, 1: 8}
    assert "partition 0, 1 is not taken up: what was answered after the last checkpoint has version 7, 8" in caplog.text


# -- copies --------------------------------------------------------------------------------------------------------


class Copies:
    """Stands for `Standbys`."""

    def __init__(self) -> None:
        self.told: list[tuple[set[int], set[int]]] = []
        self.there: list[int] = []

    async def follow(self, partitions: Iterable[int], served: Iterable[int]) -> None:
        self.told.append((set(partitions), set(served)))

    def whole(self) -> list[int]:
        return self.there


def test_copies_are_let_go_before_their_partitions_are_taken_up_and_asked_for_once_when_whole(
    run: Run, consumer: BatchConsumer, brokers: Brokers
) -> None:
    transport = cast("BatchTransport", consumer.transport)
    copies = Copies()
    transport.standbys = cast("Standbys", copies)
    assignor = cast("Assignor", consumer.app.assignor)
    known: list[list[tuple[set[int], set[int]]]] = []

    async def note(*_: object) -> None:
        known.append(list(copies.told))

    async def scenario() -> None:
        consumer._on_partitions_assigned = note
        assignor._assignment = ClientAssignment(
            actives={}, standbys={assignor._copies: [1, 2, 3], assignor._behind: [2, 3]}
        )
        await consumer.on_partitions_assigned({F0, O0, C0, F1, O1})
        await consumer._ask_for_awaited()
        copies.there = [2]
        await consumer._ask_for_awaited()
        assert not brokers.calls
        copies.there = [2, 3]
        for _ in range(3):
            await consumer._ask_for_awaited()

    run(scenario())
    assert known == [[({2, 3}, {0, 1})]], "of what is served there is no copy"
    assert brokers.calls == [("rejoin", None)]


# -- a fetch and a seek --------------------------------------------------------------------------------------------


@asynccontextmanager
async def fetching(consumer: BatchConsumer, *active: TP) -> AsyncIterator[None]:
    """Drain what the brokers hold while the context lasts."""
    fetcher = Fetcher()
    consumer._active_partitions = set(active)
    task = asyncio.create_task(consumer._drain_messages(cast("Any", fetcher)))
    yield
    fetcher.should_stop = True
    consumer.resume_flow()
    await task


async def test_a_stop_that_a_seek_does_not_tell_of_ends_the_fetching(
    consumer: BatchConsumer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until partitions are taken up nothing else would end it, and a worker is killed after 45 s of stopping."""
    begun, fetcher = asyncio.Event(), Fetcher()

    async def seek(_: Mapping[TP, int]) -> None:
        begun.set()
        with suppress(asyncio.CancelledError):  # as asyncio.wait_for does, if what it waits for has just ended
            await asyncio.Event().wait()

    monkeypatch.setattr(consumer._thread, "seek_wait", seek)
    brokers.assigned, consumer._dropped, consumer._handed = {F0}, {F0}, {F0: 3}
    consumer.stop_flow()
    fetching = asyncio.create_task(consumer._drain_messages(cast("Any", fetcher)))
    await begun.wait()
    fetcher.should_stop = True
    fetching.cancel()
    done, _ = await asyncio.wait([fetching], timeout=60)
    assert done


def offsets(consumer: BatchConsumer, tp: TP) -> list[int]:
    """Return the offsets that are buffered, in order."""
    partition_buffer = consumer.partition_buffers[tp.partition]
    return [each.offset for each in partition_buffer.buffers[partition_buffer.sources.index(tp)]]


async def test_rows_are_not_asked_how_far_they_reach_while_they_are_vetted(
    topology: Topology, consumer: BatchConsumer, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may be setting them aside: opened here, they would be moved away while they are in use."""
    brokers.assigned = {C0}
    consumer._dropped = {C0}
    begun, done = asyncio.Event(), asyncio.Event()

    async def vet() -> None:
        begun.set()
        await done.wait()

    consumer._ours = True
    claims = asyncio.create_task(consumer._while_ours(vet()))
    await begun.wait()
    monkeypatch.setattr(topology.table, "following", lambda _: pytest.fail("asked while vetted"))
    await consumer._seek_back()
    done.set()
    await claims
    monkeypatch.setattr(topology.table, "following", lambda _: 3)
    await asyncio.sleep(0)
    await consumer._seek_back()
    assert brokers.calls == [("seek", {C0: 3})]
