"""Labels that are late beside labels that are missing: what `state.coverage` withholds, and what that costs.

``TRUEUP_COMPILED=no python -m research.late_labels [--seeds 11,12,13,14]``: made streams of 12,000 forecasts in
180 days, with honest scores and with scores 2.5 log-odds too high. `LATE` ones get all their labels in the end,
`MISSING` ones get some, or get ones first. Seeds 1 to 3 chose the form and the constants. The table has the log loss to
expect, less raw's in %, with its standard error over seeds, and the days on which nothing learnt is served.
``--tables loans lectures`` plays streams of the benchmark. docs/explanation/calibrators.md, *Labels of part of the
forecasts*, has the results.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np

from replay.measure import log_losses
from research.benchmark.contenders import told
from research.benchmark.judge import judge
from research.benchmark.streams import DAY_MS, Dated
from research.benchmark.unseen import UNSEEN
from state import coverage
from state.arrays import Floats
from state.calibrators.registry import make
from state.coverage import Coverage
from state.entities import place
from state.forecasts import PROBABILITY

N, DAYS, SHIFT = 12_000, 180.0, 2.5
Flags = Any  # [n], bool


#: Constants of `state.coverage` with which its rule is played.
RULES: Final[dict[str, dict[str, float]]] = {
    "older share": {"AHEAD": 0.0},
    "ahead": {"SPREAD": -1.0, "UNLIKE": 1e9},
    "ahead, ages": {"UNLIKE": 1e9},
    "ahead, scores": {"SPREAD": -1.0},
    "now": {},
}


class World(NamedTuple):
    """What decides who is labelled, [n] each: days of the forecasts, outcomes, the highest twentieth, a segment."""

    rng: np.random.Generator
    at: Floats
    y: Flags
    top: Flags
    segment: Flags

    def later(self, days: Floats | float) -> Floats:
        """Return days that are exponentially later, by these means."""
        return self.at + self.rng.exponential(days, N)

    def some(self, chance: Floats | Flags, day: Floats) -> Floats:
        """Return these days for forecasts that get a label by these chances, NaN for the others."""
        return np.where(self.rng.random(N) < chance, day, np.nan)

    def caught_up(self, day: Floats) -> Floats:
        """Return these days, but for labels from day 20 on, which come on day 40."""
        return np.where((day > 20) & (day < 40), 40 + 0.1 * self.rng.random(N), day)


#: Days on which labels come, [n], NaN for never.
LATE: Final[dict[str, Callable[[World], Floats]]] = {
    "all after 30 days": lambda w: w.at + 30,
    "exponential, 10 days": lambda w: w.later(10),
    "exponential, 20 days": lambda w: w.later(20),
    "exponential, 60 days": lambda w: w.later(60),
    "log-normal, 10 days": lambda w: w.at + 10 * np.exp(1.5 * w.rng.standard_normal(N)),
    "every night": lambda w: np.ceil(w.at) + 1e-3 * w.rng.random(N),
    "an outage of 20 days": lambda w: w.caught_up(w.later(10)),
    "few for 40 days": lambda w: w.some(np.where(w.at < 40, 0.1, 1.0), w.later(10)),
}
MISSING: Final[dict[str, Callable[[World], Floats]]] = {
    "ones in 45 days, zeros on day 45": lambda w: w.at + np.where(w.y, w.rng.uniform(1, 45, N), 45.0),
    "ones in 5 days, zeros in 40": lambda w: w.later(np.where(w.y, 5.0, 40.0)),
    "ones only": lambda w: w.some(w.y, w.later(20)),
    "the highest 5 %, 30 % of others": lambda w: w.some(np.where(w.top, 1.0, 0.3), w.later(5)),
    "the highest 5 %, 30 % of ones": lambda w: w.some(np.where(w.top, 1.0, 0.3 * w.y), w.later(5)),
    "ones, 20 % of zeros": lambda w: w.some(np.where(w.y, 1.0, 0.2), w.later(20)),
    "ones, 30 % of zeros": lambda w: w.some(np.where(w.y, 1.0, 0.3), w.later(5)),
    "ones, 30 % of zeros, after 30 days": lambda w: w.some(np.where(w.y, 1.0, 0.3), w.at + 30),
    "one segment, 30 %": lambda w: w.some(w.segment, w.later(10)),
}


class Stream(NamedTuple):
    """Days and scores, true risks, labels and the days on which these come, NaN for never, [n] each."""

    at: Floats
    raw: Floats
    truth: Floats
    y: Floats
    day: Floats


def made(name: str, rate: float, spread: float, shift: float, seed: int) -> Stream:
    """Make a stream of this mean risk, whose log-odds have this standard deviation; scores are too high by a shift."""
    kinds = {**LATE, **MISSING}
    rng = np.random.default_rng([seed, list(kinds).index(name), round(1000 * rate)])
    at, z, segment = np.sort(rng.random(N) * DAYS), rng.normal(0.0, spread, N), rng.random(N) < 0.3
    low, high = -15.0, 10.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(z + middle).mean() < rate else (low, middle)
    raw, truth = _sigmoid(z + low + shift), _sigmoid(z + low + 1.5 * segment * name.startswith("one segment"))
    y = rng.random(N) < truth
    day = kinds[name](World(rng, at, y, raw >= np.quantile(raw, 0.95), segment))
    return Stream(at, raw, truth, y.astype(float), day)


def _sigmoid(z: Floats) -> Floats:
    found: Floats = 1.0 / (1.0 + np.exp(-z))
    return found


def dated(stream: Stream) -> Dated:
    """Return a stream as the benchmark has it; labels after its end never come."""
    ms = (stream.at * DAY_MS).astype(np.int64)
    late = np.isnan(stream.day) | (stream.day > DAYS)
    told_ms = np.where(late, -1, np.nan_to_num(stream.day) * DAY_MS).astype(np.int64)
    return Dated("made", "made", stream.raw, stream.y, ms, told_ms, 0, np.arange(N), {})


def served(stream: Dated) -> Floats:
    """Return what the default would serve if nothing were withheld, [n]."""
    calibrator = make("prudent+certified", name="research", seed=0)
    p, tickets = np.zeros(len(stream.p)), dict[int, bytes]()
    for i, ms, label in told(stream, stream.known_ms):
        if label:
            calibrator.update(tickets.pop(i), float(stream.y[i]), ms)
        else:
            p[i], _, tickets[i] = calibrator.predict(float(stream.p[i]), (), b"%d" % i)
    return p


def withheld(stream: Dated, rule: str) -> Flags:
    """Return of which forecasts nothing learnt is served, [n]."""
    found, born, hidden = Coverage(), dict[int, int](), np.zeros(len(stream.p), dtype=bool)
    places = [place(float(p), PROBABILITY) for p in stream.p]
    with patch.dict(vars(coverage), RULES[rule]):
        for applied, (i, _, label) in enumerate(told(stream, stream.report_ms), 1):
            if label:
                found.label(born.pop(i), places[i], 0)
            else:
                hidden[i], born[i] = found.uncovered, applied
                found.issue(applied, places[i])
    return hidden


def of_made(seeds: Sequence[int]) -> None:
    """Print log loss less raw's with its standard error, and days withheld, by stream and rule."""
    print("|".join(("", "stream, rate, deviation, scores", *RULES, "nothing withheld", "")))
    for name in (*LATE, *MISSING):
        for rate, spread in ((0.02, 1.3), (0.1, 0.3)):
            for shift in (0.0, SHIFT):
                figures = [_judged(made(name, rate, spread, shift, seed)) for seed in seeds]
                cells = []
                for losses in zip(*figures, strict=True):
                    lost, days = np.array(losses).T
                    cells.append(f"{lost.mean():+.1f} ± {lost.std(ddof=1) / len(lost) ** 0.5:.1f}, {days.mean():.0f}")
                row = f"{name}, {rate}, {spread}, {'too high' if shift else 'honest'}"
                print("|".join(("", row, *cells, "")), flush=True)


def _judged(stream: Stream) -> list[tuple[float, float]]:
    """Return log loss less raw's, in %, and days withheld, by rule; last what nothing withheld would be."""
    as_dated = dated(stream)
    p, found = served(as_dated), list[tuple[float, float]]()
    for hidden in (*(withheld(as_dated, rule) for rule in RULES), np.zeros(N, dtype=bool)):
        losses = [_expected(each, stream.truth) for each in (np.where(hidden, stream.raw, p), stream.raw)]
        found.append((100 * (losses[0] / losses[1] - 1), DAYS * float(hidden.mean())))
    return found


def _expected(p: Floats, truth: Floats) -> float:
    one, zero = (log_losses(p, np.full(len(p), y)) for y in (1.0, 0.0))
    return float((truth * one + (1 - truth) * zero).mean())


def of_tables(names: Sequence[str]) -> None:
    """Print log loss less raw's, in % with its interval, and the share of forecasts withheld, by stream and rule."""
    for name in names:
        stream = UNSEEN[name]()
        p, hidden = served(stream), {rule: withheld(stream, rule) for rule in RULES}
        answers = {rule: np.where(each, stream.p, p) for rule, each in hidden.items()}
        for rule, each in judge(stream, {"raw": stream.p, **answers, "nothing withheld": p}).items():
            print(f"{name}, {rule}: {each.log_loss}, {hidden[rule].mean() if rule in hidden else 0:.1%}", flush=True)


def main() -> None:
    """Print a row a stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="11,12,13,14")
    parser.add_argument("--tables", nargs="*", help="names of streams of the benchmark's")
    options = parser.parse_args()
    if options.tables:
        of_tables(options.tables)
    else:
        of_made([int(each) for each in options.seeds.split(",")])


if __name__ == "__main__":
    main()
