"""The chaos suite: ``python -m tests.chaos [--seed N]``; the same seed draws the same faults."""

import argparse
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos import campaign, report
from tests.chaos.faults import KINDS, schedule
from tests.chaos.judge import judge_all


def main() -> int:
    """Run a campaign and judge it; 0 if nothing was lost, doubled or answered in two ways."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    names = [kind.__name__ for kind in KINDS]
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=200_000, help="least events; each is about two records")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second while faults are injected")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="kinds of faults")
    parser.add_argument(
        "--directory", type=Path, help="where logs, disks and broker are kept; default: a temporary one"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves workers, mounts and broker in order
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the load's client tells every outage in dozens of lines
    kinds = [kind for kind in KINDS if kind.__name__ in options.only]
    faults = schedule(options.seed, options.workers, campaign.SESSION, kinds)
    print(f"seed {options.seed}: {len(faults)} faults\n" + "\n".join(f"  {fault}" for fault in faults), flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trueup-chaos-") as temporary:
        directory = options.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with campaign.stage(
            directory,
            workers=options.workers,
            partitions=options.partitions,
            seed=options.seed,
            rate=options.rate,
        ) as on:
            seen = campaign.run(on, faults)
            statuses = campaign.drain(on, options.events)
            print(f"stopped with {statuses}; judging", file=sys.stderr, flush=True)
            verdict = judge_all(on.world)
    print(report.table(seen))
    print(report.conclusion(verdict, len(faults), time.monotonic() - began))
    return 0 if verdict.good and not any(statuses) else 1


if __name__ == "__main__":
    sys.exit(main())
