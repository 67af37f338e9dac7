"""The simulation: ``python -m tests.simulation [--seconds 60] [--jobs 2] [--mutant WORDS]``; see CONTRIBUTING.md.

Plays histories of one seed after another, and ends at the first that does not end as it must: with its seed, the fewest
faults with which it still fails, and what happened in words.
"""

import argparse
import os
import sys
from contextlib import nullcontext
from statistics import median
from typing import Final

#: Within so many histories planted bugs are to be found, but for rare ones.
SOON: Final = 400
#: Sets have the same order in every process, and the product is the one that can be changed while it runs.
FIXED: Final = {"PYTHONHASHSEED": "0", "TRUEUP_COMPILED": "no"}


def main() -> int:
    """Play what was asked for; the status is 1 if a history failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play the history of one seed, and say what happens in it")
    parser.add_argument("--faults", help="with these of its faults alone, by their numbers, as 0,3; or none")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--histories", type=int, default=sys.maxsize, help="how many at most")
    parser.add_argument("--first", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with its share of the seeds (default: 1)")
    parser.add_argument("--mutant", default="", help="with a planted bug, by words of its name")
    parser.add_argument("--mutants", action="store_true", help="with each planted bug, until it is found")
    parser.add_argument("--starts", type=int, default=1, help="so often, from other seeds; the median counts")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in FIXED.items()):
        os.execve(  # noqa: S606 - this program again
            sys.executable,
            [sys.executable, "-W", "ignore", "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, **FIXED},
        )
    from tests.simulation import runs  # noqa: PLC0415 - under the right environment alone
    from tests.simulation.plan import planned  # noqa: PLC0415 - as above
    from tests.simulation.planting import MUTANTS, planted  # noqa: PLC0415 - as above
    from tests.simulation.playing import simulated  # noqa: PLC0415 - as above

    if options.mutants:
        return _mutants(options.first, options.histories, options.jobs, options.starts, options.mutant)
    mutant = next(name for name in MUTANTS if options.mutant in name) if options.mutant else ""
    if options.seed is not None:
        plan = planned(options.seed)
        asked = options.faults and options.faults.split(",")
        left = [n for n in range(len(plan.faults)) if not asked or str(n) in asked]
        with simulated(), planted(mutant) if mutant else nullcontext():
            said, well = runs.told(plan, left)
        print(said)
        return int(not well)
    found = runs.play(options.first, options.histories, options.seconds, options.jobs, mutant)
    kinds = ", ".join(f"{n} {kind}" for kind, n in found.struck.most_common())
    if found.failed:
        print(found.failed)
    print(f"{found.histories} histories, {found.records:,} records, {found.struck.total()} faults: {kinds}")
    if not found.failed:
        often = found.struck.total() / found.seconds
        print(f"nothing was lost, doubled or answered in two ways; {found.seconds:.1f} s of CPU, {often:.1f} faults/s")
    return int(bool(found.failed))


def _mutants(first: int, histories: int, jobs: int, starts: int, words: str) -> int:
    """Look for each planted bug, and say how soon it was found; for the rare ones, too, if it may take long."""
    from tests.simulation import runs  # noqa: PLC0415 - as in `main`
    from tests.simulation.planting import MUTANTS, RARE  # noqa: PLC0415 - as above

    most = SOON if histories == sys.maxsize else histories
    names = [name for name in MUTANTS if words in name and (name not in RARE or most > SOON)]
    found = list[tuple[int, float]]()
    print("histories  seconds  planted bug: how it shows")
    for name, n, seconds, wrong in runs.hunt(first, most, jobs, names, starts):
        found += [(n, seconds)] * bool(wrong)
        print(f"{n:9} {seconds:8.1f}  {name}: {wrong or 'NOT FOUND'}"[:200], flush=True)
    print(f"{len(found)} of {len(names)} planted bugs were found")
    if found:
        print("medians: {:.0f} histories, {:.1f} s of CPU".format(*map(median, zip(*found, strict=True))))
    return int(len(found) < len(names))


if __name__ == "__main__":
    sys.exit(main())
