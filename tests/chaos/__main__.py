"""The chaos suite: ``python -m tests.chaos [--seed N]``; the same seed draws the same faults."""

import argparse
import sys
import time
from pathlib import Path

from tests.chaos import campaign, report
from tests.chaos.faults import KINDS, schedule


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
    kinds = [kind for kind in KINDS if kind.__name__ in options.only]
    faults = schedule(options.seed, options.workers, campaign.SESSION, kinds)
    print(f"seed {options.seed}: {len(faults)} faults\n" + "\n".join(f"  {fault}" for fault in faults), flush=True)
    began = time.monotonic()
    with campaign.asked(options, "chaos") as on:
        seen = campaign.run(on, faults)
        verdict, good = campaign.judged(on, options.events)
    print(report.table(seen))
    print(report.conclusion(verdict, len(faults), time.monotonic() - began))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
