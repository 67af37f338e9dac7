"""What the store keeps, on real RocksDB: written, dead, damaged, foreign."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from faust.types import TP
from rocksdict import AccessType, Options, Rdict

from streams.config.settings import Settings
from streams.faust.stores import AS_OF, ORIGIN, DamagedStoreError, RocksStore
from streams.kafka.provenance import Part
from tests.e2e.world import wait_for
from tests.streams.fakes import wire


@pytest.fixture
def store(tmp_path: Path) -> RocksStore:
    return wire(tmp_path).table.store


def reopened(store: RocksStore, directory: Path) -> RocksStore:
    """Return what the next process finds."""
    for partition in list(store._dbs):
        store.close(partition)
    return wire(directory).table.store


def rows(store: RocksStore, partition: int, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return list(store.range(partition, prefix))


def test_a_partition_is_a_dictionary_in_order_with_the_offset_of_its_last_write(store: RocksStore) -> None:
    assert (store.read(0, b"a"), store.offset(0), rows(store, 0, b"")) == (None, None, [])
    value = bytearray(b"before")
    store.write(0, [(b"a", b"1"), (b"b", b""), (b"\0\xff", b"\0"), (b"bb", bytes(value))], 7)
    value[:] = b"later!"
    store.write(1, [(b"a", b"one"), (b"c", b"one")], 9)
    assert [store.read(0, key) for key in (b"a", b"b", b"\0\xff", b"bb", b"c")] == [b"1", b"", b"\0", b"before", None]
    store.write(0, [(b"a", None), (b"never", None), (b"b", b"2"), (b"b", None), (b"b", b"3"), (b"b\xff", b"4")], 12)
    assert rows(store, 0, b"b") == [(b"b", b"3"), (b"bb", b"before"), (b"b\xff", b"4")]
    assert (store.read(0, b"a"), rows(store, 0, b"c"), store.read(1, b"a")) == (None, [], b"one")
    assert (store.offset(0), store.offset(1), store.offset(2)) == (12, 9, None)
    assert store.persisted_offset(TP("trueup-state-changelog", 0)) == 12


def test_a_batch_that_cannot_be_made_writes_neither_rows_nor_offset(tmp_path: Path) -> None:
    store = wire(tmp_path).table.store
    store.write(0, [(b"a", b"1")], 0)
    with pytest.raises(Exception):  # noqa: B017, PT011 - RocksDB's binding names no error of its own
        store.write(0, [(b"a", b"2"), (b"b", "text")], 1)  # type: ignore[list-item]
    assert (store.read(0, b"a"), store.read(0, b"b"), store.offset(0)) == (b"1", None, 0)


#: Fills a store and dies as by kill -9: rows k0, k1, …, ten a write, through many flushes.
FILL = """
import os, sys
from pathlib import Path
from streams.config.settings import Settings
from tests.streams.fakes import wire
path = Path(sys.argv[1])
store = wire(path, settings=Settings(data_dir=path, memory_bytes=3 << 20)).table.store
for n in range(500):
    store.write(0, [(b"k%d" % i, os.urandom(100)) for i in range(10 * n, 10 * n + 10)], 10 * n + 9)
os._exit(0)
"""
ROWS = 5000
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("filled")
    subprocess.run([sys.executable, "-c", FILL, str(directory)], check=True, cwd=ROOT)
    return directory


def damage(directory: Path, pattern: str, how: str) -> None:
    files = [path for path in directory.rglob(pattern) if path.is_file()]
    assert files, pattern
    for path in files:
        size = path.stat().st_size
        if how == "gone":
            path.unlink()
        elif how == "flipped" and size:
            with path.open("r+b") as file:
                file.seek(size // 2)
                byte = file.read(1)[0]
                file.seek(size // 2)
                file.write(bytes([byte ^ 1]))
        elif how == "garbage":
            with path.open("r+b") as file:
                file.seek(size // 3)
                # Not bytes at random: RocksDB reads some such logs for ever.
                file.write(b"\xff" * min(size // 3, 4096))
        elif how == "scattered":
            content = bytearray(path.read_bytes())
            for at in range(0, size * 3 // 4, 1000):  # not where the tables say what is where
                content[at] ^= 1
            path.write_bytes(content)
        elif how != "flipped":
            os.truncate(path, size // 2 if how == "halved" else max(size - 20, 0))


@pytest.mark.parametrize("how", ["halved", "short", "flipped", "garbage", "scattered", "gone"])
@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "*.log", "CURRENT"])
def test_damaged_files_never_hide_rows_below_the_offset(tmp_path: Path, filled: Path, pattern: str, how: str) -> None:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    damage(tmp_path, pattern, how)
    store = wire(tmp_path).table.store
    try:
        offset = store.offset(0)
        found = sum(store.read(0, b"k%d" % i) is not None for i in range(ROWS))
    except DamagedStoreError:  # found by a read: an empty database takes its place
        store.anew(0)
        assert store.offset(0) is None
    else:
        assert found == (0 if offset is None else offset + 1)


def test_damage_is_set_aside_and_named_and_the_store_begins_anew(
    tmp_path: Path, filled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    damage(tmp_path, "CURRENT", "halved")
    store = wire(tmp_path).table.store
    assert store.offset(0) is None
    store.write(0, [(b"a", b"1")], 7)
    assert (store.read(0, b"a"), store.offset(0)) == (b"1", 7)
    (aside,) = tmp_path.rglob("*.damaged")
    assert str(aside) in caplog.text
    assert "partition 0 are damaged on disk" in caplog.text


@pytest.mark.parametrize("what", ["file", "link", "link to nothing", "link to a file"])
def test_what_is_no_directory_is_set_aside_and_nothing_is_written_or_deleted_through_a_link(
    tmp_path: Path, filled: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"
    shutil.copytree(filled, mine)
    path = next(mine.rglob("CURRENT")).parent
    shutil.copytree(path, others)
    (tmp_path / "notes").write_text("kept")
    before = {each: each.read_bytes() for each in [*others.iterdir(), tmp_path / "notes"]}
    for _ in range(2):  # what was set aside makes room for what is
        shutil.rmtree(path)
        if what == "file":
            path.write_text("x")
        else:
            path.symlink_to({"link": others, "link to a file": tmp_path / "notes"}.get(what, tmp_path / "gone"))
        store = wire(mine).table.store
        assert store.offset(0) is None
        store.write(0, [(b"a", b"1")], 7)
        assert store.read(0, b"a") == b"1"
        assert store.set_aside_for == {"damaged": 1}
        store.close(0)
    assert path.is_dir()
    assert not path.is_symlink()
    assert path.with_name(f"{path.name}.damaged").is_symlink() == (what != "file")
    assert {each: each.read_bytes() for each in [*others.iterdir(), tmp_path / "notes"]} == before
    assert not (tmp_path / "gone").exists()
    assert "and no directory" in caplog.text


@pytest.mark.parametrize("then", ["moves", "set aside"])
def test_metrics_that_ask_for_the_size_of_what_just_moves_open_nothing(tmp_path: Path, then: str) -> None:
    store = wire(tmp_path).table.store
    store.write(0, [(b"a", b"1")], 7)
    dbs = cast("Any", store._dbs)
    dbs[0] = Asked(dbs[0], lambda: store.close(0) if then == "moves" else store.set_aside(0, "damaged"))
    assert store.size(0) == (0, 0)
    assert not dbs


class Asked:
    """A database that moves while it is asked for its size."""

    def __init__(self, db: Any, move: Callable[[], object]) -> None:
        self._db, self._move = db, move
        self.get, self.close = db.get, db.close

    def property_int_value(self, name: str) -> int | None:
        found: int | None = self._db.property_int_value(name)
        self._move()
        return found


def reads_all(store: RocksStore, partition: int = 0) -> None:
    for i in range(ROWS):
        store.read(partition, b"k%d" % i)


def largest(directory: Path) -> str:
    """Return the name of the largest table that is in use: a compaction that was cut off leaves others."""
    path = next(directory.rglob("CURRENT")).parent
    with Rdict(str(path), options=Options(raw_mode=True), access_type=AccessType.read_only()) as db:
        found = max(db.live_files(), key=lambda each: each["size"])["name"]
    return str(found).strip("/")


def test_what_is_under_way_when_damage_is_found_leaves_no_row_where_all_will_be_restored(
    tmp_path: Path, filled: Path
) -> None:
    """A row and an offset in an empty database would say that the rows before it are there."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    damage(tmp_path, "*.sst", "flipped")
    store = wire(tmp_path).table.store
    with pytest.raises(DamagedStoreError) as found:
        reads_all(store)
    assert found.value.partition == 0
    for use in (
        lambda: store.read(0, b"k1"),
        lambda: store.write(0, [(b"k1", b"1")], ROWS),
        lambda: list(store.range(0, b"k")),
        lambda: store.offset(0),
    ):
        with pytest.raises(DamagedStoreError, match="partition 0 were set aside"):
            use()
    assert store.size(0) == (0, 0)
    assert store.persisted_offset(TP("trueup-state-changelog", 0)) is None, "it is taken up: all is to be restored"
    store.write(0, [(b"k1", b"1")], 7)
    assert (store.read(0, b"k1"), store.offset(0), store.set_aside_for["damaged"]) == (b"1", 7, 1)
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


class Closing:
    """A database that says when it is closed what was found damaged in the background."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def close(self) -> None:
        self._db.close()
        raise Exception("Corruption: block checksum mismatch")  # noqa: TRY002 - as RocksDB's binding does


def test_damage_that_is_told_when_a_database_is_closed_ends_nothing_and_is_set_aside(tmp_path: Path) -> None:
    """Else a worker that looks at its disk before it joins would end at every start."""
    store = wire(tmp_path).table.store
    store.write(0, [(b"a", b"1")], 7)
    dbs = cast("Any", store._dbs)
    dbs[0] = Closing(dbs[0])
    store.close(0)
    assert (store.read(0, b"a"), store.offset(0)) == (None, None)
    assert list(tmp_path.rglob("*.damaged"))


def test_an_iteration_does_not_end_at_what_is_damaged_as_if_there_were_no_more(tmp_path: Path, filled: Path) -> None:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    damage(tmp_path, largest(tmp_path), "flipped")
    store = wire(tmp_path).table.store
    with pytest.raises(DamagedStoreError):
        assert len(list(store.range(0, b"k"))) == ROWS


def test_when_rows_are_found_damaged_the_others_of_the_disk_are_read_before_they_are_served(
    tmp_path: Path, filled: Path
) -> None:
    """Else each of them ends or stops the worker once more, when one of its damaged rows is asked for."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    (first,) = tmp_path.rglob("state-0.db")
    before = wire(tmp_path).table.store
    before._db_for_partition(0).put(ORIGIN, b"ours")
    before._db_for_partition(0).put(AS_OF, (9).to_bytes(8, "little"))
    before.close(0)
    for number in (1, 2):
        shutil.copytree(first, first.with_name(f"state-{number}.db"))
    for path in (first, first.with_name("state-1.db")):
        damage(path, largest(path), "flipped")
    store = wire(tmp_path).table.store
    for number in (1, 2):
        assert not store.vet(number, Part(b"ours", 0, ROWS)), "nothing is known yet, and no row is read for nothing"
    with pytest.raises(DamagedStoreError):
        reads_all(store)
    assert [store.vet(number, Part(b"ours", 0, ROWS)) for number in (1, 2)] == [True, False]
    assert (store.offset(1), store.offset(2)) == (None, ROWS - 1)


#: Writes until a table was flushed and its log deleted, once more, and dies as by kill -9.
FLUSH = """
import os, sys, time
from pathlib import Path
from streams.config.settings import Settings
from tests.streams.fakes import wire
path = Path(sys.argv[1])
store = wire(path, settings=Settings(data_dir=path, memory_bytes=3 << 20)).table.store
n, end = 0, time.monotonic() + 60
store.write(0, [], 0)
(first,) = path.rglob("*.log")
while first.exists() and time.monotonic() < end:
    n += 1
    store.write(0, [(b"k%d" % n, os.urandom(1000))], n)
    time.sleep(0.002)
os._exit(0)
"""


def test_a_manifest_that_lost_its_last_record_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RocksDB opens it without a word, and without the rows whose log was deleted when they were flushed."""
    subprocess.run([sys.executable, "-c", FLUSH, str(tmp_path)], check=True, cwd=ROOT)
    damage(tmp_path, "MANIFEST-*", "short")
    assert wire(tmp_path).table.store.offset(0) is None
    assert "is missing among the newest" in caplog.text


def test_write_buffers_of_all_partitions_share_one_bound(tmp_path: Path) -> None:
    size = 32 << 20
    store = wire(tmp_path, settings=Settings(data_dir=tmp_path, memory_bytes=3 * size)).table.store
    for n in range(80):
        for partition in range(8):
            store.write(partition, [(b"%d" % n, os.urandom(100_000))], n)
    assert len(store._dbs) == 8

    def held() -> int:
        return sum(db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0 for db in store._dbs.values())

    wait_for("tables to be written: each partition was given 8 MB", lambda: held() < size)


def test_a_full_ring_of_writes_goes_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.faust.write_ring.RING", 8)
    store = wire(tmp_path).table.store
    for n in range(30):
        store.write(0, [(b"a", str(n).encode())], n)
    again = reopened(store, tmp_path)
    assert (again.read(0, b"a"), again.offset(0)) == (b"29", 29)


def test_a_directory_that_cannot_be_written_is_not_taken_for_damage(tmp_path: Path) -> None:
    store = wire(tmp_path).table.store
    tables = Path(store.partition_path(0)).parent
    shutil.rmtree(tables, ignore_errors=True)
    tables.parent.mkdir(parents=True, exist_ok=True)
    tables.write_text("a file")
    with pytest.raises(Exception, match=r"File exists|Not a directory"):
        store.offset(0)
    assert tables.is_file()


def test_rows_are_bytes_whatever_they_look_like(store: RocksStore) -> None:
    # rocksdict marks types by the first byte, and one of the marks is a pickle's; in raw mode it reads none of them.
    held = {bytes([mark]): bytes([mark]) + pickle.dumps("text") for mark in range(256)}
    store.write(0, held.items(), 0)
    assert {key: store.read(0, key) for key in held} == held
    assert dict(rows(store, 0, b"\x05")) == {b"\x05": held[b"\x05"]}
