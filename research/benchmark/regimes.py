"""Made streams for ``--unseen``: the regimes of papers on online calibration, with a risk that is known."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from research.benchmark.streams import DAY_MS, Dated
from state.arrays import Floats, Integers

ROWS, DAYS, SEED = 20_000, 200, 7


class Regime(NamedTuple):
    """Log-odds of raw scores and of the truth, [n]; segments; labels' age in days, [n]; age at which silence is a 0."""

    raw: Floats
    truth: Floats
    segments: dict[str, Integers]
    days: Floats
    matures: int = 0


def _time() -> Floats:
    return np.arange(ROWS) / ROWS


def _at_once(raw: Floats, truth: Floats, days: float = 0.0) -> Regime:
    return Regime(raw, truth, {}, np.full(ROWS, days))


def _abrupt(rng: np.random.Generator) -> Regime:
    """Draw a model that is broken three times and mended, labels a day later."""
    v = rng.normal(-1, 1.3, ROWS)
    part = (_time() * 4).astype(int)
    return _at_once(v, np.choose(part, [v, v - 2, 0.4 * v + 1, v]), 1.0)


def _gradual(rng: np.random.Generator) -> Regime:
    """Draw a risk that rises slowly by two log-odds, labels 20 days later."""
    v = rng.normal(-3, 1.2, ROWS)
    return _at_once(v, v + 2 * _time(), 20.0)


def _seasonal(rng: np.random.Generator) -> Regime:
    """Draw a wave of 50 days, labels about 3 days later."""
    v = rng.normal(-1, 1, ROWS)
    return Regime(v, v + np.sin(2 * np.pi * _time() * 4), {}, rng.exponential(3, ROWS))


def _recurring(rng: np.random.Generator) -> Regime:
    """Draw two populations that take turns of 500, labels at once."""
    v = rng.normal(0, 1.2, ROWS)
    turn = np.arange(ROWS) // 500 % 2
    return _at_once(v, np.where(turn == 1, 1.5 * v + 1, 0.7 * v - 1))


def _alternating(rng: np.random.Generator) -> Regime:
    """Draw blocks of doubled length in which the scores point the right and the wrong way."""
    v = rng.normal(0, 1.5, ROWS)
    block = np.floor(np.log2(1 + np.arange(ROWS) / 200)).astype(int) % 2
    return _at_once(v, np.where(block == 1, -v, v))


def _label_shift(rng: np.random.Generator) -> Regime:
    """Draw a rate that goes from 2 to 20 % and back while both classes look the same, labels about 10 days later."""
    rate = 0.02 + 0.18 * np.sin(np.pi * _time()) ** 2
    y = rng.random(ROWS) < rate
    v = rng.normal(np.where(y, 1.0, -1.0), 1.0) * 2 - np.log(49)
    return Regime(v, np.where(y, 30.0, -30.0), {}, rng.exponential(10, ROWS))


def _covariate_shift(rng: np.random.Generator) -> Regime:
    """Draw four segments, each off by its own line, whose shares move; labels 5 days later."""
    t = _time()[:, None]
    cut = np.array([[0.5, 0.75, 0.9]]) * (1 - t) + np.array([[0.1, 0.25, 0.5]]) * t
    segment = (rng.random((ROWS, 1)) > cut).sum(axis=1)
    v = rng.normal(-2, 1.2, ROWS)
    truth = np.choose(segment, [v, v + 0.8, 0.6 * v - 1.5, 1.3 * v])
    return Regime(v, truth, {"country": segment, "noise": rng.integers(0, 20, ROWS)}, np.full(ROWS, 5.0))


def _censored(rng: np.random.Generator) -> Regime:
    """Draw frauds that are told about 15 days later, and zeros that are silent until day 60."""
    v = rng.normal(-1.5, 1.2, ROWS)
    return Regime(v, v - 2, {}, rng.exponential(15, ROWS).clip(max=59), 60)


def _bursts(rng: np.random.Generator) -> Regime:
    """Draw honest scores, and ten attacks of 60 that they do not see; labels 10 days later."""
    v = rng.normal(-4, 1.2, ROWS)
    truth = v.copy()
    for begin in rng.integers(1000, ROWS - 100, 10):
        truth[begin : begin + 60] = 1.0
    return _at_once(v, truth, 10.0)


def _rare(rng: np.random.Generator) -> Regime:
    """Draw a rate of .2 % from scores ten times too high, labels about 20 days later."""
    v = rng.normal(-7.3, 1.4, ROWS)
    return Regime(1.1 * v + 3, v, {}, rng.exponential(20, ROWS))


def _steps(rng: np.random.Generator) -> Regime:
    """Draw a risk of six steps under smooth scores, labels at once."""
    v = rng.normal(-1, 1.5, ROWS)
    return _at_once(v, np.array([-4, -3.5, -1.5, -1.4, 0.5, 2.5])[np.digitize(v, [-3, -2, -1, 0, 1.5])])


def _wrong_labels(rng: np.random.Generator) -> Regime:
    """Draw honest scores of 3 % wrong labels, told 7 days later."""
    v = rng.normal(0, 3, ROWS)
    p = 0.03 + 0.94 / (1 + np.exp(-v))
    return _at_once(v, np.log(p / (1 - p)), 7.0)


REGIMES: Final[dict[str, Callable[[np.random.Generator], Regime]]] = {
    "made, abrupt": _abrupt,
    "made, gradual": _gradual,
    "made, seasonal": _seasonal,
    "made, recurring": _recurring,
    "made, alternating": _alternating,
    "made, label shift": _label_shift,
    "made, covariate shift": _covariate_shift,
    "made, censored": _censored,
    "made, bursts": _bursts,
    "made, rare": _rare,
    "made, steps": _steps,
    "made, wrong labels": _wrong_labels,
}


def make(name: str, role: str) -> Dated:
    """Return a made stream of `ROWS` scores in `DAYS` days; the same name gives the same stream."""
    rng = np.random.default_rng((SEED, list(REGIMES).index(name)))
    made = REGIMES[name](rng)
    ms = (_time() * DAYS * DAY_MS).astype(np.int64)
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-made.truth))).astype(np.float64)
    report = np.maximum(ms + (made.days * DAY_MS).astype(np.int64), ms + 1)
    if made.matures:
        report = np.where(y == 1, report, -1)
    said = " ".join((REGIMES[name].__doc__ or "").split())[5:].rstrip(".")
    segments = {each: values.astype(str) for each, values in made.segments.items()}
    p = 1 / (1 + np.exp(-made.raw))
    return Dated(name, f"{said}; {role}", p, y, ms, report, made.matures * DAY_MS, np.arange(ROWS), segments)
