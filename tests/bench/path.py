"""Where the microseconds of an event go in a backlog, from the bytes of a fetch to the rows on disk, without sockets.

``python -m tests.bench.path [--calibrator NAME ...] [--forecasts N] [--runs R] [--marked]``

One partition is taken through the parts of a worker, over RocksDB, with a checkpoint after every 20,000 events. Each
figure is the median of the runs, in turn, in us of processor time an event, RocksDB's own threads included.

``--marked`` adds the default with bands, intervals and entities; accounts have two forecasts each.
"""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from time import process_time

import rocksdict
from aiokafka.record.default_records import DefaultRecord
from faust.types import TP

from agents import compiled
from agents.applying import PART
from agents.served import CHECKPOINT_RECORDS
from agents.worker import collect_rarely
from state import journal
from state.engine import BATCH_LIMIT, Partition
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from streams.config.settings import Settings
from streams.faust.changelog import _pack, sliced
from streams.faust.producing import Produced, RecordBatch
from streams.faust.rocks_options import RocksOptions
from streams.faust.unpacking import RecordSet
from streams.kafka import codecs
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.limits import Limits
from streams.records.merge import PartitionBuffer
from streams.records.refused import named
from tests.bench.backlog import BATCH_BYTES, Job, Record, backlog
from tests.bench.figures import table
from tests.bench.parts import POLICIES, about

SOURCES = TP("forecasts", 0), TP("outcomes", 0)
#: Records that a fetch brings, and so many are buffered.
FETCHED, BUFFERED = 5_000, 10_000
NO_BYTES = b"\0" * 16


def batches(records: list[Record]) -> list[bytes]:
    """Return records as the brokers hand them out: in record batches without a codec."""
    left: list[Produced] = [(key, value, ts, []) for ts, _, key, value in records]
    made = []
    while left:
        batch = RecordBatch(BATCH_BYTES, 0)
        left = left[batch.extend(left) :]
        made.append(bytes(batch.sealed(-1, -1, -1)))
    return made


class Partitioned:
    """The parts of a worker; ``spent`` has the seconds of each step."""

    def __init__(self, policy: Policy, wire: list[list[bytes]], directory: str) -> None:
        self.settings, policies = Settings(), Policies(default=policy)
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._db = rocksdict.Rdict(
            directory,
            RocksOptions(block_cache_size=self.settings.rocksdb_bytes).as_options(),
        )
        self._engine, self._decoder = Partition(policies, self._db.get), Decoder(policies, Limits())
        self._buffer = PartitionBuffer(0, SOURCES)
        self._left = [self._read(each) for each in wire]
        self._ended: set[TP] = set()
        self._codec, self._began, self.events = codecs.NUMBERS[self.settings.compression], process_time(), 0

    def caught_up(self, tp: TP) -> bool:
        """Whether there is no more."""
        return tp in self._ended

    def _did(self, step: str) -> None:
        now = process_time()
        self.spent[step] += now - self._began
        self._began = process_time()

    def _read(self, wire: list[bytes]) -> Iterator[DefaultRecord]:
        for data in wire:
            records = RecordSet(data)
            while records.has_next():
                batch = records.next_batch()
                batch.validate_crc()
                yield from batch

    def run(self) -> dict[str, float]:
        """Drain the backlog; return us an event by step."""
        since = 0
        while True:
            self._fetch()
            batch = self._buffer.take(BATCH_LIMIT, self.settings.batch_bytes, self, 1.0)
            self._did("merge")
            if batch is None:
                break
            self._buffer.busy = False
            self._buffer.out.clear()
            since += len(batch.records)
            self.events += len(batch.records)
            self._engine.begin()
            self._fold(batch.records)
            self._engine.end()
            if since >= CHECKPOINT_RECORDS:
                since = 0
                self._checkpoint()
        self._db.close()
        return {step: seconds / self.events * 1e6 for step, seconds in self.spent.items()}

    def _fetch(self) -> None:
        for topic, left in enumerate(self._left):
            while SOURCES[topic] not in self._ended and len(self._buffer.buffers[topic]) < BUFFERED:
                found = list(islice(left, FETCHED))
                if len(found) < FETCHED:
                    self._ended.add(SOURCES[topic])
                self._did("fetch")
                self._buffer.add(topic, found)
                self._did("merge")

    def _fold(self, records: list) -> None:  # type: ignore[type-arg]  # as the merge has them
        packed: dict[str, RecordBatch] = {}
        for at in range(0, len(records), PART):
            events = named(self._decoder.events(records[at : at + PART]))
            self._did("decode")
            outputs = self._engine.apply(events)
            self._did("fold")
            made = encoded(outputs, self.settings, 0)
            self._did("encode")
            for label, produced in made.items():
                packed.setdefault(label, RecordBatch(1 << 20, self._codec)).extend(produced)
            self._did("pack")
            del events, outputs, made
        for each in packed.values():
            each.sealed(1, 1, 1)
        self._did("compress")
        topics, last = bytes([topic for topic, _ in records]), journal.last(0, records[-1][1].value)
        entry = journal.Entry(1, (0, 0), (0, 0), 1, 0, (0, 0, 0), NO_BYTES, (last, last), topics)
        batch = RecordBatch(1 << 16, self._codec)
        batch.extend([(entry.key, entry.encode(), None, [])])
        batch.sealed(1, 1, 1)
        records.clear()
        self._did("journal")

    def _checkpoint(self) -> None:
        changes = self._engine.freeze()
        for _ in changes.slices():
            pass
        self._did("make rows")
        batch = RecordBatch(self.settings.checkpoint_bytes, self._codec)
        for part in sliced(changes.rows.items()):
            _pack(batch, 0, part)
        self._did("pack rows")
        batch.sealed(1, 1, 1)
        self._did("compress rows")
        for part in sliced(changes.rows.items()):
            write = rocksdict.WriteBatch(raw_mode=True)
            for key, row in part:
                if row is None:
                    write.delete(key)
                else:
                    write.put(key, row)
            self._db.write(write)
        self._did("RocksDB")


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrator", action="append", help="may be repeated")
    parser.add_argument("--forecasts", type=int, default=30_000, help="each has an outcome")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--marked", action="store_true", help="bands, intervals and entities, too")
    options = parser.parse_args()
    made = backlog(Job(options.forecasts, partitions=1))
    wire = [batches(made[label]) for label in ("forecasts", "outcomes")]
    jobs = {name: (Policy(name), wire) for name in options.calibrator or ["histogram", DEFAULT_CALIBRATOR]}
    if options.marked:
        of_accounts = [(ts, n, key, about(value, options.forecasts // 2)) for ts, n, key, value in made["forecasts"]]
        jobs["all three"] = POLICIES["all three"], [batches(of_accounts), wire[1]]
    del made
    collect_rarely()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for _ in range(options.runs):
        for name, job in jobs.items():
            with tempfile.TemporaryDirectory() as directory:
                runs[name].append(Partitioned(*job, str(Path(directory) / "db")).run())
    found = {name: {step: median(run[step] for run in each) for step in each[0]} for name, each in runs.items()}
    steps = list(next(iter(found.values())))
    rows = [[step, *(f"{each[step]:.2f}" for each in found.values())] for step in steps]
    rows.append(["all", *(f"{sum(each.values()):.2f}" for each in found.values())])
    print(f"us of processor time an event, {'compiled' if compiled.runs() else 'interpreted'}")
    print(table(["", *found], rows))


if __name__ == "__main__":
    main()
