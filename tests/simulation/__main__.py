"""The simulation: ``python -m tests.simulation [--seconds 60] [--seed N] [--mutant WORDS]``; see CONTRIBUTING.md.

Plays histories of one seed after another, and ends at the first that does not end as it must: with its seed, the fewest
faults with which it still fails, and what happened in words.
"""

import argparse
import os
import sys
from collections import Counter
from contextlib import nullcontext
from time import monotonic, process_time
from typing import Final

#: Within so many histories planted bugs are to be found, but for rare ones.
SOON: Final = 400
#: Sets have the same order in every process, and the product is the one that can be changed while it runs.
FIXED: Final = {"PYTHONHASHSEED": "0", "TRUEUP_COMPILED": "no"}


def main() -> int:
    """Play what was asked for; the status is 1 if a history failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play the history of one seed, and say what happens in it")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--histories", type=int, default=sys.maxsize, help="how many at most")
    parser.add_argument("--first", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--mutant", help="with a planted bug, by words of its name")
    parser.add_argument("--mutants", action="store_true", help="with each planted bug, until it is found")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in FIXED.items()):
        os.execve(  # noqa: S606 - this program again
            sys.executable,
            [sys.executable, "-W", "ignore", "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, **FIXED},
        )
    from tests.simulation.mutants import MUTANTS, planted  # noqa: PLC0415 - under the right environment alone
    from tests.simulation.plan import planned  # noqa: PLC0415 - as above
    from tests.simulation.playing import simulated  # noqa: PLC0415 - as above
    from tests.simulation.shrink import failing, told  # noqa: PLC0415 - as above

    if options.mutants:
        return _mutants(SOON if options.histories == sys.maxsize else options.histories, options.first)
    mutant = next(name for name in MUTANTS if options.mutant in name) if options.mutant else ""
    with simulated(), planted(mutant) if mutant else nullcontext():
        if options.seed is not None:
            print(told(planned(options.seed)))
            return int(failing(planned(options.seed)) is not None)
        end, played, struck, records = monotonic() + options.seconds, 0, Counter[str](), 0
        while played < options.histories and monotonic() < end:
            plan = planned(options.first + played)
            played, records = played + 1, records + len(plan.records)
            wrong = failing(plan, struck)
            if wrong is not None:
                print(f"seed {plan.seed}, after {played} histories: {wrong}\n\n{told(plan, shorten=not mutant)}\n")
                print(f"make simulate SEED={plan.seed}")
                return 1
    kinds = ", ".join(f"{n} {kind}" for kind, n in struck.most_common())
    print(f"{played} histories, {records:,} records, {struck.total()} faults: {kinds}")
    print(f"nothing was lost, doubled or answered in two ways; {process_time():.0f} s of CPU")
    return 0


def _mutants(histories: int, first: int) -> int:
    """Look for each planted bug, and say how soon it was found."""
    from tests.simulation.mutants import MUTANTS, RARE, planted  # noqa: PLC0415 - as in `main`
    from tests.simulation.plan import planned  # noqa: PLC0415 - as above
    from tests.simulation.playing import simulated  # noqa: PLC0415 - as above
    from tests.simulation.shrink import failing  # noqa: PLC0415 - as above

    missed, most = 0, min(histories, 5000)
    names = [name for name in MUTANTS if name not in RARE or most > SOON]
    with simulated():
        for name in names:
            began, wrong, n = process_time(), None, 0
            with planted(name):
                while wrong is None and n < most:
                    n += 1
                    wrong = failing(planned(first + n - 1))
            missed += wrong is None
            seconds = process_time() - began
            print(f"{n:4} {seconds:6.1f} s  {name}: {wrong or 'NOT FOUND'}"[:200], flush=True)
    print(f"{len(names) - missed} of {len(names)} planted bugs were found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
