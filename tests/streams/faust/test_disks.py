"""Disks that the changelog cannot bring up to date: real RocksDB, set aside and never read."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from faust.types import TP

from agents.topology import Topology
from state import kinds
from streams.faust import stores
from streams.kafka.metadata import Metadata
from streams.kafka.provenance import Described
from tests.streams.brokers import C0, Brokers
from tests.streams.fakes import Producer, record, wire

DAY = 86_400_000
#: The time of every test, ms.
NOW = 1_700_000_000_000
OURS = Described("trueup", Metadata("cluster", "changelog", "topic", 16), 2 * DAY)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.faust.state_table.now", lambda: NOW)


def started(directory: Path, described: Described = OURS, end: int = 0) -> Topology:
    """Return an application that has just taken partition 0 up, whose changelog ended at ``end`` before."""
    topology = wire(directory)
    producer = cast("Producer", topology.app.faust.producer)
    producer.described = described
    producer.ends[C0] = end

    async def take_up() -> None:
        await topology.table.claim(0)
        await topology.table.vet([0])

    asyncio.run(take_up())
    return topology


def stopped(topology: Topology) -> None:
    store = topology.table.store
    for db in store._dbs.values():
        db.close()
    store._dbs.clear()


def left(directory: Path, offset: int, as_of: int | None = NOW) -> None:
    """Leave a disk of our own changelog whose rows reach to ``offset``."""
    topology = started(directory)
    topology.table.store.write(0, [(b"a", b"old")], offset, as_of)
    stopped(topology)


@pytest.mark.parametrize(
    "other",
    [
        OURS._replace(app="another"),
        OURS._replace(topic=OURS.topic._replace(cluster="another")),
        OURS._replace(topic=OURS.topic._replace(id="another")),
        OURS._replace(topic=OURS.topic._replace(partitions=8)),
    ],
    ids=["app", "cluster", "topic", "partitions"],
)
def test_rows_of_another_changelog_are_set_aside_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: Described
) -> None:
    left(tmp_path, 7)
    topology = started(tmp_path, other, end=100)
    assert (topology.table.store.read(0, b"a"), topology.table.store.offset(0)) == (None, None)
    (aside,) = tmp_path.rglob("*.foreign")
    assert str(aside) in caplog.text
    assert OURS.origin.decode() in caplog.text
    topology.table.store.write(0, [(b"a", b"new")], 3, NOW)
    stopped(topology)
    again = started(tmp_path, other, end=100)
    assert again.table.store.read(0, b"a") == b"new", "what took their place is marked as ours"


def test_rows_of_which_nothing_says_what_they_are_of_are_set_aside(tmp_path: Path) -> None:
    topology = wire(tmp_path)
    topology.table.store.write(0, [(b"a", b"old")], 7, NOW)
    stopped(topology)
    assert started(tmp_path, end=100).table.store.read(0, b"a") is None
    assert list(tmp_path.rglob("*.foreign"))


@pytest.mark.parametrize("end", [0, 6, 7])
def test_a_disk_ahead_of_its_changelog_is_set_aside_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end: int
) -> None:
    """With 7 the claim itself fills the hole: the end alone does not tell."""
    left(tmp_path, 7)
    topology = started(tmp_path, end=end)
    assert (topology.table.store.read(0, b"a"), topology.table.store.offset(0)) == (None, None)
    assert list(tmp_path.rglob("*.ahead"))
    assert f"they reach to offset 7, but the changelog ended at {end}" in caplog.text


@pytest.mark.parametrize(("age", "kept"), [(DAY - 1, True), (DAY + 1, False), (-DAY, True), (None, False)])
def test_rows_older_than_half_of_the_tombstones_retention_or_of_unknown_age_are_set_aside_and_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, age: int | None, *, kept: bool
) -> None:
    left(tmp_path, 7, None if age is None else NOW - age)
    topology = started(tmp_path, end=100)
    assert (topology.table.store.read(0, b"a") == b"old") == kept
    aside = [each for what in ("foreign", "ahead", "old") for each in tmp_path.rglob(f"*.{what}")]
    assert bool(aside) != kept
    if age is not None:
        assert ("half of the changelog's delete.retention.ms" in caplog.text) != kept


def test_a_commit_and_a_finished_recovery_make_rows_new_and_a_broken_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path, 7, NOW - DAY // 2)
    topology = started(tmp_path, end=100)
    table = topology.table
    table.restore(TP(C0.topic, 0), [record(C0.topic, 0, 100, NOW)])
    assert table.store.as_of(0) == NOW - DAY // 2
    monkeypatch.setattr("streams.faust.state_table.now", lambda: NOW + 5)
    table.reopened(0)
    assert table.store.as_of(0) == NOW, "as of the claim: what was appended before it has been read"
    asyncio.run(table.commit(0, {b"b": b"1"}))
    assert table.store.as_of(0) == NOW + 5


def test_rows_that_are_restored_from_the_first_record_are_as_of_its_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old the records: a tombstone that follows them is kept for its time from the day it hides them."""
    table = started(tmp_path, end=100).table
    table.restore(TP(C0.topic, 0), [record(C0.topic, 0, 3, NOW - 90 * DAY)])
    monkeypatch.setattr("streams.faust.state_table.now", lambda: NOW + 5)
    table.restore(TP(C0.topic, 0), [record(C0.topic, 0, 9, NOW - 80 * DAY)])
    assert table.store.as_of(0) == NOW


def test_faust_restores_all_of_what_was_set_aside_and_nothing_twice_of_the_rest(tmp_path: Path) -> None:
    left(tmp_path, 7)

    async def recover() -> tuple[int | None, ...]:
        topology = wire(tmp_path)
        cast("Producer", topology.app.faust.producer).ends[C0] = 5
        consumer = topology.app.consumer
        consumer._thread = Brokers()
        consumer._ours = True
        offsets = topology.app.faust.tables.recovery.active_offsets  # type: ignore[attr-defined]
        other, gone = TP(C0.topic, 1), TP(C0.topic, 2)
        cast("Producer", topology.app.faust.producer).ends[other] = 5
        topology.table.store.write(1, [(stores.ORIGIN, OURS.origin)], 3, NOW)
        offsets.update({C0: 7, other: 3, gone: 3})  # as Faust has read them, or remembers
        await consumer.highwaters(C0, other, gone)
        return offsets[C0], offsets[other], offsets[gone]

    assert asyncio.run(recover()) == (None, 3, None)


def test_keys_of_the_store_are_no_rows(tmp_path: Path) -> None:
    left(tmp_path, 7)
    topology = started(tmp_path, end=8)
    assert topology.table.store.size(0)[0] == 1
    assert list(topology.table.store.range(0, kinds.FENCE.key())) == []
