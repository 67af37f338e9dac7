"""RocksDB's write buffer and block cache, by what they cost and what they buy: the defaults come from this table.

``python -m tests.bench.stores [--rows N]``: a store of one partition, made as a worker makes it, takes so many ledger
rows, a thousand a batch, and is then asked for rows of any age, as outcomes with a random delay ask. Each pair of sizes
runs in a process of its own. The table gives processor time, not wall time, which the rest of the machine decides:
microseconds a row written (RocksDB's compaction threads included) and a row read, resident memory, and disk.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Final

import orjson

from agents.topology import build
from agents.worker import abort
from streams.config.settings import Settings
from tests.bench import rows, usage

WRITE_BUFFERS: Final = (4, 16, 64)
BLOCK_CACHES: Final = (8, 64, 256)
READS: Final = 100_000


def measure(write_buffer: int, block_cache: int, pending: int) -> dict[str, float]:
    """Fill a store and read from it; sizes in MiB."""
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        data = Path(directory)
        sizes = {"write_buffer_bytes": write_buffer << 20, "block_cache_bytes": block_cache << 20}
        settings = Settings(data_dir=data, **sizes)  # type: ignore[arg-type]  # all of them are integers
        store = build(settings, abort=abort).table.store
        made = 0.0
        began = time.process_time()
        last = began
        for i, batch in enumerate(rows.batches(settings, 0, pending, 10)):
            ready = time.process_time()
            made += ready - last
            store.write(0, batch.items(), i)
            last = time.process_time()
        wrote = time.process_time() - began - made
        rng = random.Random(1)
        names = [b"L" + rows.event_id(rng.randrange(rows.REAL, pending) * 1024).encode() for _ in range(READS)]
        began = time.process_time()
        if any(store.read(0, name) is None for name in names):
            raise SystemExit("a row is missing")
        read = time.process_time() - began
        return {
            "write_us": round(wrote / pending * 1e6, 2),
            "read_us": round(read / READS * 1e6, 2),
            "rss_mib": round(usage.resident(os.getpid())),
            "disk_mib": round(usage.disk_bytes(data) / usage.MIB),
        }


def main() -> None:
    """Measure every pair, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=5e5)
    parser.add_argument("--one", type=int, nargs=2, metavar=("WRITE", "CACHE"), help="measure one pair, print JSON")
    options = parser.parse_args()
    if options.one:
        write_buffer, block_cache = options.one
        print(orjson.dumps(measure(write_buffer, block_cache, int(options.rows))).decode())
        return
    found = {}
    print(f"{'write buffer, cache (MiB)':28}{'write_us':>10}{'read_us':>10}{'rss_mib':>10}{'disk_mib':>10}")
    for pair in product(WRITE_BUFFERS, BLOCK_CACHES):
        command = [sys.executable, "-m", "tests.bench.stores", "--rows", str(options.rows), "--one", *map(str, pair)]
        one = orjson.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        found["+".join(map(str, pair))] = one
        print(f"{pair[0]:>4}, {pair[1]:<22}" + "".join(f"{value:>10}" for value in one.values()), flush=True)
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    main()
