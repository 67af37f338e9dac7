"""What challengers cost: CPU time and bytes of the pure fold, with and without them.

``TRUEUP_COMPILED=yes python -m tests.bench.shadows [--events N]``; without, the sources as they are.

One stream on one partition, kept in memory: no Kafka and no RocksDB, which cost the same with and without but for the
bytes. Events come in full batches, outcomes 500 forecasts late. Runs take turns, so that what else the machine does
falls on all of them; each figure is the least of the runs. The last line is one JSON object.
"""

import argparse
import os
import random
from collections.abc import Iterator
from time import process_time
from typing import Final

import orjson

from agents.compiled import missing
from state import kinds
from state.engine import BATCH_LIMIT, Partition
from state.events import Event, Forecast, Outcome
from state.policy import DEFAULT_CALIBRATOR, Challenger, Policies, Policy

LATE: Final = 500
RUNS: Final = 5
PLATT: Final = "platt+regret_matching"
#: Champion and challengers.
CASES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (DEFAULT_CALIBRATOR, ()),
    (DEFAULT_CALIBRATOR, ("identity",)),
    (DEFAULT_CALIBRATOR, ("histogram",)),
    (DEFAULT_CALIBRATOR, (PLATT,)),
    (DEFAULT_CALIBRATOR, (PLATT, "platt+minimax")),
    (PLATT, ()),
    (PLATT, (DEFAULT_CALIBRATOR,)),
)


def events(n: int) -> list[Event]:
    """Return ``n`` forecasts and their outcomes, as they come."""
    rng = random.Random(3)
    made: list[Event] = []
    for i in range(n + LATE):
        if i < n:
            made.append(Forecast(i, b"k", f"event-{i:08d}", "s", rng.random(), (), 1_700_000_000_000 + i))
        if i >= LATE:
            y = float(rng.random() < 0.3)
            made.append(Outcome(i - LATE, b"k", f"event-{i - LATE:08d}", y, 1_700_000_000_000 + i))
    return made


def batches(made: list[Event]) -> Iterator[list[Event]]:
    """Cut events into full batches."""
    for at in range(0, len(made), BATCH_LIMIT):
        yield made[at : at + BATCH_LIMIT]


def run(champion: str, challengers: tuple[str, ...], made: list[Event]) -> tuple[float, int]:
    """Return CPU seconds of the fold, and the bytes of all rows it wrote, keys included."""
    policy = Policy(champion, shadow=tuple(Challenger(name, {}) for name in challengers))
    table: dict[bytes, bytes | None] = {}
    partition = Partition(Policies(default=policy), table.get)
    spent, written = 0.0, 0
    for batch in batches(made):
        started = process_time()
        effects = partition.fold(batch)
        spent += process_time() - started
        table.update(effects.rows)
        written += sum(len(key) + len(row or b"") for key, row in effects.rows.items())
    if challengers and not any(key.startswith(kinds.COMPARISON.letter) for key in table):
        raise RuntimeError("nothing was compared: the figures mean nothing")
    return spent, written


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=20_000, help="forecasts of a run (default: %(default)s)")
    n = parser.parse_args().events
    made = events(n)
    found = [[run(*case, made) for case in CASES] for _ in range(RUNS)]
    reason = missing(os.environ)
    print(f"engine: {'interpreted: ' + reason if reason else 'compiled'}; {n:,} forecasts with their outcomes")
    print("| champion | challengers | CPU µs a forecast and its outcome | bytes written |\n| --- | --- | --- | --- |")
    told = []
    for i, (champion, challengers) in enumerate(CASES):
        spent, written = min(turn[i] for turn in found)
        told.append({"champion": champion, "challengers": challengers, "us": spent / n * 1e6, "bytes": written / n})
        names = ", ".join(f"`{name}`" for name in challengers) or "–"
        print(f"| `{champion}` | {names} | {spent / n * 1e6:.1f} | {written / n:.0f} |")
    print(orjson.dumps({"compiled": reason is None, "cases": told}).decode())


if __name__ == "__main__":
    main()
