"""What each codec makes of a worker's own batches: how small, and what writing and reading them costs.

``python -m tests.bench.codecs [--calibrator NAME ...] [--sizes 10,100,4000]``

The records of a backlog go through the engine in batches of each size. What it would append to the changelog and to the
two topics of answers is packed by each codec, as a worker packs it, and unpacked as a consumer does. Ratios are bytes
without a codec over bytes with it, of whole record batches, headers included; times are the least of five runs, us an
event, an outcome being an event of its own. The last line is one JSON object.
"""

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Final

import orjson
from aiokafka.record.default_records import DefaultRecordBatch

from agents.worker import collect_rarely
from state.engine import Partition
from state.policy import DEFAULT_CALIBRATOR, Policies, Policy
from streams.config.settings import Settings
from streams.faust.producing import Produced, RecordBatch
from streams.records.decoding import Decoder
from streams.records.encoding import encoded
from streams.records.limits import Limits
from streams.records.merge import Merged
from tests.bench.figures import table
from tests.bench.parts import records

#: Kafka's codecs by their number in a record batch.
CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TOPICS: Final = ("changelog", "calibrated", "resolved")
RUNS = 5

Packed = list[Produced]


def batches(calibrator: str, made: list[Merged], size: int) -> dict[str, list[Packed]]:
    """Return the records of each batch that a worker would append, by topic."""
    policies, settings = Policies(default=Policy(calibrator)), Settings()
    rows: dict[bytes, bytes | None] = {}
    partition, decoder = Partition(policies, rows.get), Decoder(policies, Limits())
    found: dict[str, list[Packed]] = {topic: [] for topic in TOPICS}
    for at in range(0, len(made), size):
        effects = partition.fold(decoder.events(made[at : at + size]))
        rows.update(effects.rows)
        found["changelog"].append([(key, value, None, []) for key, value in effects.rows.items()])
        for topic, answers in encoded(effects.outputs, settings, 0).items():
            if topic in found and answers:
                found[topic].append(list(answers))
    return found


def packed(codec: int, batch: Packed) -> bytes:
    """Return the bytes of a record batch."""
    builder = RecordBatch(8_000_000, codec)
    if builder.extend(batch) < len(batch):
        raise ValueError("the records do not fit")
    return bytes(builder.sealed(1, 0, 0))


def read(data: bytes) -> int:
    """Unpack a batch and return how many records it held."""
    return sum(1 for _ in DefaultRecordBatch(data))


def least(work: Callable[[], object]) -> float:
    """Return the least time of the runs, s."""
    best = float("inf")
    for _ in range(RUNS):
        began = perf_counter()
        work()
        best = min(best, perf_counter() - began)
    return best


def measure(found: dict[str, list[Packed]], events: int) -> dict[str, dict[str, float]]:
    """Return ratios and times of each codec over what `batches` gave."""
    figures: dict[str, dict[str, float]] = {}
    plain: dict[str, int] = {}
    for codec, number in CODECS.items():
        sealed = {topic: [packed(number, batch) for batch in each] for topic, each in found.items()}
        sizes = {topic: sum(map(len, each)) for topic, each in sealed.items()}
        plain = plain or sizes
        writing = least(lambda n=number: [packed(n, batch) for each in found.values() for batch in each])  # type: ignore[misc]
        reading = least(lambda s=sealed: [read(data) for each in s.values() for data in each])  # type: ignore[misc]
        figures[codec] = {
            **{topic: plain[topic] / sizes[topic] for topic in TOPICS},
            "all": sum(plain.values()) / sum(sizes.values()),
            "bytes_per_event": sum(sizes.values()) / events,
            "write_us": writing / events * 1e6,
            "read_us": reading / events * 1e6,
        }
    return figures


def main() -> None:
    """Measure, and print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrator", action="append", help="may be repeated")
    parser.add_argument("--sizes", default="10,100,4000")
    options = parser.parse_args()
    collect_rarely()
    found: dict[str, dict[str, float]] = {}
    for calibrator in options.calibrator or [DEFAULT_CALIBRATOR]:
        for size in map(int, options.sizes.split(",")):
            made = records(min(40_000, 200 * size + 6_000))
            for codec, figures in measure(batches(calibrator, made, size), len(made)).items():
                found[f"{calibrator}, {size:,}, {codec}"] = figures
    names = [*TOPICS, "all", "bytes_per_event", "write_us", "read_us"]
    print("ratios by topic, bytes and us an event")
    print(table(["batch, codec", *names], [[name, *(f"{one[n]:.2f}" for n in names)] for name, one in found.items()]))
    print(orjson.dumps({name: {k: round(v, 3) for k, v in one.items()} for name, one in found.items()}).decode())


if __name__ == "__main__":
    main()
