"""Damaged disks under real workers."""

import shutil
from pathlib import Path

import rocksdict

from agents.worker import FAILED
from state import kinds
from tests.e2e.world import MakeWorld, World
from tests.events import mixed


def test_damaged_tables_of_every_partition_end_no_worker_and_a_damaged_row_ends_it(world: MakeWorld) -> None:
    """One read finds one of them: without a look at the others each would end, or stop, the worker for itself."""
    w = world(partitions=3, TRUEUP_MEMORY_BYTES=str(3 << 20), TRUEUP_CHECKPOINT_SECONDS="0")
    made = mixed(3000, seed=1)
    w.serve(made.sent)
    for path in w.directory.rglob("*.sst"):
        damage(path)
    w.send(made.sent)  # asks for every row
    with w.worker() as worker:
        w.wait_until_applied()
        assert worker.metric("set_aside_total", what="damaged") == 3
        assert worker.stop() == 0
        assert "cannot go on" not in worker.printed
    assert len(list(w.directory.rglob("*.damaged"))) == 3
    w.judge()
    damage_row(w)
    w.send(made.sent)
    w.refused(FAILED, "CorruptFrame")
    shutil.rmtree(w.directory / "data")
    w.serve()
    w.judge()


def damage(path: Path) -> None:
    """Flip a bit in each of a table's blocks but the last ones, which say where the others are."""
    content = bytearray(path.read_bytes())
    for at in range(500, len(content) * 3 // 4, 4000):
        content[at] ^= 1
    path.write_bytes(content)


def damage_row(w: World) -> None:
    """Change a byte of an event's row, as a fault of disk or memory would below RocksDB's own checks."""
    (path,) = (w.directory / "data").rglob("state-0.db")
    db = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    key = next(iter(db.keys(from_key=kinds.LEDGER.letter)))
    row = bytearray(db[key] or b"")
    row[len(row) // 2] ^= 1
    db[key] = bytes(row)
    db.close()
