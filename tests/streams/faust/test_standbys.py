"""Copies of partitions that others serve: the real thread and real RocksDB, and brokers that are lists."""

import asyncio
import logging
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError

from agents.topology import Topology
from state import kinds
from streams.config.settings import Settings
from streams.faust import copies
from streams.faust import standbys as module
from streams.faust.contact import Contact
from streams.faust.standbys import Standbys
from streams.faust.stores import ORIGIN, RocksStore
from streams.faust.unpacking import Head
from streams.kafka.metadata import Metadata
from streams.kafka.provenance import Described, Part
from streams.records.merge import KafkaRecord
from tests.streams.brokers import C
from tests.streams.fakes import record, wire

DAY = 86_400_000
NOW = 1_700_000_000_000
OURS = Described("trueup", Metadata("cluster", "changelog", "topic", 16), 2 * DAY)
WRITER = (7, 0)


class Usage(NamedTuple):
    total: int
    free: int


class Log:
    """The changelog as the brokers have it: by partition, records and who wrote each."""

    def __init__(self) -> None:
        self.held: dict[int, list[tuple[KafkaRecord, tuple[int, int]]]] = {n: [] for n in range(16)}
        self.begins = dict.fromkeys(range(16), 0)
        self.described = OURS
        self.down = False
        #: Consumers that were made and have not been stopped.
        self.open = 0
        #: Every offset that was handed over, by partition.
        self.read: dict[int, list[int]] = {n: [] for n in range(16)}

    def append(self, partition: int, *rows: tuple[bytes, bytes | None], writer: tuple[int, int] = WRITER) -> None:
        log = self.held[partition]
        for key, value in rows:
            log.append((record(C, partition, len(log), NOW, key, value), writer))

    def claim(self, partition: int, writer: tuple[int, int]) -> None:
        self.append(partition, (kinds.CLAIM.key(), b"claim"), writer=writer)


class Consumer:
    """Stands for aiokafka's."""

    log: Log

    def __init__(self, **_: Any) -> None:
        self._client = self
        self._fetcher = SimpleNamespace(_records=None)
        self._positions: dict[TopicPartition, int] = {}
        self.log.open += 1

    async def start(self) -> None:
        if self.log.down:
            raise KafkaConnectionError("nobody answers")

    async def stop(self) -> None:
        self.log.open -= 1

    async def close(self) -> None: ...

    async def beginning_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.log.begins[place.partition] for place in places}

    async def end_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: len(self.log.held[place.partition]) for place in places}

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._positions = dict.fromkeys(places, -1)

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._positions[place] = offset

    def highwater(self, place: TopicPartition) -> int:
        return len(self.log.held[place.partition])

    async def getmany(self, timeout_ms: int) -> dict[TopicPartition, list[KafkaRecord]]:
        await asyncio.sleep(min(timeout_ms / 1000, 0.005))
        if self.log.down:
            raise KafkaConnectionError("nobody answers")
        found = {}
        for place, position in self._positions.items():
            log, begin = self.log.held[place.partition], self.log.begins[place.partition]
            if not begin <= position <= len(log):
                raise OffsetOutOfRangeError({place: position})
            if taken := log[position : position + 2]:
                found[place] = [each for each, _ in taken]
                self._fetcher._records.heads[place.partition] += [
                    Head(each.offset, each.offset + 1, writer) for each, writer in taken
                ]
                self._positions[place] += len(taken)
                self.log.read[place.partition] += [each.offset for each, _ in taken]
        return found


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()

    async def describe(*_: object) -> Described:
        return made.described

    monkeypatch.setattr(copies, "AIOKafkaConsumer", type("Consumer", (Consumer,), {"log": made}))
    monkeypatch.setattr(copies, "hasten", lambda *_: None)
    monkeypatch.setattr("streams.kafka.provenance.describe", describe)
    monkeypatch.setattr(copies, "now", lambda: NOW)
    monkeypatch.setattr("streams.faust.standbys.now", lambda: NOW)
    monkeypatch.setattr("streams.faust.state_table.now", lambda: NOW)
    for name in ("LOOK_SECONDS", "MISSING_SECONDS", "PAUSE_SECONDS"):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(copies, "FETCH_SECONDS", 0.01)
    return made


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    (tmp_path / "trueup").mkdir()
    return wire(tmp_path)


@asynccontextmanager
async def following(
    topology: Topology, usage: Callable[[Path], Any] = shutil.disk_usage
) -> AsyncIterator[tuple[Standbys, RocksStore]]:
    """Let copies be kept; yield what keeps them and the table's store, which opens them afterwards."""
    store = topology.table.store
    assert isinstance(store, RocksStore)
    settings = Settings(data_dir=topology.settings.data_dir, standbys=1)
    made = Standbys(settings, Contact(settings.brokers), topology.table.rocks(), store.close, usage)
    try:
        async with asyncio.timeout(60):
            yield made, store
    finally:
        await made.stop()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the thread tells nobody
        await asyncio.sleep(0.005)


def lags(standbys: Standbys) -> dict[int, int | None]:
    return {each.partition: each.lag for each in standbys.look()}


async def copied(standbys: Standbys, rows: int) -> None:
    """Follow partition 0 until its copy is whole, after so many rows."""
    await standbys.follow([0], [])
    await until(lambda: lags(standbys) == {0: 0} and standbys.rows == rows)


def aside(topology: Topology, what: str) -> list[Path]:
    return list(topology.settings.data_dir.glob(f"*/*/tables/*.{what}"))  # not into what is renamed meanwhile


async def test_a_copy_follows_and_is_taken_over_where_it_stands(topology: Topology, log: Log) -> None:
    log.append(0, (b"a", b"1"), (b"b", b"1"), (b"a", None))
    async with following(topology) as (standbys, store):
        await copied(standbys, 3)
        log.append(0, (b"b", b"2"), (b"c", b"3"))
        await until(lambda: standbys.rows == 5)
        await standbys.follow([], [0])
        assert not standbys.look()
        assert (store.read(0, b"a"), store.read(0, b"b"), store.read(0, b"c")) == (None, b"2", b"3")
        assert (store.offset(0), store.as_of(0)) == (4, NOW)
        assert not store.vet(0, Part(OURS.origin, NOW, 5)), "it is taken for what it is"
        store.close(0)
        await standbys.follow([0], [])
        log.append(0, (b"d", b"4"))
        await until(lambda: standbys.rows == 6)
    assert log.read[0] == [0, 1, 2, 3, 4, 5], "nothing was read twice"
    assert store.read(0, b"d") == b"4"


async def test_at_the_start_what_was_up_to_date_lately_or_lacks_little_counts_as_whole(
    topology: Topology, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a file was written just now: a database that is only opened writes some."""
    monkeypatch.setattr(copies, "NEAR", 5)
    store, hour = topology.table.rocks(), 3_600_000
    for partition, as_of, lacks in ((2, NOW - hour, 6), (3, NOW - hour - 1, 6), (5, NOW - hour - 1, 5)):
        store.write(partition, [(b"a", b"1")], 0, as_of)
        store._db_for_partition(partition).put(ORIGIN, OURS.origin)
        store.close(partition)
        log.append(partition, *[(b"a", b"1")] * (1 + lacks))
    log.append(0, (b"a", b"1"))

    async with following(topology) as (standbys, _):
        await standbys.examine()
        assert standbys.whole() == [2, 5]
        log.down = True
        await standbys.examine()
        assert standbys.whole() == [2], "nobody says what the others lack"
        log.down = False
        await standbys.follow([0], [])
        await until(lambda: standbys.whole() == [0])


async def test_a_database_that_is_still_open_where_it_was_served_is_let_go(topology: Topology, log: Log) -> None:
    async with following(topology) as (standbys, store):
        store.write(0, [(b"a", b"1")], 0, NOW)
        store.vet(0, Part(OURS.origin, NOW, 1))
        log.append(0, (b"a", b"1"), (b"b", b"2"))
        await standbys.follow([0], [])
        await until(lambda: lags(standbys) == {0: 0} and standbys.rows > 0)
        assert 0 not in store._dbs


async def test_what_is_served_is_not_let_go_for_a_copy_of_before(topology: Topology) -> None:
    async with following(topology) as (standbys, store):
        await standbys.follow([1], [0])
        store.write(0, [(b"a", b"1")], 0, NOW)
        standbys._let_go(0)
        assert 0 in store._dbs


def left(topology: Topology, offset: int, origin: Described = OURS, as_of: int = NOW, manifest: bytes = b"") -> None:
    """Leave rows that reach to ``offset`` on the disk."""
    store = topology.table.store
    store.write(0, [(b"a", b"wrong")], offset, as_of)
    assert isinstance(store, RocksStore)
    store._db_for_partition(0).put(ORIGIN, origin.origin)
    store.close(0)
    if manifest:
        (Path(store.partition_path(0)) / "CURRENT").write_bytes(manifest)


UNFIT: dict[str, dict[str, Any]] = {
    "foreign": {"offset": 1, "origin": OURS._replace(topic=OURS.topic._replace(id="another"))},
    "ahead": {"offset": 9},
    "old": {"offset": 1, "as_of": NOW - 2 * DAY},
    "damaged": {"offset": 1, "manifest": b"MANIFEST-999999\n"},
}


@pytest.mark.parametrize("what", UNFIT)
async def test_an_unfit_disk_is_set_aside_and_copied_anew(topology: Topology, log: Log, what: str) -> None:
    left(topology, **UNFIT[what])
    log.append(0, (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    async with following(topology) as (standbys, store):
        await copied(standbys, 3)
    assert (store.read(0, b"a"), store.read(0, b"b")) == (None, b"1")
    assert aside(topology, what)


@pytest.mark.parametrize("what", UNFIT)
async def test_an_unfit_disk_is_not_told_of_when_the_worker_joins(
    topology: Topology, log: Log, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Else its partition would come here and be restored, where another worker has a copy."""
    left(topology, **UNFIT[what])
    store = topology.table.rocks()
    store.write(1, [(b"a", b"1")], 1, NOW)
    store._db_for_partition(1).put(ORIGIN, OURS.origin)
    store.close(1)
    for partition in (0, 1):
        log.append(partition, (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    async with following(topology) as (standbys, _):
        log.down = True
        await standbys.examine()
        assert standbys.whole() == ([0, 1] if what in ("foreign", "ahead") else [1]), "the disk knows no more"
        log.down = False
        await standbys.examine()
        assert standbys.whole() == [1]
        await standbys.follow([0], [1])
        assert 1 not in standbys.store._dbs, "who serves it opens it"
        await until(lambda: standbys.whole() == [0])
    assert "partitions [0] on this disk cannot be used" in caplog.text


async def test_a_disk_of_before_what_the_changelog_still_has_is_set_aside(topology: Topology, log: Log) -> None:
    left(topology, 1)
    log.append(0, *[(b"k%d" % n, b"1") for n in range(6)])
    log.begins[0] = 4
    async with following(topology) as (standbys, store):
        await copied(standbys, 2)
    assert (store.read(0, b"a"), store.read(0, b"k5"), log.read[0]) == (None, b"1", [4, 5])
    assert aside(topology, "old")


async def test_retention_that_overtakes_a_copy_makes_it_anew(topology: Topology, log: Log) -> None:
    """While it is followed: the brokers have nothing at the place where it goes on."""
    log.append(0, (b"a", b"1"), (b"b", b"1"))
    async with following(topology) as (standbys, store):
        await copied(standbys, 2)
        log.down = True
        log.append(0, *[(b"k%d" % n, b"1") for n in range(4)])
        log.begins[0] = 4
        log.down = False
        await until(lambda: lags(standbys) == {0: 0} and standbys.rows == 4)
    assert (store.read(0, b"a"), store.read(0, b"k3")) == (None, b"1"), "whether it was deleted nobody knows"


async def test_a_changelog_that_lost_its_tail_under_a_copy_makes_it_anew(topology: Topology, log: Log) -> None:
    log.claim(0, WRITER)
    log.append(0, (b"a", b"1"), (b"lost", b"1"), (b"lost", b"2"))
    async with following(topology) as (standbys, store):
        await copied(standbys, 4)
        del log.held[0][2:]
        await until(lambda: bool(aside(topology, "ahead")))
        log.claim(0, (7, 1))
        await until(lambda: lags(standbys) == {0: 0} and standbys.rows == 7)
    assert (store.read(0, b"a"), store.read(0, b"lost")) == (b"1", None)


async def test_a_lost_tail_that_was_filled_before_anybody_looked_is_noticed_by_its_claim(
    topology: Topology, log: Log
) -> None:
    """The end of the changelog is where the copy expects it, and beyond: only the claim in the hole tells."""
    log.claim(0, WRITER)
    log.append(0, (b"a", b"1"), (b"lost", b"1"), (b"lost", b"2"))
    async with following(topology) as (standbys, store):
        await copied(standbys, 4)
        del log.held[0][2:]
        log.claim(0, (7, 1))
        log.append(0, (b"b", b"1"), (b"c", b"1"), (b"d", b"1"), writer=(7, 1))
        await until(lambda: bool(aside(topology, "ahead")))
        await until(lambda: lags(standbys) == {0: 0})
    assert [store.read(0, key) for key in (b"a", b"b", b"d", b"lost")] == [b"1", b"1", b"1", None]


async def test_claims_that_are_seen_or_were_compacted_change_nothing(topology: Topology, log: Log) -> None:
    log.append(0, (b"a", b"1"), writer=(7, 0))
    log.append(0, (b"b", b"1"), writer=(7, 2))  # the claim of 7, 2 is compacted
    async with following(topology) as (standbys, store):
        await copied(standbys, 2)
        log.claim(0, (7, 3))
        log.append(0, (b"c", b"1"), writer=(7, 3))
        await until(lambda: standbys.rows == 4)
    assert store.read(0, b"c") == b"1"
    assert not aside(topology, "ahead")


async def test_a_consumer_that_cancels_itself_ends_no_copies(
    topology: Topology, log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Aiokafka's does, when it is stopped while it waits for a broker that is away."""
    fetched, times = Consumer.getmany, []

    async def getmany(consumer: Consumer, timeout_ms: int) -> dict[TopicPartition, list[KafkaRecord]]:
        times.append(1)
        if len(times) == 5:
            raise asyncio.CancelledError
        return await fetched(consumer, timeout_ms)

    log.append(0, (b"a", b"1"))
    caplog.set_level(logging.WARNING, "trueup")
    async with following(topology) as (standbys, _):
        monkeypatch.setattr(f"{copies.__name__}.AIOKafkaConsumer.getmany", getmany)
        await standbys.follow([0], [])
        await until(lambda: "delayed: CancelledError" in caplog.text)
        log.append(0, (b"b", b"2"))
        await until(lambda: lags(standbys) == {0: 0} and standbys.rows == 2)


async def test_a_consumer_that_swallows_the_end_holds_up_no_stop(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aiokafka's does, when it is cancelled while it ends its own tasks."""
    waits = threading.Event()

    async def getmany(_: Consumer, timeout_ms: int) -> dict[TopicPartition, list[KafkaRecord]]:  # noqa: ARG001
        waits.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return {}

    async with following(topology) as (standbys, _):
        monkeypatch.setattr(f"{copies.__name__}.AIOKafkaConsumer.getmany", getmany)
        await standbys.follow([0], [])
        await until(waits.is_set)
        await standbys.stop()
        assert standbys._thread is None


class Damaged:
    """A database in which RocksDB finds nothing but damage."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def get(self, _: bytes) -> bytes:
        raise Exception("Corruption: block checksum mismatch")  # noqa: TRY002 - as RocksDB's binding does

    def close(self) -> None:
        self._db.close()


async def test_a_copy_in_which_damage_is_found_while_it_is_kept_is_made_anew(topology: Topology, log: Log) -> None:
    log.append(0, (b"a", b"1"), (b"b", b"2"))
    async with following(topology) as (standbys, store):
        await copied(standbys, 2)
        dbs = cast("Any", standbys.store._dbs)
        dbs[0] = Damaged(dbs[0])
        log.append(0, (b"c", b"3"))
        await until(lambda: lags(standbys) == {0: 0} and standbys.rows >= 5)
    assert [store.read(0, key) for key in (b"a", b"b", b"c")] == [b"1", b"2", b"3"]
    assert aside(topology, "damaged")


async def test_brokers_that_are_down_are_waited_for_and_told_once(
    topology: Topology, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(0, (b"a", b"1"))
    log.down = True
    async with following(topology) as (standbys, _):
        await standbys.follow([0], [])
        await until(lambda: "nobody answers" in caplog.text)
        await asyncio.sleep(0.1)
        assert (standbys.look(), standbys.missing) == ([], 1)
        log.down = False
        await until(lambda: lags(standbys) == {0: 0} and standbys.rows == 1)
    assert caplog.text.count("nobody answers") == 1
    assert log.open == 0, "nor is a consumer left open that could not be started"


async def test_copies_give_way_before_the_disk_is_full_and_come_back(
    topology: Topology, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """First what nobody needs here, then the largest copy; what is served is never touched."""
    for n, rows in ((0, 3), (1, 400)):
        log.append(n, *[(b"k%d" % each, bytes(1000)) for each in range(rows)])
    disk = Usage(1 << 30, 1 << 30)
    full = Usage(1 << 30, int((1 << 30) * 0.05) - 1)
    others = topology.table.rocks()
    for partition in (5, 6):
        others.write(partition, [(b"a", b"1")], 0, NOW)
        others.close(partition)

    def usage(_: Path) -> Usage:
        if not filled:
            return disk
        return full if standbys_kept() else full._replace(free=full.free + 2)

    def standbys_kept() -> bool:
        return any(Path(others.partition_path(n)).exists() for n in (1, 5))

    filled = False
    async with following(topology, usage) as (standbys, _):
        await standbys.follow([0, 1], [6])
        await until(lambda: lags(standbys) == {0: 0, 1: 0} and standbys.rows == 403)
        filled = True
        await until(lambda: others.kept() == {0, 6})
        assert (lags(standbys), standbys.missing) == ({0: 0}, 1), "the larger one is gone"
        filled = False
        await until(lambda: lags(standbys) == {0: 0, 1: 0})
    assert "is left to what is served from it" in caplog.text


async def test_a_copy_that_cannot_be_written_is_given_up_and_ends_nothing(
    topology: Topology, log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(0, (b"a", b"1"))
    write = RocksStore.write

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("IO error: No space left on device")

    async with following(topology) as (standbys, store):
        monkeypatch.setattr(RocksStore, "write", refuse)
        await standbys.follow([0], [])
        await until(lambda: "No space left on device" in caplog.text)
        monkeypatch.setattr(RocksStore, "write", write)
        await until(lambda: lags(standbys) == {0: 0} and standbys.rows == 1)
    assert store.read(0, b"a") == b"1"
    assert topology.failure is None
