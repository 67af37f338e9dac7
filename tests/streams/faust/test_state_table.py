"""The table: the changelog first, as one batch, and the store after."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faust.types import TP

from state import kinds
from state.fence import Fence
from state.inputs import InputIds, Widths
from streams.faust.changelog import MovedError, TooLargeError
from streams.faust.inputs import DataLossError
from streams.faust.pace import Pace, T
from streams.faust.state_table import ForeignWriterError, PartitionsError, StateTable
from streams.kafka.provenance import Part
from tests.streams.fakes import Producer, record, wire

CHANGELOG = "trueup-state-changelog"


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.fixture
def table(tmp_path: Path, producer: Producer) -> StateTable:
    return wire(tmp_path, producer=producer).table


async def test_many_rows_are_written_beside_others_and_count_when_the_last_is_there(
    table: StateTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.faust.changelog.SLICE", 2)
    seen = list[tuple[bytes | None, bytes | None, int | None]]()
    await table.commit(0, {b"F": b"before"})
    commit = asyncio.create_task(table.commit(0, {bytes([i]): b"new" for i in range(7)}))
    while not commit.done():
        await asyncio.sleep(0)
        seen.append((table.store.read(0, b"\0"), table.store.read(0, b"\6"), table.store.offset(0)))
    assert (b"new", None, 0) in seen
    assert seen[-1] == (b"new", b"new", 7)
    assert {offset for _, last, offset in seen if last is None} == {0}


def test_rows_of_a_partition_that_moves_in_the_last_rest_are_left_to_its_new_owner(table: StateTable) -> None:
    class Moving(Pace):
        async def slices(self, parts: Iterable[T]) -> AsyncIterator[T]:
            async for part in super().slices(parts):
                yield part
            if table.changelog.claims() and table._next[0] == 2:
                table.closed(0)

    asyncio.run(table.commit(0, {b"a": b"1"}))
    with pytest.raises(MovedError, match="partition 0 has moved"):
        asyncio.run(table.commit(0, {b"a": b"2"}, pace=Moving(lambda: True)))
    assert (table.store.read(0, b"a"), table.store.offset(0)) == (b"1", 0)


@pytest.mark.parametrize(("end", "fits"), [(8, True), (7, False)])
def test_rows_of_a_write_that_was_cut_off_are_restored_or_set_aside_if_the_changelog_lost_them(
    table: StateTable, end: int, *, fits: bool
) -> None:
    origin = b"here"
    table.store.vet(0, Part(origin, 0, 1))
    table.store.write(0, [(b"a", b"1")], 0, as_of=100)
    table.store.begin(0, [(b"a", b"2")], 7)
    assert table.store.offset(0) == 0
    assert table.store.fit(0, Part(origin, 0, end)) is fits
    assert table.store.vet(0, Part(origin, 0, end)) is not fits
    assert table.store.read(0, b"a") == (b"2" if fits else None)


def test_rows_that_do_not_fit_one_batch_are_refused_and_nothing_is_sent_or_written(
    table: StateTable, producer: Producer
) -> None:
    table.changelog._size = 10_000
    heard: list[int] = []
    rows = {bytes([i]): bytes(1000) for i in range(11)}
    with pytest.raises(TooLargeError, match="partition 0 do not fit"):
        asyncio.run(table.commit(0, rows, heard.append))
    assert (producer.sent, heard, table.store.read(0, b"\0"), table.store.offset(0)) == ([], [], None, None)
    rows.pop(b"\0")
    rows.pop(b"\1")
    asyncio.run(table.commit(0, rows, heard.append))
    assert (heard, table.store.offset(0)) == ([1, 2], 8)


def test_a_batch_appended_behind_foreign_rows_is_refused_and_not_written(table: StateTable, producer: Producer) -> None:
    asyncio.run(table.commit(0, {b"a": b"1"}))
    producer.ends[CHANGELOG, 0] += 1
    heard: list[int] = []
    with pytest.raises(ForeignWriterError, match=r"partition 0 .* offset 2, expected 1"):
        asyncio.run(table.commit(0, {b"a": b"2"}, heard.append))
    assert (heard, table.store.read(0, b"a"), table.store.offset(0)) == ([], b"1", 0)


def test_what_faust_was_shown_of_a_recovery_never_lands_on_newer_rows(table: StateTable) -> None:
    tp = TP(CHANGELOG, 0)
    older = SimpleNamespace(tp=tp, partition=0, offset=7, key=b"F", value=b"1")
    for offset, value in (7, b"1"), (8, b"2"):
        table.restore(tp, [record(CHANGELOG, 0, offset, 0, b"F", value)])
    recovery = cast("Any", table.app.tables).recovery
    recovery.buffers[table] = [SimpleNamespace(message=older)]
    recovery.flush_buffers()
    assert not recovery.buffers[table]
    assert (table.store.read(0, b"F"), table.store.offset(0)) == (b"2", 8)


def known(producer: Producer, forecasts: str, outcomes: str) -> None:
    producer.ids.update({"f": forecasts * 32, "o": outcomes * 32})


def applied(table: StateTable, forecasts: int, outcomes: int) -> None:
    asyncio.run(table.commit(0, {kinds.FENCE.key(): Fence([forecasts, outcomes]).encode()}))


def test_the_topics_of_the_inputs_are_noted_once(table: StateTable, producer: Producer) -> None:
    known(producer, "1", "2")
    for _ in range(3):
        asyncio.run(table.recognise([0], ("f", "o")))
        applied(table, 5, 5)
    rows = [row for row in producer.rows(CHANGELOG) if row.key == kinds.INPUTS.key()]
    assert [kinds.INPUTS.decode(row.value or b"") for row in rows] == [InputIds("1" * 32, "2" * 32)]
    assert table.store.read(0, kinds.INPUTS.key()) == rows[0].value


@pytest.mark.parametrize(("fence", "topic"), [((7, 0), "f"), ((0, 7), "o"), ((7, 7), "f")])
def test_a_topic_that_was_made_anew_under_the_state_is_refused(
    table: StateTable, producer: Producer, fence: tuple[int, int], topic: str
) -> None:
    known(producer, "1", "2")
    asyncio.run(table.recognise([0], ("f", "o")))
    applied(table, *fence)
    known(producer, "3", "4")
    with pytest.raises(DataLossError, match=f"has applied {topic} up to offset 6, .* was deleted and recreated"):
        asyncio.run(table.recognise([0], ("f", "o")))


def test_a_topic_that_was_made_anew_before_anything_of_it_was_applied_is_taken(
    table: StateTable, producer: Producer
) -> None:
    known(producer, "1", "2")
    asyncio.run(table.recognise([0], ("f", "o")))
    applied(table, 7, 0)
    known(producer, "1", "4")
    asyncio.run(table.recognise([0], ("f", "o")))
    assert kinds.INPUTS.decode(table.store.read(0, kinds.INPUTS.key()) or b"") == InputIds("1" * 32, "4" * 32)


def test_another_number_of_partitions_is_refused_once_anything_was_applied(
    table: StateTable, producer: Producer
) -> None:
    known(producer, "1", "2")
    producer.widths.update({"f": 4, "o": 4})
    asyncio.run(table.recognise([0], ("f", "o")))
    producer.widths.update({"f": 8, "o": 8})  # made anew before the first record
    asyncio.run(table.recognise([0], ("f", "o")))
    assert kinds.WIDTHS.decode(table.store.read(0, kinds.WIDTHS.key()) or b"") == table.widths == Widths(8, 8)
    applied(table, 1, 0)
    producer.widths["o"] = 9
    with pytest.raises(PartitionsError, match="o has 9 partitions, and had 8 when the state of partition 0 was begun"):
        asyncio.run(table.recognise([0], ("f", "o")))
