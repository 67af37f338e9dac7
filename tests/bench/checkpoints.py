"""What rows cost: the engine alone, in memory, with a checkpoint of every batch and with one every 20,000 events.

``python -m tests.bench.checkpoints [--calibrator NAME] [--events N]``

Events of streams that take turns, half forecasts, half outcomes of 200 forecasts before. Processor time, so other
processes hardly matter. Bytes are those of the rows before they are packed.
"""

import argparse
import random
import time
from collections import deque
from itertools import pairwise
from statistics import median

from agents import compiled
from agents.served import CHECKPOINT_RECORDS
from state.engine import Partition
from state.events import Event, Forecast, Outcome
from state.policies import Policies
from state.policy import DEFAULT_CALIBRATOR, Policy
from streams.config.settings import Settings
from tests.bench.figures import table

#: Outcomes come so many forecasts later.
BEHIND = 200


def events(n: int, streams: int) -> list[Event]:
    """Return so many events of so many streams, in order."""
    rng, made, waiting, outcomes = random.Random(1), list[Event](), deque[tuple[str, int]](), 0
    for i in range(n // 2):
        raw, event_id, ts = rng.random(), f"event-{i}", 1_700_000_000_000 + 1000 * i
        made.append(Forecast(i, event_id.encode(), event_id, f"s{i % streams}", raw, (), ts, b""))
        waiting.append((event_id, int(rng.random() < raw)))
        if len(waiting) > BEHIND:
            of, y = waiting.popleft()
            made.append(Outcome(outcomes, of.encode(), of, float(y), ts, b"", 0))
            outcomes += 1
    return made


def measure(calibrator: str, made: list[Event], batch: int, every: int) -> tuple[float, float, float, float]:
    """Return processor time, us, and bytes of rows an event, and the time of a checkpoint and its longest slice, ms.

    The times are medians over the checkpoints: the longest of all says how busy the machine was.
    """
    rows: dict[bytes, bytes] = {}
    partition = Partition(Policies([("*", Policy(calibrator))]), rows.get)
    size = since = 0
    whole, longest = [0.0], [0.0]
    began = time.process_time()
    for at in range(0, len(made), batch):
        partition.begin()
        partition.apply(made[at : at + batch])
        partition.end()
        since += batch
        if since >= every or partition.weight > Settings().enough_bytes:
            since = 0
            times = [time.process_time()]
            changes = partition.freeze()
            times.append(time.process_time())
            times += [time.process_time() for _ in changes.slices()]
            times.append(time.process_time())
            whole.append(times[-1] - times[0])
            longest.append(max(after - before for before, after in pairwise(times)))
            for key, row in changes.rows.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
                    size += len(row)
    spent = (time.process_time() - began) / len(made) * 1e6
    return spent, size / len(made), median(whole) * 1000, median(longest) * 1000


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrator", action="append", help="may be repeated")
    parser.add_argument("--events", type=int, default=40_000)
    options = parser.parse_args()
    found = []
    for calibrator in options.calibrator or [DEFAULT_CALIBRATOR, "histogram"]:
        for streams in (1, 100, 5000, 10_000):
            made = events(options.events, streams)
            for batch in (10, 500):
                both = [measure(calibrator, made, batch, every) for every in (batch, CHECKPOINT_RECORDS)]
                found.append(
                    [calibrator, f"{streams:,}", f"{batch}"]
                    + [f"{us:.1f} us, {size:,.0f} B" for us, size, _, _ in both]
                    + [f"{whole:.1f} ms, {longest:.1f}" for _, _, whole, longest in both[1:]]
                )
    print("compiled" if compiled.runs() else "interpreted")
    print(table(["calibrator", "streams", "batches of", "rows of every batch", "checkpoints", "one, slice"], found))


if __name__ == "__main__":
    main()
