"""The chaos suite: ``python -m tests.chaos [--brokers 3] [--seed N]``; the same seed draws the same faults.

First workers on their own topics, then sources of other keys behind intake and router, on brokers of their own.
"""

import argparse
import math
import sys
import time
from pathlib import Path

from tests.chaos import campaign, report, sources
from tests.chaos.campaign import Seen
from tests.chaos.faults import KINDS, schedule
from tests.chaos.judge import Verdict


def main() -> int:
    """Run a campaign and judge it; 0 if all is as it is derived again, and promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    names = sorted({kind.name for each in (KINDS, sources.KINDS) for kinds in each.values() for kind in kinds})
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=200_000, help="least events; each is about two records")
    parser.add_argument("--payments", type=int, default=40_000, help="least payments of the sources; about 2.5 records")
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
    began = time.monotonic()
    total, every, good = Verdict(), list[Seen](), True
    brokers = options.brokers
    for name, kinds, workers, partitions, stage, least in (
        ("workers", KINDS[brokers], options.workers, options.partitions, campaign.asked, options.events),
        ("sources of other keys", sources.KINDS[brokers], 1, sources.PARTITIONS, sources.asked, options.payments),
    ):
        drawn = [kind for kind in kinds if kind.name in options.only]
        session = campaign.default_session(brokers)
        faults = schedule(options.seed, workers, session, drawn, partitions)
        if not faults:
            continue
        said = "\n".join(f"  {fault}" for fault in faults)
        print(f"seed {options.seed}, {name}: {len(faults)} faults\n{said}", flush=True)
        with stage(options) as on:
            seen = campaign.run(on, faults, options.minutes * 60)
            verdict, well = campaign.ended(on, least)
            if on.proxies:  # the load notes when forecasts of workers are acknowledged
                campaign.measure(on, seen)
        print(report.table(seen))
        print(report.judged(verdict), flush=True)
        total, every, good = total + verdict, every + seen, good and well
    print(report.conclusion(total, every, time.monotonic() - began))
    return 0 if good and not any(each.broken for each in every) else 1


if __name__ == "__main__":
    sys.exit(main())
