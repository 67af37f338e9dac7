"""Numbers: what was served, beside the forecasts, the levels alone, DtACI and conformal PID control.

``python -m tests.bench.numbers [made] [chose] [judged]`` prints the tables of docs/calibrators.md, prompt and with 500
outstanding: the first `ROWS` of each series; some minutes each. The series are those of `tests.bench.rare_and_late`
and need ``make data``.

Every contender serves the default levels, and its levels are sorted. *Levels alone* is `quantile` as it was: it never
moves a law, and η = .02. Scores of the conformal methods are ``y - q_p``, q_p the raw quantile of the level. DtACI
takes the quantile of the last 500 scores (Gibbs & Candès 2022, their constants). PID control is the quantile tracker
with the integrator, without a scorecaster (Angelopoulos, Candès & Tibshirani 2023, their constants; range of the last
500 scores).

``guarded``: `quantile` beside a mixture of it and the raw forecast, by evidence, over all three.
"""

import math
import sys
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from state.arrays import Floats
from state.calibrators import location_scale
from state.calibrators.quantile import LEVELS, RATE, Quantile
from state.forecasts import LARGEST, Law, Normal, Quantiles
from tests.bench.rare_and_late import CHOSE, JUDGED, LATE, forecasts, show

P: Final = np.array(LEVELS)
BLOCK: Final = 500
WIDTH: Final = 500
ALONE: Final = 0.02
RATES: Final = 0.001 * 2.0 ** np.arange(8)
EVENTS: Final = 10_000
#: Of a series.
ROWS: Final = 5000

#: Serves a law: quantiles at the levels, and what it must be told with the outcome.
Serve = Callable[[Law, Floats], tuple[Floats, Any]]
Learn = Callable[[Any, float], None]


class Levels:
    """`quantile`, or its levels alone, as it was."""

    def __init__(self, low: float | None, *, alone: bool) -> None:
        self._fewest = sys.maxsize if alone else location_scale.FEWEST
        self._one = Quantile(low=-LARGEST if low is None else low, rate=ALONE if alone else RATE)

    def serve(self, law: Law, _: Floats) -> tuple[Floats, bytes]:
        """Answer."""
        answer = self._one.predict(law)
        return np.array(answer.p.values), answer.ticket

    def learn(self, ticket: bytes, y: float) -> None:
        """Learn."""
        kept, location_scale.FEWEST = location_scale.FEWEST, self._fewest
        self._one.update(ticket, y)
        location_scale.FEWEST = kept


class Guarded:
    """`quantile` mixed with the raw forecast: a tenth at first, then by the sum of the losses' differences.

    The log-odds of the share are ``ln(1/9) + z |z| / 2``, z the sum of raw's loss less `quantile`'s over the root of
    the sum of squares: the standard errors by which it is better.
    """

    def __init__(self, low: float | None) -> None:
        self._one, self._low = Levels(low, alone=False), low
        self._sum = self._squares = 0.0

    def serve(self, law: Law, raw: Floats) -> tuple[Floats, Any]:
        """Answer."""
        moved, ticket = self._one.serve(law, raw)
        raw = raw if self._low is None else np.maximum(raw, self._low)
        z = self._sum / math.sqrt(self._squares) if self._squares else 0.0
        share = 1.0 / (1.0 + 9.0 * math.exp(-min(max(0.5 * z * abs(z), -30.0), 30.0)))
        return share * moved + (1.0 - share) * raw, (ticket, moved, raw)

    def learn(self, ticket: Any, y: float) -> None:
        """Learn."""
        before, moved, raw = ticket
        self._one.learn(before, y)
        gain = _pinball(raw, y) - _pinball(moved, y)
        self._sum += gain
        self._squares += gain * gain


def _pinball(served: Floats, y: float) -> float:
    return float(np.maximum(P * (y - served), (P - 1.0) * (y - served)).sum())


class Adaptive:
    """DtACI: of each level, experts that move the level of the empirical quantile at eight rates."""

    def __init__(self) -> None:
        self._last = [deque[float]() for _ in LEVELS]
        self._sorted: list[list[float]] = [[] for _ in LEVELS]
        self._miss = np.repeat((1.0 - P)[:, None], len(RATES), axis=1)
        self._weights = np.ones_like(self._miss)
        a = 1.0 - P
        self._share = 1.0 / (2 * WIDTH)
        noise = (1.0 - a) ** 2 * a**3 + a**2 * (1.0 - a) ** 3
        self._eta = np.sqrt(3.0 / WIDTH) * np.sqrt((math.log(len(RATES) * WIDTH) + 2.0) / noise)

    def serve(self, _: Law, raw: Floats) -> tuple[Floats, Any]:
        """Answer; raw quantiles until there are scores."""
        miss = (self._weights * self._miss).sum(axis=1) / self._weights.sum(axis=1)
        moved = [_quantile(scores, 1.0 - a) for scores, a in zip(self._sorted, miss.tolist(), strict=True)]
        return np.sort(raw + np.array(moved)), (raw, self._miss.copy())

    def learn(self, ticket: Any, y: float) -> None:
        """Learn."""
        raw, miss = ticket
        scores = y - raw
        above = [
            1.0 - float(np.searchsorted(each, s, "left")) / len(each) if each else 0.5
            for each, s in zip(self._sorted, scores, strict=True)
        ]
        beta, a = np.array(above)[:, None], (1.0 - P)[:, None]
        loss = a * (beta - miss) - np.minimum(0.0, beta - miss)
        grown = self._weights * np.exp(-self._eta[:, None] * loss)
        total = grown.sum(axis=1, keepdims=True)
        self._weights = (1.0 - self._share) * grown / total + self._share / len(RATES)
        self._miss += RATES * (a - (miss > beta))
        for one, ordered, score in zip(self._last, self._sorted, scores.tolist(), strict=True):
            one.append(score)
            insort(ordered, score)
            if len(ordered) > WIDTH:
                del ordered[int(np.searchsorted(ordered, one.popleft()))]


class Control:
    """Conformal PID control of each level: a tracker, and an integrator of its errors."""

    def __init__(self, n: int) -> None:
        self._scores = deque[Floats](maxlen=WIDTH)
        self._q, self._sum, self._t = np.zeros(len(P)), np.zeros(len(P)), 0
        self._saturation = 2.0 / math.pi * (math.ceil(math.log(n) * 0.01) - 1.0 / math.log(n))
        self._gain: Floats = np.zeros(len(P))

    def serve(self, _: Law, raw: Floats) -> tuple[Floats, Any]:
        """Answer."""
        x = self._sum * (math.log(self._t + 1) / (self._saturation * (self._t + 1)))
        moved = self._q + self._gain * np.tan(np.clip(x, -1.5, 1.5))
        return np.sort(raw + moved), (raw, moved)

    def learn(self, ticket: Any, y: float) -> None:
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
        self._q = self._q + 0.1 * self._gain * missed


def _quantile(ordered: list[float], level: float) -> float:
    """Return an empirical quantile; the least and largest score beyond 0 and 1, 0 without scores."""
    if not ordered:
        return 0.0
    return ordered[min(max(math.ceil(level * len(ordered)) - 1, 0), len(ordered) - 1)]


def play(laws: list[Law], y: list[float], low: float | None, late: int, of: Any) -> Floats:
    """Return what is served, [n, levels]."""
    waiting, served = deque[tuple[Any, float]](), np.empty((len(y), len(P)))
    for t, (law, outcome) in enumerate(zip(laws, y, strict=True)):
        raw = np.array([law.ppf(p) for p in LEVELS])
        served[t], ticket = (raw, None) if of is None else of.serve(law, raw)
        waiting.append((ticket, outcome))
        if of is not None and len(waiting) > late:
            of.learn(*waiting.popleft())
    return served if low is None else np.maximum(served, low)


def error(served: Floats, y: Floats) -> float:
    """Return the largest distance of a level from the share of outcomes below it, or at or below."""
    below, upto = (y[:, None] < served).mean(axis=0), (y[:, None] <= served).mean(axis=0)
    return float(np.max([below - P, P - upto, np.zeros(len(P))]))


def measure(served: Floats, outcomes: list[float]) -> tuple[float, float, float]:
    """Return mean pinball loss, error of coverage, and that of the worst of disjoint windows."""
    y = np.array(outcomes)
    off = y[:, None] - served
    loss = float(np.maximum(P * off, (P - 1.0) * off).sum(axis=1).mean())
    windows = [error(served[i : i + BLOCK], y[i : i + BLOCK]) for i in range(0, len(y) - BLOCK + 1, BLOCK)]
    return loss, error(served, y), max(windows)


def made() -> Iterator[tuple[str, list[Law], list[float], float | None]]:
    """Yield made series: right forecasts, those that are far off, and amounts most of which are 0."""
    rng = np.random.default_rng(7)
    e = rng.normal(size=EVENTS)
    t = np.arange(EVENTS)
    for told, law, y in (
        ("right", Normal(0.0, 1.0), e),
        ("8 deviations off", Normal(-8.0, 1.0), e),
        ("a tenth of the spread", Normal(0.0, 0.1), e),
        ("ten times the spread", Normal(0.0, 10.0), e),
        ("a jump of 8 deviations", Normal(0.0, 1.0), e + 8.0 * (t > EVENTS // 2)),
        ("a wave of one deviation", Normal(0.0, 1.0), e + np.sin(t / 500)),
    ):
        yield told, [law] * EVENTS, y.tolist(), None
    zero, centre = np.clip(rng.normal(0.7, 0.15, EVENTS), 0.35, 0.94), rng.normal(3.0, 0.7, EVENTS)
    amounts = np.where(rng.random(EVENTS) < zero, 0.0, np.exp(centre + 1.2 * rng.normal(size=EVENTS)))
    laws: list[Law] = [_amounts(*each) for each in zip(zero.tolist(), centre.tolist(), strict=True)]
    yield "amounts, right", laws, amounts.tolist(), 0.0


def _amounts(zero: float, centre: float) -> Quantiles:
    """Return the law of an amount: nothing with a probability, else lognormal with a deviation of 1.2."""
    of = NormalDist(centre, 1.2).inv_cdf
    levels = (*LEVELS, 0.99)
    return Quantiles(levels, tuple(math.exp(of((p - zero) / (1.0 - zero))) if p > zero else 0.0 for p in levels))


def series(role: str) -> Iterator[tuple[str, list[Law], list[float], float | None]]:
    """Yield forecasts and outcomes of the series that chose, or that judge."""
    for name, one in (CHOSE if role == "chose" else JUDGED).items():
        for rolling in (False, True):
            laws, y = forecasts(one, rolling)
            yield f"{name}, {'rolling' if rolling else 'fixed'}", laws[:ROWS], y[:ROWS], one.low


def rows(role: str, late: int, *, guarded: bool = False) -> Iterator[tuple[str, ...]]:
    """Yield a row a stream: loss through raw's, error and worst window of each contender."""
    for told, laws, y, low in made() if role == "made" else series(role):
        base = measure(play(laws, y, low, late, None), y)
        cells = [f"{base[1]:.3f}, {base[2]:.3f}"]
        contenders: tuple[Any, ...] = (Levels(low, alone=True), Levels(low, alone=False), Adaptive(), Control(len(y)))
        for of in (Levels(low, alone=False), Guarded(low)) if guarded else contenders:
            loss, all_of_it, worst = measure(play(laws, y, low, late, of), y)
            cells.append(f"{loss / base[0]:.3f}, {all_of_it:.3f}, {worst:.3f}")
        yield told, *cells


def main() -> None:
    """Print the tables that are named, or all."""
    head = ("loss, error, worst window", "raw", "levels alone", "`quantile`", "DtACI", "PID control")
    for late in (0, LATE):
        for role in sys.argv[1:] or ("made", "chose", "judged", "guarded"):
            print(f"\n{role}, {late} outstanding\n")
            if role != "guarded":
                show(head, rows(role, late))
                continue
            for of in ("made", "chose", "judged"):
                show(("loss, error, worst window", "raw", "`quantile`", "guarded"), rows(of, late, guarded=True))


if __name__ == "__main__":
    main()
