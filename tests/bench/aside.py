"""How long records wait while large batches of another partition are unpacked: in a thread, and where they are read.

``python -m tests.bench.aside [--batches N]``

aiokafka's own fetcher reads a log in memory, so that no broker takes part. A small batch of one partition comes every
5 ms, and a large one of another every 200 ms. Printed is how long the records of the small batches waited to be handed
over, as quantiles over all of them. The last line is one JSON object.
"""

import argparse
import asyncio
import time

import orjson
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.structs import TopicPartition

from streams.faust.producing import RecordBatch
from streams.faust.unpacking import LIMIT, Aside, Prefetched
from streams.kafka.codecs import NUMBERS
from tests.bench.figures import quantile, table
from tests.streams.log import Log

SMALL, LARGE = (TopicPartition("forecasts", n) for n in range(2))
#: Between two small batches, s, and how many there are for each large one.
EVERY, EACH = 0.005, 40
QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
#: Codec and MiB of the large batches: beyond the bound, and just within it.
KINDS = (("zstd", 200), ("zstd", 31), ("lz4", 200), ("gzip", 200), ("gzip", 31), ("snappy", 31))


def batch(codec: str, value: bytes) -> bytes:
    """Return a record batch of one record, as a broker keeps it."""
    made = RecordBatch(len(value) + 10_000, NUMBERS[codec])
    made.extend([(b"key", value, 1000, [])])
    return made.sealed(7, 1, 0)


async def waits(codec: str, mib: int, batches: int, *, aside: bool) -> list[float]:
    """Return how long the records of the small batches waited, ms, in order."""
    log, subscriptions = Log(), SubscriptionState()
    fetcher = Fetcher(log, subscriptions)
    fetcher._records = Prefetched(lambda _: LIMIT, aside=Aside(fetcher) if aside else None)
    subscriptions.assign_from_user({SMALL, LARGE})
    for tp in (SMALL, LARGE):
        fetcher.seek_to(tp, 0)
    small, large = batch(codec, bytes(100)), batch(codec, bytes(mib << 20))
    sent: list[float] = []

    async def send() -> None:
        began = time.perf_counter()
        for n in range(batches * EACH):
            sent.append(began + n * EVERY)
            await asyncio.sleep(sent[-1] - time.perf_counter())
            log.append(SMALL, small)
            if n % EACH == 0:
                log.append(LARGE, large)

    sending, waited, left = asyncio.create_task(send()), list[float](), batches
    while len(waited) < batches * EACH or left:
        for tp, records in (await fetcher.fetched_records([], 1.0)).items():
            if tp == SMALL:
                waited += [(time.perf_counter() - sent[record.offset]) * 1000 for record in records]
            else:
                left -= len(records)
    await sending
    await fetcher.close()
    return sorted(waited)


def main() -> None:
    """Measure each kind both ways, and print the quantiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=30, help="large batches of each kind, each way")
    options = parser.parse_args()
    found = {}
    for codec, mib in KINDS:
        for aside in (False, True):
            ordered = asyncio.run(waits(codec, mib, options.batches, aside=aside))
            name = f"{codec}, {mib} MiB, {'in a thread' if aside else 'where it is read'}"
            found[name] = {key: quantile(ordered, q) for key, q in QUANTILES.items()}
    lines = [[name, *(f"{figures[key]:,.2f}" for key in QUANTILES)] for name, figures in found.items()]
    print(table(["", *QUANTILES], lines))
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    main()
