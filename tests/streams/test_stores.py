"""One contract for the two stores: real RocksDB, and memory."""

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faust.events import Event
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from streams.stores import RocksStore, Store
from tests.streams.fakes import wire


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return wire(tmp_path, memory=request.param == "memory").table.store


def rows(store: Store, partition: int, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return list(store.range(partition, prefix))


def test_a_row_is_read_as_it_was_written(store: Store) -> None:
    store.write(0, [(b"a", b"1"), (b"b", b""), (b"\x00\xff", b"\x00")], 2)
    assert [store.read(0, key) for key in (b"a", b"b", b"\x00\xff")] == [b"1", b"", b"\x00"]


def test_a_row_that_was_never_written_is_none(store: Store) -> None:
    assert store.read(0, b"a") is None
    assert store.offset(0) is None


def test_none_deletes_and_deleting_what_is_not_there_is_nothing(store: Store) -> None:
    store.write(0, [(b"a", b"1"), (b"b", b"2")], 1)
    store.write(0, [(b"a", None), (b"never", None)], 3)
    assert store.read(0, b"a") is None
    assert store.read(0, b"b") == b"2"


def test_the_last_of_several_writes_of_a_key_in_one_batch_counts(store: Store) -> None:
    store.write(0, [(b"a", b"1"), (b"a", None), (b"a", b"3"), (b"b", b"1"), (b"b", None)], 4)
    assert (store.read(0, b"a"), store.read(0, b"b")) == (b"3", None)


def test_the_offset_is_that_of_the_last_write(store: Store) -> None:
    store.write(0, [(b"a", b"1")], 7)
    store.write(0, [(b"b", b"2")], 12)
    assert store.offset(0) == 12
    assert store.persisted_offset(TP("trueup-state-changelog", 0)) == 12


def test_partitions_are_apart(store: Store) -> None:
    store.write(0, [(b"a", b"zero")], 5)
    store.write(1, [(b"a", b"one"), (b"b", b"one")], 9)
    assert (store.read(0, b"a"), store.read(1, b"a"), store.read(0, b"b")) == (b"zero", b"one", None)
    assert (store.offset(0), store.offset(1), store.offset(2)) == (5, 9, None)
    assert rows(store, 0, b"b") == []


def test_a_range_holds_the_rows_of_a_prefix_in_order_and_nothing_else(store: Store) -> None:
    store.write(0, [(b"Sb", b"2"), (b"T", b"3"), (b"R\xff", b"0"), (b"S", b"1"), (b"S\xff", b"4")], 4)
    assert rows(store, 0, b"S") == [(b"S", b"1"), (b"Sb", b"2"), (b"S\xff", b"4")]
    assert rows(store, 0, b"X") == []


def test_size_grows_with_rows_and_bytes(store: Store) -> None:
    assert store.size(0)[0] == 0
    store.write(0, [(str(i).encode(), bytes(1000)) for i in range(100)], 99)
    n, held = store.size(0)
    assert 100 <= n <= 101  # RocksDB counts its offset row
    assert held >= 100_000


def test_a_value_changed_after_writing_does_not_change_what_is_stored(store: Store) -> None:
    value = bytearray(b"before")
    store.write(0, [(b"a", bytes(value))], 0)
    value[:] = b"later!"
    changes = {b"b": b"1"}
    store.write(0, changes.items(), 1)
    changes[b"b"] = b"2"
    assert (store.read(0, b"a"), store.read(0, b"b")) == (b"before", b"1")


def test_a_batch_that_cannot_be_made_writes_neither_rows_nor_offset(tmp_path: Path) -> None:
    store = wire(tmp_path).table.store
    store.write(0, [(b"a", b"1")], 0)
    with pytest.raises(Exception):  # noqa: B017, PT011 - RocksDB's binding names no error of its own
        store.write(0, [(b"a", b"2"), (b"b", "text")], 1)  # type: ignore[list-item]
    assert (store.read(0, b"a"), store.read(0, b"b"), store.offset(0)) == (b"1", None, 0)


def test_rocksdb_opened_again_has_rows_and_offset(tmp_path: Path) -> None:
    store = wire(tmp_path).table.store
    assert isinstance(store, RocksStore)
    store.write(3, [(b"a", b"1"), (b"b", b"2")], 41)
    store.write(3, [(b"b", None)], 42)
    store._dbs.clear()
    del store
    gc.collect()
    again = wire(tmp_path).table.store
    assert (again.read(3, b"a"), again.read(3, b"b"), again.offset(3)) == (b"1", None, 42)


def test_memory_forgets_partitions_that_left(tmp_path: Path) -> None:
    store = wire(tmp_path, memory=True).table.store
    store.write(0, [(b"a", b"1")], 1)
    store.write(1, [(b"a", b"2")], 2)
    asyncio.run(store.on_recovery_completed({TP("trueup-state-changelog", 1)}, set()))
    assert (store.read(0, b"a"), store.offset(0)) == (None, None)
    assert (store.read(1, b"a"), store.offset(1)) == (b"2", 2)


# -- what is restored goes past RocksDB's log ----------------------------------------------------------------------


def test_restored_rows_are_read_like_written_ones(store: Store) -> None:
    store.restore(0, [(b"a", b"1"), (b"b", b"2")], 5)
    store.restore(0, [(b"b", None)], 6)
    assert (store.read(0, b"a"), store.read(0, b"b"), store.offset(0)) == (b"1", None, 6)
    store.settle(0)
    assert (store.read(0, b"a"), store.offset(0)) == (b"1", 6)


def test_what_faust_brings_of_a_recovery_changes_nothing(tmp_path: Path) -> None:
    store = wire(tmp_path).table.store
    store.restore(0, [(b"a", b"new")], 9)
    older = ConsumerMessage("c", 0, 3, 0.0, 0, [], b"a", b"old", None, None, None, TP("c", 0))
    store.apply_changelog_batch([Event(None, b"a", b"old", {}, older)], None, None)  # type: ignore[arg-type]
    assert (store.read(0, b"a"), store.offset(0)) == (b"new", 9)


def crashed(directory: Path, script: str) -> None:
    """Run a script on a store below a directory, in a process that ends itself as kill -9 would."""
    code = f"""
import os, signal
from pathlib import Path
from dataclasses import replace
from streams.settings import Settings
from tests.streams.fakes import wire
directory = Path({str(directory)!r})
store = wire(directory, settings=Settings(data_dir=directory, write_buffer_bytes=65_536)).table.store
def rows(i):
    return [(b"%08d" % n, b"x" * 100) for n in range(i * 100, i * 100 + 100)]
{script}
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_after_a_crash_in_a_recovery_the_offset_is_that_of_the_rows_that_are_left(tmp_path: Path) -> None:
    crashed(tmp_path, "for i in range(200): store.restore(0, rows(i), i)")
    store = wire(tmp_path).table.store
    offset = store.offset(0)
    assert offset is not None, "some buffers were full and are on disk"
    assert offset < 199, "what was in memory is lost, or this test shows nothing"
    held = [key for key, _ in store.range(0, b"0")]
    assert held == [b"%08d" % n for n in range((offset + 1) * 100)], "all rows up to the offset, and none beyond"


@pytest.mark.parametrize("settled", [True, False], ids=["settled first", "not settled"])
def test_a_row_written_after_a_recovery_never_hides_a_hole(tmp_path: Path, settled: bool) -> None:  # noqa: FBT001 - a parameter
    settle = "store.settle(0)" if settled else ""
    script = f"""
for i in range(200): store.restore(0, rows(i), i)
{settle}
store.write(0, [(b"last", b"1")], 200)
"""
    crashed(tmp_path, script)
    store = wire(tmp_path).table.store
    assert (store.read(0, b"last"), store.offset(0)) == (b"1", 200)
    assert len(list(store.range(0, b"0"))) == 20_000


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self._path,)


def test_rows_are_bytes_whatever_they_look_like(store: Store, tmp_path: Path) -> None:
    # rocksdict marks types by the first byte, and one of the marks is a pickle's; in raw mode it reads none of them.
    went_off = tmp_path / "went-off"
    held = {bytes([mark]): bytes([mark]) + pickle.dumps(Bomb(went_off)) for mark in range(256)}
    store.write(0, held.items(), 0)
    assert {key: store.read(0, key) for key in held} == held
    assert dict(rows(store, 0, b"\x05")) == {b"\x05": held[b"\x05"]}
    assert not went_off.exists()


def test_no_codec_of_the_application_unpickles(tmp_path: Path) -> None:
    topology = wire(tmp_path, memory=True)
    # Faust knows a pickle codec. A record cannot name a codec; the topics and the table have theirs from here.
    assert {str(topology.app.conf.key_serializer), str(topology.app.conf.value_serializer)} == {"raw", "json"}
    assert (topology.table.key_type, topology.table.value_type) == (bytes, bytes)
    assert topology.table.store.key_serializer in (None, "raw", "json")
    assert topology.table.store.value_serializer in (None, "raw", "json")
