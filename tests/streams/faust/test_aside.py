"""A batch that takes long to unpack holds up no other partition: aiokafka's own fetcher, on a log that a test writes.

Unpacking in the thread waits for the test. Nothing here takes as long as a fetch may wait, unless somebody who is to be
woken is not; then the test fails by its time limit.
"""

import asyncio
import gc
import struct
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from streams.faust import batches, unpacking
from streams.faust.producing import RecordBatch
from streams.faust.unpacking import Aside, Fetches, RecordSet
from streams.kafka import codecs
from streams.kafka.codecs import NUMBERS
from streams.records.refused import Refused
from tests.streams.faust.test_unpacking import batch
from tests.streams.log import Log

A, B, C = (TopicPartition("forecasts", n) for n in range(3))
ZSTD = NUMBERS["zstd"]
LIMIT = 4 << 20
#: Too large to be unpacked at once, within the bound and beyond it.
LARGE, BOMB = bytes(2 << 20), bytes(LIMIT + 1)
#: Longest that a test may take, s, and how long a fetch waits for records: longer.
PATIENCE, FOR_EVER = 30.0, 3600.0


def control(codec: int = 0) -> bytes:
    """Return a batch as a broker writes one where a transaction was taken back; brokers do not pack it."""
    filled = RecordBatch(1000, codec)
    filled.extend([(b"\0\0\0\0", b"\0" * 6, 1000, [])])
    made = bytearray(filled.sealed(7, 1, 0))
    (attributes,) = struct.unpack_from(">h", made, 21)
    struct.pack_into(">h", made, 21, attributes | 0x30)
    struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
    return bytes(made)


class Gate:
    """Holds unpacking in the thread until a test opens it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: asyncio.Queue[int] = asyncio.Queue()
        self.at_once = self.most_at_once = 0
        self._open = threading.Semaphore(0)
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(batches, "unpacked", self._unpacked)

    def open(self, unpackings: int = 1) -> None:
        self._open.release(unpackings)

    def _unpacked(self, codec: int, data: Any, limit: int, before: int) -> memoryview:
        if threading.current_thread() is threading.main_thread():
            return codecs.unpacked(codec, data, limit, before)
        self._loop.call_soon_threadsafe(self.begun.put_nowait, len(data))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        assert self._open.acquire(timeout=PATIENCE)
        self.at_once -= 1
        return codecs.unpacked(codec, data, limit, before)


class World:
    """A fetcher of some partitions, and what it reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.gate, self.subscriptions = Log(), Gate(monkeypatch), SubscriptionState()
        self.fetcher = Fetcher(self.log, self.subscriptions, isolation_level="read_committed")
        self.fetcher._records = Fetches(lambda _: LIMIT, aside=Aside(self.fetcher))

    def assign(self, **positions: int) -> None:
        """Take up partitions, by their names, at offsets."""
        places = {globals()[name]: offset for name, offset in positions.items()}
        self.subscriptions.assign_from_user(set(places))
        for tp, offset in places.items():
            self.fetcher.seek_to(tp, offset)

    def position(self, tp: TopicPartition) -> int:
        return int(self.subscriptions.subscription.assignment.state_value(tp).position)

    async def fetched(self, timeout: float = FOR_EVER, records: int | None = None) -> dict[TopicPartition, list[Any]]:  # noqa: ASYNC109 - aiokafka's
        """Return what is handed over, by partition: of each record its offset, and its value if it is short."""
        found = await self.fetcher.fetched_records([], timeout, records)
        return {tp: [(each.offset, _shown(each.value)) for each in each_of] for tp, each_of in found.items()}

    async def begun(self) -> int:
        """Return once an unpacking has begun in the thread."""
        return await self.gate.begun.get()


def _shown(value: bytes) -> object:
    return "refused" if isinstance(value, Refused) else len(value) if len(value) > 100 else value


@asynccontextmanager
async def playing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Yield a world of its own to a test."""
    made = World(monkeypatch)
    try:
        async with asyncio.timeout(PATIENCE):
            yield made
    finally:
        made.gate.open(100)
        await made.fetcher.close()


@pytest.mark.parametrize("value", [LARGE, BOMB], ids=["within the bound", "beyond it"])
async def test_while_a_batch_is_unpacked_other_partitions_are_handed_over_and_fetched(
    monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    async with playing(monkeypatch) as w:
        w.log.append(A, batch(ZSTD, b"a0"), batch(ZSTD, value), batch(ZSTD, b"a2", b"a3"))
        w.log.append(B, batch(ZSTD, b"b0"))
        w.assign(A=0, B=0)
        assert await w.fetched() == {A: [(0, b"a0")], B: [(0, b"b0")]}
        await w.begun()
        for n in range(1, 4):
            w.log.append(B, batch(ZSTD, b"b"))
            assert await w.fetched() == {B: [(n, b"b")]}
        assert await w.fetched(timeout=0) == {}
        assert w.position(A) == 1
        handed_over = asyncio.create_task(w.fetched())
        w.gate.open()
        behind = [(1, "refused" if value is BOMB else len(value)), (2, b"a2"), (3, b"a3")]
        found = (await handed_over)[A]
        if value is LARGE:  # more than a portion
            found += (await w.fetched())[A]
        assert found == behind
        assert w.position(A) == 4


async def test_other_partitions_are_fetched_at_once_where_only_the_batch_came(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as w:
        w.fetcher._prefetch_backoff = FOR_EVER
        w.log.append(A, batch(ZSTD, BOMB))
        w.assign(A=0, B=0)
        handed_over = asyncio.create_task(w.fetched())
        await w.begun()
        w.log.append(B, batch(ZSTD, b"b0"))
        assert await handed_over == {B: [(0, b"b0")]}


async def test_a_seek_drops_what_is_being_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as w:
        w.log.append(A, batch(ZSTD, LARGE), batch(ZSTD, b"a1"), batch(ZSTD, b"a2"))
        w.assign(A=0)
        handed_over = asyncio.create_task(w.fetched())
        await w.begun()
        w.fetcher.seek_to(A, 2)
        assert await handed_over == {A: [(2, b"a2")]}
        w.fetcher.seek_to(A, 0)  # and back, while the first is still there
        handed_over = asyncio.create_task(w.fetched())
        w.gate.open(2)
        assert await handed_over == {A: [(0, len(LARGE))]}
        assert await w.fetched() == {A: [(1, b"a1"), (2, b"a2")]}
        assert w.position(A) == 3


async def test_partitions_that_leave_take_what_is_being_unpacked_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(monkeypatch) as w:
        w.log.append(A, batch(ZSTD, LARGE), batch(ZSTD, b"a1"))
        w.log.append(B, batch(ZSTD, b"b0"))
        w.assign(A=0, C=0)
        handed_over = asyncio.create_task(w.fetched(timeout=0.01))
        await w.begun()
        assert await handed_over == {}
        w.assign(B=0)
        assert await w.fetched() == {B: [(0, b"b0")]}
        w.gate.open()
        assert A not in w.fetcher._records
        w.assign(A=0, B=1)
        handed_over = asyncio.create_task(w.fetched())
        await w.begun()
        w.gate.open()
        assert await handed_over == {A: [(0, len(LARGE))]}


async def test_what_nobody_asks_for_any_more_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Any]] = []
    opened = batches.opened

    def noted(*args: Any) -> Any:
        found = opened(*args)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(batches, "opened", noted)
    async with playing(monkeypatch) as w:
        for tp in (A, B, C):
            w.log.append(tp, batch(ZSTD, LARGE))
        w.assign(A=0, B=0, C=0)
        assert await w.fetched(timeout=0.01) == {}
        await w.begun()
        gc.collect()
        gc.disable()
        try:
            w.fetcher.seek_to(A, 1)
            w.fetcher.seek_to(B, 1)
            w.fetcher.seek_to(C, 1)
            w.gate.open(3)
            await asyncio.wrap_future(Aside._thread.submit(lambda: None))  # behind all of them
            assert [each() for each in made] == [None] * len(made)
        finally:
            gc.enable()
        assert len(made) == 4, "one is unpacked that was begun, after each was tried at once"


async def test_marks_of_transactions_before_a_batch_are_passed_and_it_is_unpacked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as w:
        w.log.append(A, control(), control(ZSTD), batch(ZSTD, BOMB), control(), batch(ZSTD, b"a4"))
        w.assign(A=0)
        assert await w.fetched(timeout=0) == {}
        handed_over = asyncio.create_task(w.fetched())
        await w.begun()
        assert w.position(A) == 2
        w.gate.open()
        assert await handed_over == {A: [(2, "refused"), (4, b"a4")]}
        assert w.gate.begun.empty()


async def test_batches_of_several_partitions_are_unpacked_one_at_a_time_and_none_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with playing(monkeypatch) as w:
        for tp in (A, B, C):
            w.log.append(tp, batch(ZSTD, BOMB), batch(ZSTD, LARGE), batch(ZSTD, b"last"))
        w.assign(A=0, B=0, C=0)
        found: dict[TopicPartition, list[Any]] = {tp: [] for tp in (A, B, C)}
        while any(len(each) < 3 for each in found.values()):
            for tp, records in (await w.fetched(timeout=0.05)).items():  # long enough for a second one to begin
                found[tp] += records
            w.gate.open()
        assert list(found.values()) == [[(0, "refused"), (1, len(LARGE)), (2, b"last")]] * 3
        assert w.gate.most_at_once == 1


async def test_a_loop_that_has_ended_is_not_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates: list[Gate] = []
    w = World(monkeypatch)
    gates.append(w.gate)
    w.log.append(A, batch(ZSTD, BOMB))
    w.assign(A=0)
    assert await w.fetched(timeout=0.01) == {}
    await w.begun()
    await w.fetcher.close()
    gates[0].open()
    Aside._thread.submit(lambda: None).result(PATIENCE)
    assert not caplog.records


sizes = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4), max_size=6)


@given(sizes, st.integers(1, 4000), st.sampled_from(list(NUMBERS.values())))
def test_unpacked_aside_a_fetch_reads_as_unpacked_here(values: list[list[int]], limit: int, codec: int) -> None:
    data, base = b"", 0
    for each in values:
        data += batch(codec, *[bytes(n) for n in each], base=base)
        base += len(each)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "AT_ONCE", 200)
        patch.setattr(unpacking, "AT_ONCE_PACKED", 120)
        here, aside = RecordSet(data), RecordSet(data)
        here.limit = aside.limit = limit
        aside.aside = Aside._thread.submit
        assert _all(aside) == _all(here)


def _all(records: RecordSet) -> list[Any]:
    found = []
    while records.has_next():
        try:
            each = records.next_batch()
        except unpacking.Later:
            time.sleep(0)  # to the thread
            continue
        assert each.validate_crc()
        head = (each.base_offset, each.next_offset, each.producer_id, each.is_control_batch, each.is_transactional)
        found.append((head, [(r.offset, r.timestamp, r.key, r.value, type(r.value)) for r in each]))
    return found
