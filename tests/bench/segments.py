"""The default with segments beside itself without, what was the default, and batch maps refitted every night.

``python -m tests.bench.segments [--quick] [--cost] [--stream NAME]... [--mcgrad] [--every N]`` (after ``make data``):
the flights with carrier, origin and four-hour block of departure and their own delays; Elec2 with part of the day, day
of the week and quarter of demand, bank-full with job, education and contact, both prompt and 500 forecasts late. Then
the same streams with 12, 50 and 6 values drawn at random, which say nothing.

Batch isotonic fits a map for each value of each name every night: of the flights at the first departure of a day, of
the others at every thousandth forecast. It fits the last 50,000 labels that have come, and serves the mean of the maps
of an event's values. ``--mcgrad`` adds Meta's MCGrad, refitted in the same nights on the same labels, if it is
installed. ``--every``: both are fitted after so many forecasts instead. A segment is judged if it holds 2,000 events (a
hundredth of a short stream). A band is a tenth that holds .1 % of the events; it holds if it is within .03 of what was
observed, or within its 95 % interval. Then what an event costs, predict and update, prompt, each way in turn;
``--cost``: only that. ``--quick``: the first 20,000 forecasts. The exit status is 1 if a bar of the flights or of the
cost fails.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from agents import compiled
from lab import datasets, flights
from lab.nightly_refit import isotonic
from research.experiments.streams import TRAINING, stream
from state.arrays import Floats, Integers
from state.calibrators import make
from state.policy import DEFAULT_CALIBRATOR
from state.scoring.wilson import wilson
from state.segments import LIMIT
from tests.bench.figures import table

BEFORE: Final = "auto+regret_matching"
#: The default without its guarantee.
BARE: Final = "prudent"
BINS: Final = 10
SEED: Final = 11
LATE: Final = 500
EVERY, WINDOW, DAY_MS = 1000, 50_000, 86_400_000
#: Least labels of a value that has a map of its own.
LEAST: Final = 50
VALUES: Final = (12, 50, 6)
#: Bars of the flights: with segments Brier, ECE, mean and worst error of a segment; without Brier and ECE.
WITH, WITHOUT = (0.1560, 0.005, 0.018, 0.037), (0.1660, 0.005)
DEARER: Final = 1.5
ROUNDS: Final = 5


@dataclass(frozen=True)
class Case:
    """A stream of n forecasts with k segments each.

    Attributes
    ----------
    raw, y
        Forecasts and outcomes, [n]; NaN without one.
    slots
        [n, k].
    due
        Forecasts that are made before the outcome, [n].
    nights
        Forecasts before which batch maps are fitted again, ascending, from 0 on.
    """

    name: str
    raw: Floats
    y: Floats
    slots: Integers
    due: Integers
    nights: Integers

    @property
    def known(self) -> Any:
        """Which have an outcome, [n]."""
        return ~np.isnan(self.y)

    def steps(self) -> Iterator[tuple[int, int]]:
        """Yield (kind, row) in order: 1 is a forecast, 0 its outcome, which comes first where it is due."""
        row = np.flatnonzero(self.known)
        rows = np.concatenate([np.arange(len(self.raw)), row])
        kind = np.repeat([1, 0], [len(self.raw), len(row)])
        at = np.concatenate([np.arange(len(self.raw)), self.due[row]])
        order = np.lexsort((rows, kind, at))
        return zip(kind[order].tolist(), rows[order].tolist(), strict=True)


def slots(columns: Sequence[Any]) -> Integers:
    """Number the values of each column, [n, k], from the third slot of its name on."""
    numbers = [np.unique(column, return_inverse=True)[1] for column in columns]
    return np.column_stack([LIMIT * k + 2 + np.minimum(each, LIMIT - 3) for k, each in enumerate(numbers)])


def cases(*, quick: bool) -> Iterator[Case]:
    """Yield the streams; FileNotFoundError without data."""
    most = 20_000 if quick else None
    made = flights.load(most)
    due = np.searchsorted(made.forecast_ms, made.outcome_ms, side="right")
    named = slots([[each[name] for each in made.segments] for name in flights.SEGMENTS])
    nights = np.unique(made.forecast_ms // DAY_MS, return_index=True)[1]
    yield Case("flights", made.p, made.y, named, due, nights)
    for name in ("elec2", "bank"):
        found = stream(name)
        raw, y = found.p[:most], found.y[:most]
        named = _columns(name)[TRAINING:][:most]
        for late in (0, LATE):
            label = f"{name}, {late} late" if late else name
            yield Case(label, raw, y, named, np.arange(len(raw)) + late + 1, np.arange(0, len(raw), EVERY))


def _columns(name: str) -> Integers:
    if name == "elec2":
        x, _ = datasets.elec2()
        quarter = np.digitize(x[:, 3], np.quantile(x[:TRAINING, 3], (0.25, 0.5, 0.75)))
        return slots([np.round(x[:, 0] * 47) // 8, np.arange(len(x)) // 48 % 7, quarter])
    x, _ = datasets.bank()
    return slots([x[:, 1], x[:, 3], x[:, 8]])


def meaningless(case: Case) -> Case:
    """Return a stream whose segments are drawn at random."""
    rng = np.random.default_rng(SEED)
    drawn = slots([rng.integers(0, many, len(case.raw)) for many in VALUES])
    return replace(case, name=f"{case.name}, at random", slots=drawn)


def serve(case: Case, spec: str, *, segments: bool) -> tuple[Floats, Floats, Any]:
    """Return ``p`` and draws, [n] each, and the calibrator."""
    calibrator: Any = make(spec, name=case.name, seed=SEED)
    n = len(case.raw)
    p, draw, tickets = np.empty(n), np.empty(n), [b""] * n
    raw, y = case.raw.tolist(), case.y.tolist()
    groups = [(tuple(each),) if segments else () for each in case.slots.tolist()]
    for forecast, i in case.steps():
        if forecast:
            p[i], draw[i], tickets[i] = calibrator.predict(raw[i], (), b"%d" % i, *groups[i])
        else:
            calibrator.update(tickets[i], y[i])
    return p, draw, calibrator


def refitted(case: Case, fit: Callable[[Integers], Callable[[Integers], Floats]]) -> Floats:
    """Return what is served by a map that ``fit`` makes from rows, fitted again every night, [n]."""
    served = case.raw.copy()
    row = np.flatnonzero(case.known)
    row = row[np.argsort(case.due[row], kind="stable")]
    come = np.searchsorted(case.due[row], case.nights, side="right").tolist()
    ends = [*case.nights[1:].tolist(), len(case.raw)]
    for start, end, known in zip(case.nights.tolist(), ends, come, strict=True):
        labels = row[max(known - WINDOW, 0) : known]
        if len(labels) >= LEAST and 0 < case.y[labels].sum() < len(labels):
            rows = np.arange(start, end)
            served[rows] = fit(labels)(rows)
    return served


def isotonic_by_segment(case: Case) -> Floats:
    """Return the mean of the isotonic maps of each event's values, or of all where a value has few labels, [n]."""

    def fit(labels: Integers) -> Callable[[Integers], Floats]:
        whole = isotonic(case.raw[labels], case.y[labels])
        maps: dict[int, Callable[[Floats], Floats]] = {}
        for k in range(case.slots.shape[1]):
            for slot in np.unique(case.slots[labels, k]).tolist():
                mine = labels[case.slots[labels, k] == slot]
                maps[slot] = isotonic(case.raw[mine], case.y[mine]) if len(mine) >= LEAST else whole

        def mapped(rows: Integers) -> Floats:
            total = np.zeros(len(rows))
            for k in range(case.slots.shape[1]):
                for slot in np.unique(case.slots[rows, k]).tolist():
                    mine = case.slots[rows, k] == slot
                    total[mine] += maps.get(slot, whole)(case.raw[rows[mine]])
            return np.asarray(total / case.slots.shape[1])

        return mapped

    return refitted(case, fit)


def mcgrad(case: Case) -> Floats:
    """Return what MCGrad serves, [n]; ImportError if it is not installed."""
    pd: Any = importlib.import_module("pandas")
    methods: Any = importlib.import_module("mcgrad.methods")
    names = [f"s{k}" for k in range(case.slots.shape[1])]

    def frame(rows: Integers) -> Any:
        made = pd.DataFrame({name: case.slots[rows, k].astype(str) for k, name in enumerate(names)})
        return made.assign(p=np.clip(case.raw[rows], 1e-6, 1 - 1e-6), y=np.nan_to_num(case.y[rows]).astype(int))

    def fit(labels: Integers) -> Callable[[Integers], Floats]:
        model = methods.MCGrad()
        model.fit(
            df_train=frame(labels), prediction_column_name="p", label_column_name="y",
            categorical_feature_column_names=names,
        )  # fmt: skip

        def mapped(rows: Integers) -> Floats:
            told: Any = model.predict(
                df=frame(rows), prediction_column_name="p", categorical_feature_column_names=names
            )
            return np.asarray(told, dtype=np.float64)

        return mapped

    return refitted(case, fit)


class Judged(NamedTuple):
    """Scores of what was served: Brier, log loss, ECE, mean and worst error of a segment, worst window, bad bands."""

    brier: float
    log_loss: float
    ece: float
    mean: float
    worst: float
    window: float
    bands: list[str]


def ece(p: Floats, y: Floats) -> float:
    """Return Σ over ten bins of |Σ (p - y)| / n."""
    return float(np.abs(np.bincount(np.minimum((p * BINS).astype(int), BINS - 1), p - y)).sum() / len(p))


def judge(case: Case, served: Floats) -> Judged:
    """Judge what was served to the forecasts that have an outcome."""
    known = case.known
    p, y, of = served[known], case.y[known], case.slots[known]
    least = 2000 if len(p) > 100_000 else len(p) // 100
    each = [ece(p[of[:, k] == slot], y[of[:, k] == slot]) for k, slot in _large(of, least)]
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    window = 5000
    windows = [ece(p[i : i + window], y[i : i + window]) for i in range(0, len(p) - window + 1, window)]
    return Judged(
        float(np.square(p - y).mean()),
        float(-np.where(y == 1, np.log(clipped), np.log1p(-clipped)).mean()),
        ece(p, y),
        float(np.mean(each)),
        max(each),
        max(windows),
        list(_bad(p, y)),
    )


def _large(of: Integers, least: int) -> Iterator[tuple[int, int]]:
    for k in range(of.shape[1]):
        found, n = np.unique(of[:, k], return_counts=True)
        yield from ((k, int(slot)) for slot in found[n >= least])


def _bad(p: Floats, y: Floats) -> Iterator[str]:
    band = np.minimum((p * BINS).astype(int), BINS - 1)
    for k in range(BINS):
        n = int((band == k).sum())
        if n < 0.001 * len(p) or not n:
            continue
        mean, happened = float(p[band == k].mean()), float(y[band == k].mean())
        low, high = wilson(happened, n)
        if abs(mean - happened) > 0.03 and not low <= mean <= high:
            yield f"{k / BINS:.1f}: {mean - happened:+.3f} of {n:,}"


def cost(rows: int = 20_000) -> dict[str, float]:
    """Return the processor time of predict and update of one prompt event, µs, the least of rounds that take turns.

    It is that of `BEFORE`, and of the default and of `BARE`, ``with`` three segments and ``without``.
    """
    rng = np.random.default_rng(SEED)
    raw = rng.random(rows)
    y = (rng.random(rows) < raw / 2).astype(float)
    named = slots([rng.integers(0, many, rows) for many in (16, 3, 6)])
    case = Case("cost", raw, y, named, np.arange(rows) + 1, np.zeros(1, int))
    ways = {BEFORE: (BEFORE, False)}
    for name, spec in (("", DEFAULT_CALIBRATOR), (f"{BARE}, ", BARE)):
        ways |= {f"{name}without": (spec, False), f"{name}with": (spec, True)}
    best = dict.fromkeys(ways, np.inf)
    for _ in range(ROUNDS):
        for name, (spec, segments) in ways.items():
            began = time.process_time()
            serve(case, spec, segments=segments)
            best[name] = min(best[name], (time.process_time() - began) / rows * 1e6)
    return best


def ways(case: Case, *, batch: bool, with_mcgrad: bool) -> Iterator[tuple[str, Floats]]:
    """Yield what serves a stream, and what it served, [n]."""
    yield "raw", case.raw
    yield BEFORE, serve(case, BEFORE, segments=False)[1]
    p, draw, calibrator = serve(case, DEFAULT_CALIBRATOR, segments=False)
    print(f"{case.name}: guarantee {calibrator.bound():.4f} without segments, error {calibrator.error():.4f}")
    yield f"{DEFAULT_CALIBRATOR}, without segments", p
    yield "its draw", draw
    p, draw, calibrator = serve(case, DEFAULT_CALIBRATOR, segments=True)
    yield f"{DEFAULT_CALIBRATOR}, with segments", p
    yield "its draw, with segments", draw
    print(f"{case.name}: guarantee {calibrator.bound():.4f} with segments, error {calibrator.error():.4f}")
    print(f"{case.name}: {len(calibrator.encode()):,} bytes of state with segments", flush=True)
    if batch:
        yield "isotonic by segment, nightly", isotonic_by_segment(case)
    if with_mcgrad:
        yield "MCGrad", mcgrad(case)


def main() -> int:
    """Play and print; return the exit status."""
    parser = argparse.ArgumentParser(description="the default with segments")
    parser.add_argument("--quick", action="store_true", help="the first 20,000 forecasts")
    parser.add_argument("--cost", action="store_true", help="only what an event costs")
    parser.add_argument("--stream", action="append", help="only streams whose names begin so")
    parser.add_argument("--mcgrad", action="store_true", help="MCGrad beside it")
    parser.add_argument("--every", type=int, default=0, help="forecasts between fits of batch maps, not nights")
    given = parser.parse_args()
    head = ("stream, served by", "Brier", "log loss", "ECE", "segment, mean", "worst", "worst window", "bands off")
    rows, found = [], {}
    for case in () if given.cost else cases(quick=given.quick):
        if given.stream and not any(case.name.startswith(each) for each in given.stream):
            continue
        if given.every:
            case = replace(case, nights=np.arange(0, len(case.raw), given.every))  # noqa: PLW2901 - the same stream
        for one, batch in ((case, True), (meaningless(case), False)):
            for who, served in ways(one, batch=batch, with_mcgrad=given.mcgrad and batch):
                judged = found[one.name, who] = judge(one, served)
                numbers = [f"{each:.4f}" for each in judged[:-1]]
                rows.append([f"{one.name}, {who}", *numbers, "; ".join(judged.bands) or "none"])
            print(table(head, rows[-8:]), flush=True)
    if rows:
        print(table(head, rows))
    times = cost()
    how = "compiled" if compiled.runs() else "interpreted"
    print(f"cost of an event, µs, {how}: " + ", ".join(f"{name} {each:.1f}" for name, each in times.items()))
    bars = {
        f"without segments at most as dear as {BEFORE}": times["without"] <= times[BEFORE],
        f"with segments at most {DEARER} times {BEFORE}": times["with"] <= DEARER * times[BEFORE],
    }
    if ("flights", "raw") in found and not given.quick:
        without = found["flights", f"{DEFAULT_CALIBRATOR}, without segments"]
        within = found["flights", f"{DEFAULT_CALIBRATOR}, with segments"]
        bars["flights without segments"] = without.brier <= WITHOUT[0] and without.ece <= WITHOUT[1]
        measured = (within.brier, within.ece, within.mean, within.worst)
        bars["flights with segments"] = all(one <= bar for one, bar in zip(measured, WITH, strict=True))
        bars["every band of the flights, without segments"] = not without.bands
        bars["every band of the flights, with segments"] = not within.bands
    for name, passed in bars.items():
        print(f"{'PASS' if passed else 'FAIL'} {name}")
    return int(not all(bars.values()))


if __name__ == "__main__":
    sys.exit(main())
