"""How soon a segment that went wrong is found, and how often honest segments raise the recent alarm.

``python -m tests.bench.segment_alarm [--runs N]`` (after ``make data``). The flights' raw forecasts stand
for what is served, in the order in which outcomes came; outcomes are drawn by them. So all is honest, but for a carrier
whose flights happen .2 more often from the middle of the year on (to 1 at most), one carrier and one draw at a time.
The alarm is looked at after every event. Then honest streams alone: the flights' own segments, and 64 and 256 values
drawn at random.
"""

import argparse
import sys
from collections.abc import Iterator

import numpy as np

from lab import flights
from state.arrays import Floats, Integers
from state.scoring.alarm import ALPHA, STAKES
from state.scoring.history import WINDOW
from state.scoring.recent import LEAST, RECENT
from tests.bench.figures import table

OFF = 0.2
SEED = 17
#: Least flights of a carrier in the second half that is made wrong.
FEWEST = 300
#: Of its flights then, those that are played.
MOST = 1000


def windows(of: Integers) -> Integers:
    """Return the window of each event of one segment, from the windows of the stream, [n], as `Recent` divides them."""
    found, n = np.unique(of, return_counts=True)
    number, events, at = 0, 0, np.zeros(len(found), int)
    for i, many in enumerate(n.tolist()):
        if events >= LEAST:
            number, events = number + 1, 0
        at[i] = number
        events += many
    return np.repeat(at, n)


def evidence(p: Floats, y: Floats, window: Integers, least: float) -> Floats:
    """Return the log of the largest wealth that plays after each event of one segment, [n]; -inf if below ``least``."""
    off, variance = (np.concatenate([[0.0], np.cumsum(each)]) for each in (y - p, p * (1.0 - p)))
    starts = np.searchsorted(window, np.arange(window[-1] + 1))
    most = np.full(len(p), -np.inf)
    stakes = np.array(STAKES)
    price = np.expm1(np.abs(stakes)) - np.abs(stakes)
    for number, start in enumerate(starts.tolist()):
        end = int(np.searchsorted(window, number + RECENT, side="right"))
        s, v = off[start + 1 : end + 1] - off[start], variance[start + 1 : end + 1] - variance[start]
        highest = np.maximum.reduce([stake * s - each * v for stake, each in zip(stakes, price, strict=True)])
        for i in np.flatnonzero(highest >= least).tolist():  # the wealth is a mean, so at most the highest
            logs = stakes * s[i] - price * v[i]
            wealth = highest[i] + np.log(np.exp(logs - highest[i]).mean())
            if wealth >= least:
                most[start + i] = max(most[start + i], wealth)
    return most


def resolved(made: flights.Flights) -> Integers:
    """Return the rows that have an outcome in the order in which it came."""
    rows = np.flatnonzero(~np.isnan(made.y))
    return rows[np.argsort(made.outcome_ms[rows], kind="stable")]


def found_after(p: Floats, carrier: Integers, of_stream: Integers, segments: int, runs: int) -> Iterator[list[str]]:
    """Yield a row for each carrier that is made wrong: its share, events until the alarm, and of the stream."""
    middle = len(p) // 2
    level = np.log(segments / ALPHA)
    for which in np.unique(carrier).tolist():
        mine = np.flatnonzero(carrier == which)
        later = int((mine >= middle).sum())
        if later < FEWEST:
            continue
        mine = mine[: (mine < middle).sum() + MOST]
        own, stream, before = [], [], 0
        for run in range(runs):
            rng = np.random.default_rng([SEED, which, run])
            chance = np.where(mine >= middle, np.minimum(p[mine] + OFF, 1.0), p[mine])
            y = (rng.random(len(mine)) < chance).astype(float)
            over = evidence(p[mine], y, windows(of_stream[mine]), level) >= level
            before += int(over[mine < middle].any())
            after = np.flatnonzero(over & (mine >= middle))
            if len(after):
                own.append(int((mine[: after[0] + 1] >= middle).sum()))
                stream.append(int(mine[after[0]]) - middle)
        late = f"{np.mean(own):.0f} ± {np.std(own) / np.sqrt(len(own)):.0f}" if own else "–"
        all_of = f"{np.mean(stream):,.0f}" if stream else "–"
        yield [
            str(which),
            f"{len(mine) - min(later, MOST) + later:,}",
            f"{later:,}",
            f"{len(own)} of {runs}",
            late,
            all_of,
            str(before),
        ]


def false_alarms(p: Floats, names: Integers, of_stream: Integers, runs: int) -> tuple[int, int, float]:
    """Return runs in which any segment raises the alarm, their windows in all, and the most evidence over K, log10.

    Evidence below K is not told apart: -inf.
    """
    alarms, many, most = 0, 0, -np.inf
    slots = [np.flatnonzero(names[:, k] == value) for k in range(names.shape[1]) for value in np.unique(names[:, k])]
    for run in range(runs):
        y = (np.random.default_rng([SEED, 999, run]).random(len(p)) < p).astype(float)
        here = -np.inf
        for mine in slots:
            divided = windows(of_stream[mine])
            many += int(divided[-1]) + 1
            here = max(here, float(evidence(p[mine], y[mine], divided, np.log(len(slots))).max()))
        here = (here - np.log(len(slots))) / np.log(10.0)
        alarms += here >= -np.log10(ALPHA)
        most = max(most, here)
    return alarms, many, most


def main() -> int:
    """Play and print; return the exit status."""
    parser = argparse.ArgumentParser(description="the recent alarm by segment")
    parser.add_argument("--runs", type=int, default=20, help="draws of outcomes")
    given = parser.parse_args()
    made = flights.load()
    rows = resolved(made)
    p, of_stream = made.p[rows], np.arange(len(rows)) // WINDOW
    own = np.column_stack(
        [np.unique([each[name] for each in made.segments], return_inverse=True)[1][rows] for name in flights.SEGMENTS]
    )
    segments = sum(len(np.unique(own[:, k])) for k in range(own.shape[1]))
    late = list(found_after(p, own[:, 0], of_stream, segments, given.runs))
    head = ("carrier", "events", "after the middle", "found", "own events until", "of the stream", "alarms before")
    print(table(head, late), flush=True)
    rng = np.random.default_rng(SEED)
    drawn = {
        f"{segments} of the flights": own,
        "64 at random": rng.integers(0, 32, (len(p), 2)),
        "256 at random": rng.integers(0, 64, (len(p), 4)),
    }
    lines = []
    for name, values in drawn.items():
        alarms, many, most = false_alarms(p, values, of_stream, given.runs)
        lines.append([name, f"{given.runs * len(p):,}", f"{many:,}", f"{alarms} of {given.runs}", f"{most:.2f}"])
        print(
            table(("honest segments", "events", "their windows", "runs with an alarm", "most, log10"), lines),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
