"""The chaos suite: ``python -m tests.chaos [--brokers 3] [--seed N]``; the same seed draws the same faults."""

import argparse
import math
import sys
import time
from pathlib import Path

from tests.chaos import campaign, report
from tests.chaos.faults import kinds, schedule


def main() -> int:
    """Run a campaign and judge it; 0 if nothing was lost, doubled or answered in two ways, and promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    names = sorted({kind.__name__ for brokers in (1, 3) for kind in kinds(brokers)})
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=200_000, help="least events; each is about two records")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="three replicate everything")
    parser.add_argument("--standbys", type=int, default=1, help="copies of each partition on other workers")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second while faults are injected")
    parser.add_argument("--minutes", type=float, default=math.inf, help="faults that have not begun then are left out")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="kinds of faults")
    parser.add_argument(
        "--directory", type=Path, help="where logs, disks and broker are kept; default: a temporary one"
    )
    options = parser.parse_args()
    drawn = [kind for kind in kinds(options.brokers) if kind.__name__ in options.only]
    session = campaign.default_session(options.brokers)
    faults = schedule(options.seed, options.workers, session, drawn, options.partitions)
    print(f"seed {options.seed}: {len(faults)} faults\n" + "\n".join(f"  {fault}" for fault in faults), flush=True)
    began = time.monotonic()
    with campaign.asked(options, "chaos") as on:
        seen = campaign.run(on, faults, options.minutes * 60)
        verdict, good = campaign.judged(on, options.events)
        campaign.measure(on, seen)
    print(report.table(seen))
    print(report.conclusion(verdict, seen, time.monotonic() - began))
    return 0 if good and not any(each.broken for each in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
