"""Losses of what was served beside raw's, with intervals: scores of one week or day, and of one entity, share luck."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from replay.measure import errors, log_losses
from research.benchmark.contenders import RAW
from research.benchmark.streams import DAY_MS, Dated
from state.arrays import Floats

#: Days of a block: where days share luck, blocks of one day miss a third of its variance.
WEEK, DAY = 7, 1
RESAMPLES, SEED = 400, 20_260_301


class Relative(NamedTuple):
    """A mean loss relative to another's, less 1, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The standard error that the interval comes to."""
        return (self.high - self.low) / (2 * 1.96)

    def __str__(self) -> str:
        return f"{100 * self.value:+.2f} [{100 * self.low:+.2f}, {100 * self.high:+.2f}]"


class Judged(NamedTuple):
    """What a contender served to all scores with a label, from the stream's beginning on."""

    log_loss: Relative
    brier: Relative
    ece: float


def judge(stream: Dated, served: Mapping[str, Floats], *, beside: str = RAW, days: int = WEEK) -> dict[str, Judged]:
    """Judge what was served, [n] by name, relative to one of them, with errors by blocks of so many days.

    Notes
    -----
    A resample weighs each row by an exponential weight of its block times one of its entity. That counts what rows of a
    block share, and rows of an entity, and errs on the side of wide intervals: Owen & Eckles 2012, *Bootstrapping data
    arrays of arbitrary order*. Ends are the 2.5 and 97.5 % quantiles, moved by the mean's distance from the value. All
    contenders are weighed alike.
    """
    known = ~np.isnan(stream.y)
    y, names = stream.y[known], [beside, *(name for name in served if name != beside)]
    losses = np.stack([of(served[name][known], y) for of in (log_losses, _squares) for name in names])
    block = (stream.forecast_ms[known] - stream.forecast_ms[0]) // (days * DAY_MS)
    _, entity = np.unique(stream.entity[known], return_inverse=True)
    rng = np.random.default_rng(SEED)
    blocks, entities = int(block[-1]) + 1, int(entity.max()) + 1
    resamples = (rng.exponential(size=blocks)[block] * rng.exponential(size=entities)[entity] for _ in range(RESAMPLES))
    sums = np.array([losses @ weights for weights in resamples]).reshape(RESAMPLES, 2, len(names))
    drawn = sums / sums[:, :, :1] - 1
    means = losses.mean(axis=1).reshape(2, len(names))
    value = means / means[:, :1] - 1
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0) - drawn.mean(axis=0) + value
    log_loss, brier = (
        [Relative(*each) for each in zip(*ends, strict=True)]
        for ends in zip(value.tolist(), low.tolist(), high.tolist(), strict=True)
    )
    return {name: Judged(log_loss[i], brier[i], errors(served[name][known], y).ece) for i, name in enumerate(names)}


def _squares(p: Floats, y: Floats) -> Floats:
    return np.square(p - y)
