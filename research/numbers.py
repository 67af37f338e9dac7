"""Numbers: what `quantile` serves beside the forecasts, DtACI and conformal PID control.

``TRUEUP_COMPILED=no python -m research.numbers [--only NAME] [--late N]``, after ``make data``, prints the table of
docs/explanation/classes-and-numbers.md in two minutes. The first `ROWS` of each stream are played. Forecasts are what
was known a season or so many steps ago, and quantiles of such changes: of the first ones (*fixed*), or of the last
`LAST`, renewed every `RENEWED` rows (*rolling*). What happens within h steps is forecast at every step. So h outcomes
in succession overlap, and h - 1 are outstanding. Made outcomes are sums of h normal steps with variance 1, forecast by
normal laws.

Printed are pinball loss through raw's with a standard error of blocks, error of coverage, and that of the worst window.
Scores of the conformal methods are ``y - q``, q the raw quantile of each level; what they serve is sorted. DtACI: Gibbs
& Candès 2022, *Conformal inference for online prediction with arbitrary distribution shifts*. PID control:
Angelopoulos, Candès & Tibshirani 2023, *Conformal PID control for time series prediction*, without a scorecaster.
"""

import argparse
import csv
import gzip
import io
import math
import zipfile
from bisect import insort
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from research import datasets
from research.benchmark.streams import kept
from state.arrays import Floats
from state.calibrators.quantile import LEVELS, Quantile
from state.forecasts import LARGEST, Law, Normal, Quantiles

P: Final = np.array(LEVELS)
#: Levels of forecasts, rows of a stream, of a window and least of a block, and how rolling forecasts are renewed.
GIVEN: Final = tuple(k / 40 for k in range(1, 40))
ROWS, BLOCK, LEAST = 6000, 500, 100
LAST, RENEWED = 1000, 50
#: Constants of both papers: scores that are looked at, rates of DtACI, the tracker's share of the scores' range.
WIDTH, MIXED, RATES, SHARE = 500, 1.0 / 1000, 0.001 * 2.0 ** np.arange(8), 0.1


class Stream(NamedTuple):
    """Laws and outcomes in order, the least number that can occur, and how many steps ahead is forecast."""

    laws: list[Law]
    y: Floats
    low: float | None
    ahead: int = 1


class Served:
    """`Quantile`, as all contenders: it serves quantiles at the levels, and learns by what it then returned beside."""

    def __init__(self, low: float | None) -> None:
        self._one = Quantile(low=-LARGEST if low is None else low)

    def serve(self, law: Law, _: Floats) -> tuple[Floats, Any]:
        """Answer."""
        answer = self._one.predict(law)
        return np.array(answer.p.values), answer.ticket

    def learn(self, ticket: Any, y: float) -> None:  # noqa: ANN401 - each contender's own
        """Learn."""
        self._one.update(ticket, y)


class Adaptive:
    """DtACI: of each level, experts that move the level of the empirical quantile at eight rates."""

    def __init__(self) -> None:
        self._last = [deque[float]() for _ in LEVELS]
        self._sorted: list[list[float]] = [[] for _ in LEVELS]
        self._miss = np.repeat((1.0 - P)[:, None], len(RATES), axis=1)
        self._weights = np.ones_like(self._miss)
        a = 1.0 - P
        noise = (1.0 - a) ** 2 * a**3 + a**2 * (1.0 - a) ** 3
        self._eta = np.sqrt(3.0 / WIDTH) * np.sqrt((math.log(len(RATES) * WIDTH) + 2.0) / noise)

    def serve(self, _: Law, raw: Floats) -> tuple[Floats, Any]:
        """Answer; raw quantiles until there are scores."""
        miss = (self._weights * self._miss).sum(axis=1) / self._weights.sum(axis=1)
        moved = [_quantile(scores, 1.0 - a) for scores, a in zip(self._sorted, miss.tolist(), strict=True)]
        return np.sort(raw + np.array(moved)), (raw, self._miss.copy())

    def learn(self, ticket: Any, y: float) -> None:  # noqa: ANN401 - its own
        """Learn."""
        raw, miss = ticket
        scores = y - raw
        pairs = zip(self._sorted, scores, strict=True)
        above = [1.0 - float(np.searchsorted(each, s)) / len(each) if each else 0.5 for each, s in pairs]
        beta, a = np.array(above)[:, None], (1.0 - P)[:, None]
        loss = a * (beta - miss) - np.minimum(0.0, beta - miss)
        grown = self._weights * np.exp(-self._eta[:, None] * loss)
        self._weights = (1.0 - MIXED) * grown / grown.sum(axis=1, keepdims=True) + MIXED / len(RATES)
        self._miss += RATES * (a - (miss > beta))
        for one, ordered, score in zip(self._last, self._sorted, scores.tolist(), strict=True):
            one.append(score)
            insort(ordered, score)
            if len(ordered) > WIDTH:
                del ordered[int(np.searchsorted(ordered, one.popleft()))]


class Control:
    """Conformal PID control of each level: a tracker and an integrator of its errors."""

    def __init__(self, n: int) -> None:
        self._scores = deque[Floats](maxlen=WIDTH)
        self._t, self._q, self._sum, self._gain = 0, np.zeros(len(P)), np.zeros(len(P)), np.zeros(len(P))
        self._saturation = 2.0 / math.pi * (math.ceil(math.log(n) * 0.01) - 1.0 / math.log(n))

    def serve(self, _: Law, raw: Floats) -> tuple[Floats, Any]:
        """Answer."""
        x = self._sum * (math.log(self._t + 1) / (self._saturation * (self._t + 1)))
        moved = self._q + self._gain * np.tan(np.clip(x, -1.5, 1.5))
        return np.sort(raw + moved), (raw, moved)

    def learn(self, ticket: Any, y: float) -> None:  # noqa: ANN401 - its own
        """Learn."""
        raw, moved = ticket
        scores = y - raw
        self._t += 1
        self._scores.append(scores)
        if self._t % 10 == 1:
            recent = np.array(self._scores)
            self._gain = recent.max(axis=0) - recent.min(axis=0)
        missed = (scores > moved) - (1.0 - P)
        self._sum += missed
        self._q = self._q + SHARE * self._gain * missed


def _quantile(ordered: list[float], level: float) -> float:
    """Return an empirical quantile; the least and largest score beyond 0 and 1, 0 without scores."""
    return ordered[min(max(math.ceil(level * len(ordered)) - 1, 0), len(ordered) - 1)] if ordered else 0.0


def made(steps: int, seed: int, spread: float = 1.0, shift: float = 0.0) -> Stream:
    """Return made outcomes, and a law that is off by a spread and a shift."""
    e = np.random.default_rng(seed).normal(size=ROWS + steps)
    y = np.convolve(e, np.ones(steps) / math.sqrt(steps), "valid")[:ROWS]
    return Stream([Normal(shift, spread)] * ROWS, y, None, steps)


def forecast(
    y: Floats, base: Floats, start: int, low: float | None, steps: int = 1, *, rolling: bool = False
) -> Stream:
    """Return forecasts from a row on: what is expected, and quantiles of the changes from it that are known."""
    change = y - base
    quantiles = np.quantile(change[: start - steps + 1], GIVEN)
    laws: list[Law] = []
    for t in range(start, min(len(y), start + ROWS)):
        if rolling and (t - start) % RENEWED == 0:
            known = t - steps + 1
            quantiles = np.quantile(change[max(known - LAST, 0) : known], GIVEN)
        values = base[t] + quantiles
        laws.append(Quantiles(GIVEN, tuple((values if low is None else np.maximum(values, low)).tolist())))
    return Stream(laws, y[start : start + ROWS], low, steps)


def seasonal(table: str, column: str, season: int, low: float | None, *, rolling: bool) -> Stream:
    """Return forecasts by the value a season ago, 0 without a season; outcomes are prompt."""
    y = returns(1) if column == "Adj.Close" else datasets.column(table, column)
    base = y[:-season] if season else np.zeros(len(y))
    width = min(LAST, len(y) // 4)
    start = width if rolling else max(len(y) // 10, 3 * season, 200) - season
    return forecast(y[season:], base, start, low, rolling=rolling)


def ahead(y: Floats, steps: int, *, low: float | None = None, start: int = 1500, rolling: bool = True) -> Stream:
    """Return forecasts by the value so many steps ago."""
    return forecast(y[steps:], y[:-steps], start, low, steps, rolling=rolling)


def returns(steps: int) -> Floats:
    """Return the S&P 500's daily returns in percent; with more steps the sum of all so far, without 3,000 days."""
    closes = datasets.column("openintro/sp500_1950_2018", "Adj.Close")
    return 100.0 * (np.diff(np.log(closes)) if steps == 1 else np.log(closes / closes[0])[3000:])


def glucose() -> Floats:
    """Return one person's glucose in mg/dl, every five minutes."""
    with zipfile.ZipFile(kept("bokeh_sampledata-2026.1")) as wheel:
        text = gzip.decompress(wheel.read("bokeh_sampledata/_data/CGM.csv.gz")).decode()
    return np.array([float(row["glucose"]) for row in csv.DictReader(io.StringIO(text)) if row["glucose"]])


def cars() -> Stream:
    """Return prices of used cars (made by NannyML), forecast by its model and quantiles of its first 5,000 errors."""
    with zipfile.ZipFile(kept("nannyml-0.13.1")) as wheel:
        text = wheel.read("nannyml/datasets/data/regression_synthetic_reference.csv").decode()
    rows = list(csv.DictReader(text.splitlines()))
    y, base = (np.array([float(row[name]) for row in rows]) for name in ("y_true", "y_pred"))
    return forecast(y, base, 5000, 0.0)


#: Table and column, length of the season, least number.
SEASONAL: Final = {
    "demand": ("fpp2/elecdemand", "Demand", 336, 0.0),
    "rain in Cornwall": ("texmex/rain", "dat", 0, 0.0),
    "tree rings": ("datasets/treering", "value", 0, 0.0),
    "sunspots": ("datasets/sunspot.month", "value", 1, 0.0),
    "returns": ("openintro/sp500_1950_2018", "Adj.Close", 0, None),
    "calls": ("fpp2/calls", "x", 169, 0.0),
    "temperature": ("nycflights13/weather", "temp", 24, None),
    "rain": ("nycflights13/weather", "precip", 0, 0.0),
    "wind": ("nycflights13/weather", "wind_speed", 24, 0.0),
    "maxima": ("stevedata/clemson_temps", "tmax", 365, None),
}
#: What constants of `quantile` were chosen on; all others judge.
CHOSE: Final = (*list(SEASONAL)[:4], "right, 12 steps", "demand, a day", "glucose, an hour")
STREAMS: Final[dict[str, Callable[[], Stream]]] = {
    "right": lambda: made(1, 7),
    **{
        f"{name}, {'rolling' if rolling else 'fixed'}": partial(seasonal, *of, rolling=rolling)
        for name, of in SEASONAL.items()
        for rolling in (False, True)
    },
    "car prices": cars,
    "right, 12 steps": lambda: made(12, 1),
    "right, 100 steps": lambda: made(100, 12),
    "twice the spread, 20 steps": lambda: made(20, 13, 2.0),
    "demand, a day": lambda: ahead(datasets.column("fpp2/elecdemand", "Demand"), 48, low=0.0, start=2000),
    "glucose, an hour": lambda: ahead(glucose(), 12),
    "glucose, 2 hours": lambda: ahead(glucose(), 24),
    "temperature, 6 hours": lambda: ahead(datasets.column("nycflights13/weather", "temp"), 6, rolling=False),
    "temperature, a day": lambda: ahead(datasets.column("nycflights13/weather", "temp"), 24),
    "wind, 12 hours": lambda: ahead(datasets.column("nycflights13/weather", "wind_speed"), 12, low=0.0),
    "returns, 20 days": lambda: ahead(returns(20), 20),
}


def play(stream: Stream, late: int, of: Any = None) -> Floats:  # noqa: ANN401 - a contender
    """Return what is served while so many forecasts are outstanding, [n, levels]; raw quantiles without a contender."""
    waiting, served = deque[tuple[Any, float]](), np.empty((len(stream.y), len(P)))
    for t, (law, outcome) in enumerate(zip(stream.laws, stream.y.tolist(), strict=True)):
        raw = np.array([law.ppf(p) for p in LEVELS])
        served[t], ticket = (raw, None) if of is None else of.serve(law, raw)
        waiting.append((ticket, outcome))
        if of is not None and len(waiting) > late:
            of.learn(*waiting.popleft())
    return served if stream.low is None else np.maximum(served, stream.low)


def losses(served: Floats, y: Floats) -> Floats:
    """Return the pinball loss of each row, summed over the levels."""
    off = y[:, None] - served
    return np.asarray(np.maximum(P * off, (P - 1.0) * off).sum(axis=1))


def error(served: Floats, y: Floats) -> float:
    """Return the largest distance of a level from the share of outcomes below it, or at or below."""
    below, upto = (y[:, None] < served).mean(axis=0), (y[:, None] <= served).mean(axis=0)
    return float(np.max([below - P, P - upto, np.zeros(len(P))]))


def coverage(served: Floats, y: Floats) -> str:
    """Return the error of coverage and that of the worst window."""
    windows = [error(served[i : i + BLOCK], y[i : i + BLOCK]) for i in range(0, len(y) - BLOCK + 1, BLOCK)]
    return f"{error(served, y):.3f}, {max(windows):.3f}"


def beside(loss: Floats, base: Floats, horizon: int) -> str:
    """Return a loss through another, and its standard error by blocks of five horizons and `LEAST` rows or more."""
    ratio = loss.sum() / base.sum()
    off = np.bincount(np.arange(len(loss)) // max(5 * horizon, LEAST), loss - ratio * base)
    return f"{ratio:.3f} ± {math.sqrt(float((off**2).sum())) / base.sum():.3f}"


def row(name: str, stream: Stream, late: int) -> tuple[str, ...]:
    """Play all contenders over a stream; return its row."""
    outstanding = max(late, stream.ahead - 1)
    raw = play(stream, outstanding)
    base, cells = losses(raw, stream.y), [coverage(raw, stream.y)]
    for of in (Served(stream.low), Adaptive(), Control(len(stream.y))):
        served = play(stream, outstanding, of)
        loss = beside(losses(served, stream.y), base, outstanding + 1)
        cells.append(f"{loss}, {coverage(served, stream.y)}")
    chose = " (chose)" if name.removesuffix(", fixed").removesuffix(", rolling") in CHOSE else ""
    return name + chose, *cells


def main() -> None:
    """Print the table, a row when it is there; a stream whose data is not there is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=STREAMS, help="may be repeated")
    parser.add_argument("--late", type=int, default=0, help="least number of forecasts that are outstanding")
    given = parser.parse_args()
    head = ("loss; error, worst window", "raw", "`quantile`", "DtACI", "PID control")
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for name in given.only or STREAMS:
        try:
            print(f"| {' | '.join(row(name, STREAMS[name](), given.late))} |", flush=True)
        except FileNotFoundError as exc:
            print(f"| {name} | {exc} |")


if __name__ == "__main__":
    main()
