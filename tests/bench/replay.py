"""Records a second of ``trueup replay`` on one core, from JSON lines, by configuration.

``python -m tests.bench.replay [--flights N] [--repeat R]``: replays the flights from files into one partition, in one
process, with nothing written: first each configuration alone, then several side by side. The table gives the fastest
run of each; the last line is one JSON object. ``empty`` is a pass that reads and decodes the records and does nothing
with them. ``--cpu`` counts CPU seconds instead of the clock's, for machines that do other things too. With
TRUEUP_COMPILED=yes it runs the compiled engine.
"""

import argparse
import tempfile
import time
from pathlib import Path

import orjson

from agents import compiled
from lab import demo
from replay.configuration import Configuration, configurations
from replay.player import PartitionReplay, decoded, run
from replay.processes import seldom_collected
from replay.sources.files import FileSource
from replay.sources.merge import merged
from state.fence import FORECASTS, OUTCOMES
from streams.config.settings import Settings
from streams.records.decoding import Decoder
from streams.records.limits import Limits

ALONE = (
    "identity",
    "histogram",
    "prudent+certified",
    "minimax",
    "regret_matching",
    "platt",
    "platt+regret_matching",
)
TOGETHER = ("minimax", "regret_matching", "platt+regret_matching")


def part(source: FileSource, made: list[Configuration], directory: Path) -> PartitionReplay:
    """Return a pass over the only partition."""
    return PartitionReplay(source, 0, [made], Limits(), None, directory)


def empty(source: FileSource, made: list[Configuration]) -> None:
    """Read, merge and decode."""
    decoder = Decoder(made[0].policies, Limits())
    for chunk in merged(source.read(FORECASTS, 0), source.read(OUTCOMES, 0)):
        decoded(decoder, chunk.records)


def main() -> None:
    """Measure, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flights", type=int, default=20_000, help="how many to replay")
    parser.add_argument("--repeat", type=int, default=10, help="runs of each")
    parser.add_argument("--cpu", action="store_true", help="count CPU seconds")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    settings = Settings.from_env({})
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary, seldom_collected():
        directory = Path(temporary)
        demo.export(options.flights, directory)
        paths = directory / "forecasts.jsonl", directory / "outcomes.jsonl"
        records = sum(path.read_bytes().count(b"\n") for path in paths)
        source = FileSource(*paths)
        for names in (("empty",), *((name,) for name in ALONE), TOGETHER):
            made = configurations(settings, ["identity"] if names == ("empty",) else names, [])
            took = []
            for i in range(options.repeat):
                began = clock()
                if names == ("empty",):
                    empty(source, made)
                else:
                    run(part(source, made, directory / f"{'-'.join(names)}-{i}"))
                took.append(clock() - began)
            found[" | ".join(names)] = len(names) * records / min(took)
    engine = "compiled" if compiled.runs() else "interpreted"
    print(
        f"{records:,} records, one process, fastest of {options.repeat}; {'CPU' if options.cpu else 'clock'}; {engine}"
    )
    print(f"{'':60}{'events/s a configuration':>26}")
    for name, rate in found.items():
        print(f"{name:60}{rate:>26,.0f}")
    print(orjson.dumps({name: round(rate) for name, rate in found.items()}).decode())


if __name__ == "__main__":
    main()
