"""What outcomes leave open of a score: four forms of an interval, and how often each holds the true risk.

``python -m research.intervals [--seeds 10,11,12] [--rows N]``: plays `prudent` over made payments with segments, whose
true risk is known, learnt after 45 days, and over the flights, by tenths of score and time.
docs/explanation/calibrators.md, *Intervals*, has the table. Constants were chosen on other streams.

- *counts*: Wilson's interval of the outcomes of the band of the raw score.
- *parameters*: the curvatures of the map, its bend and its segments (`TwoSpeed`, `BySegment`), as a normal law.
- *certificate*: the measured error of the draws around the score, the same for all.
- *expected*: outcomes against what is served now would have expected, `state.evidence`: this is served.
"""

# ruff: noqa: SLF001 - one form looks at what calibrators keep to themselves

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from lab import flights, fraud
from lab.fraud import Shape
from replay.intervals import described
from state import evidence
from state.arrays import Floats
from state.calibrators.by_segment import IN_FAST, IN_KNOT, KNOTS, _place
from state.calibrators.logistic import P_CLIP
from state.calibrators.prudent import Prudent
from state.calibrators.two_scales import itself
from state.evidence import Evidence, band_of
from state.odds import cut_log_odds, probability
from state.scoring.ages import DAY_MS
from state.scoring.wilson import wilson

LEVEL: Final = 0.9
WIDE: Final = NormalDist().inv_cdf(0.5 + LEVEL / 2)
FORMS: Final = ("counts", "parameters", "certificate", "expected")
SHAPES: Final = {
    "payments": Shape(),
    "a quarter of them": Shape(rows=30_000),
    "2 % of fraud": Shape(rows=30_000, rate=0.02, inflation=15.0),
    "drift by e": Shape(drift=1.0),
}
#: Days from which intervals are judged: the first payments matured on day 45.
FROM: Final = 60.0


@dataclass
class Played:
    """Scores, [n], and by form the ends of their intervals, [n, forms, 2]."""

    p: Floats
    ends: Floats


def play(
    raw: Sequence[float], groups: Sequence[tuple[int, ...]], events: Iterable[tuple[int, int, float | None]]
) -> Played:
    """Answer and learn in order of time, ms; of an event without a label the row is answered, else it is learnt."""
    calibrator = Prudent(name="research")
    served, tickets = np.zeros(len(raw)), [b""] * len(raw)
    ends = np.zeros((len(raw), len(FORMS), 2))
    counts: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    known: dict[int, Evidence] = defaultdict(Evidence)
    for i, ms, y in events:
        band, of = band_of(raw[i]), (known[0], [known[slot] for slot in groups[i]])
        if y is None:
            p, _, tickets[i] = calibrator.predict(raw[i], (), b"%d" % i, groups[i])
            served[i] = p
            evidence.issue(band, p, *of)
            n, ones = counts[band]
            off = calibrator.error() or 1.0
            half = WIDE * _spread(calibrator, raw[i], groups[i])
            v = cut_log_odds(p)
            ends[i] = [
                wilson(ones / n, n * (1.96 / WIDE) ** 2) if n else (0.0, 1.0),
                (probability(v - half), probability(v + half)),
                (p - off, p + off),
                evidence.interval(band, p, WIDE, *of),
            ]
            continue
        counts[band][0] += 1.0
        counts[band][1] += y
        evidence.learn(band, y, *of)
        calibrator.update(tickets[i], y, ms)
    return Played(served, ends)


def _spread(calibrator: Prudent, raw: float, groups: tuple[int, ...]) -> float:
    """Return the standard deviation of a score's log-odds by the curvatures; large before there is evidence."""
    both: Any = calibrator._map
    if not both.evident():
        return 10.0
    z = both._ends.read(cut_log_odds(min(max(raw, P_CLIP), 1.0 - P_CLIP)))
    scales = (z, itself(z), 1.0)
    found = sum(map(mul, scales, both._slow._solved(*scales)))
    segments: Any = calibrator._segments
    j, right = _place(both._mapped(z))
    for slot in groups:
        row = segments._rows.get(slot) or [0.0, IN_FAST, *[0.0] * KNOTS, *[IN_KNOT] * KNOTS]
        found += (1.0 - right) ** 2 / row[2 + KNOTS + j] + right**2 / row[3 + KNOTS + j] + segments._share**2 / row[1]
    return math.sqrt(found)


def slots(columns: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the slots of each row: 64 a column, one a value."""
    numbers = [64 * k + 2 + np.unique(column, return_inverse=True)[1].clip(max=61) for k, column in enumerate(columns)]
    return [tuple(each) for each in np.column_stack(numbers).tolist()]


def payments(shape: Shape) -> tuple[Played, fraud.Fraud]:
    """Play made payments, learnt after 45 days with the label they have in the end."""
    stream = fraud.make(shape)
    n, ms = len(stream), np.concatenate([stream.forecast_ms, stream.forecast_ms + 45 * DAY_MS])
    events = (
        (k % n, int(ms[k]), None if k < n else float(stream.y[k % n])) for k in np.argsort(ms, kind="stable").tolist()
    )
    return play(stream.raw.tolist(), slots([stream.country, stream.channel]), events), stream


def main() -> None:
    """Print coverage and mean width in log-odds of each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="10,11,12")
    parser.add_argument("--rows", type=int, default=100_000, help="flights")
    options = parser.parse_args()
    print("| stream | " + " | ".join(FORMS) + " |\n| --- |" + " --- |" * len(FORMS))
    for name, shape in SHAPES.items():
        found = []
        for seed in map(int, options.seeds.split(",")):
            played, stream = payments(Shape(**{**vars(shape), "seed": seed}))
            chosen = stream.days >= FROM
            low, high = np.moveaxis(played.ends[chosen], 2, 0)
            truth = stream.truth[chosen, None]
            found.append(np.stack([((low <= truth) & (truth <= high)).mean(axis=0), _width(low, high)]))
        _show(name, np.mean(found, axis=0))
    flown = flights.load(options.rows)
    known = np.flatnonzero(flown.known)
    ms, n = np.concatenate([flown.forecast_ms, flown.outcome_ms[known]]), len(flown)
    rows = np.concatenate([np.arange(n), known])
    events = (
        (int(rows[k]), int(ms[k]), None if k < n else float(flown.y[rows[k]]))
        for k in np.argsort(ms, kind="stable").tolist()
    )
    names = sorted(flown.segments[0])
    played = play(flown.p.tolist(), slots([[each[name] for each in flown.segments] for name in names]), events)
    known = known[len(known) // 5 :]
    time, y, p = flown.forecast_ms[known], flown.y[known], played.p[known]
    ends = [played.ends[known, n] for n in range(len(FORMS))]
    inside = [described(LEVEL, each[:, 0], p, each[:, 1], y, time)["inside"] for each in ends]
    _show("flights, groups", np.stack([inside, [float(_width(*each.T)) for each in ends]]))


def _width(low: Floats, high: Floats) -> Any:  # noqa: ANN401 - a number or several
    ends = [np.log(each / (1.0 - each)) for each in (low.clip(1e-6, 1 - 1e-6), high.clip(1e-6, 1 - 1e-6))]
    return (ends[1] - ends[0]).mean(axis=0)


def _show(name: str, found: Floats) -> None:
    cells = [f"{100 * share:.0f} % ({wide:.1f})" for share, wide in found.T]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
