"""What another number of partitions costs the scores: ``python -m tests.bench.rescaled``.

The first 60,000 flights, keyed by event. After half of them two partitions become eight, and eight become two. Beside
them groups that had as many partitions all along, and groups that begin anew. Printed is the Brier score of what was
served to the flights that follow.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Final

from agents import compiled

compiled.prefer(os.environ)

from lab import flights  # noqa: E402 - the compiled engine is chosen before the first import
from state.events import Calibrated  # noqa: E402
from state.policy import Policies, Policy  # noqa: E402
from tests.state.histories import Table  # noqa: E402
from tests.state.test_rescale import Group  # noqa: E402

FLIGHTS: Final = 60_000
HALF: Final = FLIGHTS // 2
POLICIES: Final = Policies([("flights", Policy())])
#: Time, whether it is an outcome, and the flight's number.
Record = tuple[int, bool, int]


def play(group: Group, made: flights.Flights, records: Iterable[Record]) -> dict[int, float]:
    """Feed a group, and return what was served by the flight's number."""
    served: dict[int, float] = {}
    for ts, is_outcome, i in records:
        if is_outcome:
            group.outcome(made.event_id[i], "flights", float(made.y[i]), ts)
            continue
        for output in group.forecast(made.event_id[i], "flights", float(made.p[i]), ts):
            if isinstance(output, Calibrated) and isinstance(output.p, float):
                served[i] = output.p
    return served


def brier(made: flights.Flights, served: Mapping[int, float], until: int) -> float:
    """Return the mean Brier score from the half up to a flight."""
    squares = [(served[i] - float(made.y[i])) ** 2 for i in range(HALF, until) if made.known[i]]
    return sum(squares) / len(squares)


def main() -> None:
    """Print the table."""
    made = flights.load(FLIGHTS)
    records = [(int(ts), False, i) for i, ts in enumerate(made.forecast_ms)]
    records += [(int(made.outcome_ms[i]), True, i) for i in range(len(made)) if made.known[i]]
    records.sort()
    cut = int(made.forecast_ms[HALF])
    before, after = ([each for each in records if (each[0] >= cut) == late] for late in (False, True))

    def show(name: str, served: Mapping[int, float]) -> None:
        scores = [brier(made, served, HALF + n) for n in (10_000, HALF)]
        print(f"{name:12} next 10,000: {scores[0]:.4f}, next 30,000: {scores[1]:.4f}", flush=True)

    show("raw", dict(enumerate(made.p.tolist())))
    tables: dict[int, list[Table]] = {}
    for width in (2, 8):
        group = Group(POLICIES, [Table() for _ in range(width)])
        play(group, made, before)
        tables[width] = [Table(table) for table in group.tables]
        show(f"{width} all along", play(group, made, after))
        show(f"{width} anew", play(Group(POLICIES, [Table() for _ in range(width)]), made, after))
    for was, now in ((2, 8), (8, 2)):
        show(f"{was} to {now}", play(Group(POLICIES, tables[was]).rescaled(now), made, after))


if __name__ == "__main__":
    main()
