"""Labels of known chance: ways to learn from them, beside full labels; and what is off by weight.

``python -m research.chances [--seeds 10,11,12,13] [--flights] [--amounts]``: made payments, learnt after 45 days by the
default calibrator, judged from day 90 on. The 5 % with the highest raw score are labelled, or those of an
investigator's hunch (the true risk with an error of .7 in log-odds); of all others 2 % are. ``--flights``: the same of
flights, whose hunch knows a part of the outcome. ``--amounts``: all are labelled, and risks rise with amounts that the
scores do not know. docs/explanation/calibrators.md, *Labels that the score chooses* and *By weight*, has the results.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from lab import flights, fraud
from lab.fraud import Shape
from replay.measure import log_losses
from state.arrays import Floats, Integers
from state.calibrators.registry import make
from state.chances import Chances, weight
from state.entities import place
from state.forecasts import PROBABILITY
from state.scoring.ages import DAY_MS

TOP: Final = 0.95
EXPLORED: Final = 0.02
SHAPES: Final = {"2 % of fraud": Shape(rows=60_000, rate=0.02, inflation=15.0), "0.4 %": Shape(rows=150_000)}
#: Standard deviation and tilt of log amounts: how much log-odds of fraud rise with a standard deviation of them.
SPREAD: Final = 1.2
TILT: Final = 0.4
#: Shares of the payments below the classes of amounts.
CLASSES: Final = (0.5, 0.8, 0.95, 0.99)

#: How often a label is learnt, by its raw score, chance and event.
Way = Callable[[float, float, bytes], float]


def _in_all(raw: float, chance: float, key: bytes) -> float:  # noqa: ARG001 - as `Way` has it
    return max(EXPLORED / chance, 1.0 / 50.0)


def ways() -> dict[str, Way]:
    """Return the ways that are compared, as new."""
    chances = Chances()
    return {
        "all labels": lambda raw, chance, key: 1.0,  # noqa: ARG005 - as `Way` has it
        "only the chosen": lambda raw, chance, key: float(chance == 1.0),  # noqa: ARG005 - as `Way` has it
        "each once": lambda raw, chance, key: 1.0,  # noqa: ARG005 - as `Way` has it
        "copies, at most 10": lambda raw, chance, key: min(weight(chance), 10.0),  # noqa: ARG005 - as `Way` has it
        "copies, at most 50": lambda raw, chance, key: weight(chance),  # noqa: ARG005 - as `Way` has it
        "thinned in all": _in_all,
        "thinned by band": lambda raw, chance, key: float(chances.teaches(place(raw, PROBABILITY), chance, key)),
    }


class Stream(NamedTuple):
    """Scores, labels and times, ms, [n] each; ``by`` chooses the highest; ``truth`` is the true risk where known."""

    raw: Floats
    y: Floats
    forecast_ms: Integers
    known_ms: Integers
    by: Floats
    truth: Floats


def payments(shape: Shape, *, hunch: bool) -> Stream:
    """Make payments, with labels on day 45."""
    made = fraud.make(shape)
    by = np.log(made.truth) + 0.7 * np.random.default_rng(5).standard_normal(len(made)) if hunch else made.raw
    return Stream(made.raw, made.y, made.forecast_ms, made.forecast_ms + 45 * DAY_MS, by, made.truth)


def landed(seed: int, *, hunch: bool) -> Stream:
    """Read flights with a label; the hunch knows a part of it."""
    read = flights.load()
    known = read.known
    raw, y = np.clip(read.p[known], 1e-6, 1.0 - 1e-6), read.y[known]
    by = np.log(raw / (1.0 - raw))
    if hunch:
        by = by + (2.0 * y - 1.0) + 0.7 * np.random.default_rng(seed).standard_normal(len(y))
    return Stream(raw, y, read.forecast_ms[known], read.outcome_ms[known], by, np.full(len(y), np.nan))


def played(stream: Stream, name: str, seed: int, groups: Sequence[tuple[int, ...]] = ()) -> Floats:
    """Return what was served, [n]."""
    n, rng, way = len(stream.y), np.random.default_rng(seed), ways()[name]
    chance = np.where(stream.by >= np.quantile(stream.by, TOP), 1.0, EXPLORED)
    if name == "all labels":
        chance = np.ones(n)
    labelled, rounding = rng.random(n) < chance, rng.random(n)
    calibrator = make("prudent+certified", name="research", seed=0)
    p, tickets = np.zeros(n), [b""] * n
    order = np.argsort(np.concatenate([stream.forecast_ms, stream.known_ms]), kind="stable")
    for k in order.tolist():
        i, raw = k % n, float(stream.raw[k % n])
        if k < n:
            p[i], _, tickets[i] = calibrator.predict(raw, (), b"%d" % i, groups[i] if groups else ())
        elif labelled[i]:
            for _ in range(int(way(raw, float(chance[i]), b"%d" % i) + rounding[i])):
                calibrator.update(tickets[i], float(stream.y[i]), int(stream.known_ms[i]))
    return p


def _row(name: str, figures: Sequence[Sequence[float]], form: str) -> None:
    """Print means over seeds, with their standard errors."""
    found = np.array(figures)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.zeros(found.shape[1])
    cells = [f"{mean:{form}} ± {half:{form.lstrip('+')}}" for mean, half in zip(found.mean(axis=0), error, strict=True)]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def of_payments(seeds: Sequence[int]) -> None:
    """Print log loss above that of the true risk, as a share of it, and mean score through mean risk of the others."""
    for name, shape in SHAPES.items():
        for hunch in (False, True):
            streams = [payments(Shape(**{**vars(shape), "seed": seed}), hunch=hunch) for seed in seeds]
            for way in ways():
                figures = []
                for seed, stream in zip(seeds, streams, strict=True):
                    p = played(stream, way, seed)
                    judged = stream.forecast_ms >= stream.forecast_ms[0] + 90 * DAY_MS
                    others = judged & (stream.by < np.quantile(stream.by, TOP))
                    best = _expected(stream.truth, stream.truth)[judged].mean()
                    lost = _expected(p, stream.truth)[judged].mean() / best - 1.0
                    figures.append((lost, p[others].mean() / stream.truth[others].mean()))
                _row(f"{name}, {'a hunch' if hunch else 'the score'}, {way}", figures, ".3f")


def of_flights() -> None:
    """Print log loss less that of full labels, ± 95 % by days, of the last three quarters."""
    for hunch in (False, True):
        stream = landed(1, hunch=hunch)
        later = np.arange(len(stream.y)) > len(stream.y) // 4
        day = stream.forecast_ms[later] // DAY_MS
        full = log_losses(played(stream, "all labels", 1), stream.y)[later]
        for way in ("raw", *ways()):
            lost = log_losses(stream.raw if way == "raw" else played(stream, way, 1), stream.y)[later] - full
            sums = np.array([lost[day == each].sum() for each in np.unique(day)])
            half = 1.96 * sums.std() * np.sqrt(len(sums)) / len(lost)
            print(f"| flights, {'a hunch' if hunch else 'the score'}, {way} | {lost.mean():+.4f} ± {half:.4f} |")


def of_amounts(seeds: Sequence[int]) -> None:
    """Print how far sums are off by amount and by count, and log loss above that of the true risk."""
    for way in ("default", "segments of amounts", "thinned by amount"):
        figures = []
        for seed in seeds:
            made = fraud.make(Shape(**{**vars(SHAPES["2 % of fraud"]), "seed": seed}))
            rng = np.random.default_rng([seed, 9])
            tail = rng.standard_normal(len(made))
            amount, odds = np.exp(4.0 + SPREAD * tail), made.truth / (1.0 - made.truth) * np.exp(TILT * tail)
            truth = odds / (1.0 + odds)
            known = made.forecast_ms + 45 * DAY_MS
            y = (rng.random(len(made)) < truth).astype(float)
            stream = Stream(made.raw, y, made.forecast_ms, known, made.raw, truth)
            slots: list[tuple[int, ...]] = []
            if way == "segments of amounts":
                classes = np.searchsorted(np.quantile(tail, CLASSES), tail)
                slots = [(int(each) + 1,) for each in classes]
            if way == "thinned by amount":
                p = _by_amount(stream, amount, rng)
            else:
                p = played(stream, "all labels", 1, slots)
            judged: Any = stream.forecast_ms >= stream.forecast_ms[0] + 90 * DAY_MS
            off = [float((of * (p - truth))[judged].sum() / (of * truth)[judged].sum()) for of in (amount, 1.0)]
            best = _expected(truth, truth)[judged].mean()
            figures.append((*off, _expected(p, truth)[judged].mean() / best - 1.0))
        _row(f"amounts, {way}", figures, "+.3f")


def _by_amount(stream: Stream, amount: Floats, rng: np.random.Generator) -> Floats:
    """Return what is served if labels teach in proportion to their amounts, as they do to chances in `Chances`."""
    n, sums, draws = len(stream.y), [0.0, 0.0], rng.random(len(stream.y))
    calibrator = make("prudent+certified", name="research", seed=0)
    p, tickets = np.zeros(n), [b""] * n
    order = np.argsort(np.concatenate([stream.forecast_ms, stream.known_ms]), kind="stable")
    for k in order.tolist():
        i = k % n
        if k < n:
            p[i], _, tickets[i] = calibrator.predict(float(stream.raw[i]), (), b"%d" % i)
            continue
        sums = [sums[0] + amount[i], sums[1] + amount[i] ** 2]
        if draws[i] * sums[1] < amount[i] * sums[0]:
            calibrator.update(tickets[i], float(stream.y[i]), int(stream.known_ms[i]))
    return p


def _expected(p: Floats, truth: Floats) -> Floats:
    """Return the log loss to expect of forecasts, by the true risk."""
    p = np.clip(p, 1e-9, 1.0 - 1e-9)
    found: Floats = -(truth * np.log(p) + (1.0 - truth) * np.log1p(-p))
    return found


def main() -> None:
    """Print a row a stream and way of choosing and learning."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="10,11,12,13")
    parser.add_argument("--flights", action="store_true")
    parser.add_argument("--amounts", action="store_true")
    options = parser.parse_args()
    seeds = [int(each) for each in options.seeds.split(",")]
    if options.flights:
        of_flights()
    elif options.amounts:
        of_amounts(seeds)
    else:
        of_payments(seeds)


if __name__ == "__main__":
    main()
