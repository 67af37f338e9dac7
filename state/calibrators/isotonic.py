"""An isotonic regression of outcomes on log-odds, in bins that forget: it can follow risks that rise in steps."""

import math
from array import array
from struct import Struct
from typing import Final

from state.calibrators.base import require_length
from state.calibrators.guard import SIZE as GUARD_SIZE
from state.calibrators.guard import Guard, corrected
from state.calibrators.logistic import P_CLIP

#: The lowest log-odds, the width of a bin, and the number of bins: from .25 to 99.75 %.
LOW: Final = -6.0
WIDTH: Final = 0.125
BINS: Final = 96
#: The number of labels that the prior counts as in every bin.
PRIOR: Final = 2.0
#: First weight of the smooth answer beside it. With .9, honest forecasts of games, whose outcomes are not told apart,
#: lose 3.5 % log loss in place of .7 %; with .98, mails gain .8 % more.
WEIGHT: Final = 0.99
#: Labels before the first fit, and between later fits.
FIRST: Final = 16
EVERY: Final = 32
#: Information in a bin after which a label counts half; `LAGS` lags, if that is more. So the last labels of a file do
#: not outweigh the first, and waves are not followed too late.
HALFLIFE: Final = 6.0
LAGS: Final = 0.3

#: Type code of the bins' numbers, f32, so that a row stays small.
_TYPE: Final = "f"
_HEAD: Final = Struct("<Q")
_PART: Final = 4 * BINS
_LN2: Final = math.log(2.0)
#: Bytes of a state.
SIZE: Final = _HEAD.size + 3 * _PART + GUARD_SIZE


class Isotonic:
    """A never falling function of log-odds: linear between the centres of bins, and constant beyond.

    Notes
    -----
    `Guard` mixes it with a smooth answer: on any sequence of prompt outcomes the mixture is never worse than the smooth
    answer by more than .01 nats or .006 standard errors. It is judged by what it answered when the forecast was issued.
    Otherwise it would gain trust by following late outcomes: waves are then served up to .4 % worse, and all risks 7 to
    11 % too low long after a broken model was mended.

    Each bin has n labels and k ones, `PRIOR` of them as q says. A label y that counts for a part is

        n <- n + λ (`PRIOR` - n) + part,   k <- k + λ (`PRIOR` q - k) + part y,

    λ = ln(2) q (1 - q) / max(`HALFLIFE`, `LAGS` lag), the lag being what was learnt since the forecast was issued.
    After `FIRST` labels, and then every `EVERY`, adjacent bins whose k / n do not rise are pooled (Ayer et al. 1955,
    *An empirical distribution function for sampling with incomplete information*).

    Bytes: labels learnt (u64), n, k, and the value of every bin as it was fitted (f32 each), those of `Guard`.
    Little-endian.

    Examples
    --------
    >>> steps = Isotonic()
    >>> for t in range(4000):
    ...     z, y = (-1.0, 0.0) if t % 2 else (1.0, float(t % 8 < 1))
    ...     steps.learn(z, y, 0.2, 0.2, steps.at(z), 1.0, 0.0, 0)
    >>> round(steps.at(-1.0), 2), round(steps.at(1.0), 2)
    (0.01, 0.24)
    """

    __slots__ = ("_guard", "_labels", "_learnt", "_ones", "_values")

    def __init__(self) -> None:
        self._learnt = 0
        self._labels, self._ones, self._values = [array(_TYPE, bytes(_PART)) for _ in range(3)]
        self._guard = Guard(WEIGHT)

    def at(self, z: float) -> float:
        """Return the probability at log-odds z; 0 before there is a fit."""
        if self._learnt < FIRST:
            return 0.0
        x = (z - LOW) / WIDTH - 0.5
        i = 0 if x < 0.0 else int(x)
        if x <= i or i >= BINS - 1:
            end: float = self._values[i if i < BINS else -1]
            return end
        left: float = self._values[i]
        return left + (x - i) * (self._values[i + 1] - left)

    def bends(self) -> list[float]:
        """Return the log-odds at which the function bends."""
        values = self._values
        ends = [(max(i - 1, 0), min(i + 1, BINS - 1)) for i in range(BINS)]
        return [LOW + (i + 0.5) * WIDTH for i, (left, right) in enumerate(ends) if values[left] != values[right]]

    def mixed(self, q: float, pooled: float) -> float:
        """Return the mixture of q and ``pooled``, the answer of `at`; q alone if ``pooled`` is 0."""
        w = self._guard.weight
        return w * q + (1.0 - w) * pooled if pooled else q

    def learn(
        self, z: float, y: float, q: float, smooth: float, pooled: float, part: float, lag: float, at: int
    ) -> None:
        """Learn an outcome, 0 or 1, that counts for a part.

        ``q``: what the map would answer today.
        ``smooth``: q mixed with the raw forecast. The weight in `mixed` says how much better this is than `at`.
        ``pooled``: the answer of `at` when the forecast was issued. If it is 0, the weight stays as it is.
        ``lag``: information learnt between forecast and outcome.
        ``at``: record time of the label, as in `Guard`.
        """
        if pooled:
            delta = math.log(pooled / smooth) if y > 0.5 else math.log((1.0 - pooled) / (1.0 - smooth))
            self._guard.weigh(part * delta, part * delta * delta, at)
        fade = q * (1.0 - q) * _LN2 / max(HALFLIFE, LAGS * lag)
        i = _bin(z)
        n: float = self._labels[i]
        ones: float = self._ones[i]
        if n == 0.0:
            n, ones = PRIOR, PRIOR * q
        self._labels[i] = n + fade * (PRIOR - n) + part
        self._ones[i] = ones + fade * (PRIOR * q - ones) + part * y
        self._learnt += 1
        if self._learnt % EVERY == FIRST:
            self._fit()

    def revise(self, z: float, q: float, pooled: float, g: float) -> None:
        """Move ones of a bin by a revision. g is the old label minus the new one; ``pooled`` as in `learn`."""
        if pooled:
            self._guard.correct(corrected(g, pooled, q), 0.0)
        i = _bin(z)
        self._ones[i] = min(max(self._ones[i] - g, 0.0), self._labels[i])

    def _fit(self) -> None:
        """Pool adjacent violators. A bin without labels gets the value of the nearest bin with labels."""
        means, weights, sizes = [0.0] * BINS, [0.0] * BINS, [0] * BINS
        blocks, empty = 0, 0
        for n, ones in zip(self._labels, self._ones, strict=True):
            if n == 0.0:
                empty += 1
                continue
            mean, weight, size = ones / n, n, 1 + empty
            if blocks:
                sizes[blocks - 1] += empty // 2
                size -= empty // 2
            while blocks and means[blocks - 1] >= mean:
                blocks -= 1
                total = weight + weights[blocks]
                mean += (means[blocks] - mean) * weights[blocks] / total
                weight, size = total, size + sizes[blocks]
            means[blocks], weights[blocks], sizes[blocks] = mean, weight, size
            blocks, empty = blocks + 1, 0
        sizes[blocks - 1] += empty
        edge = max(1.0 / (self._learnt + 2.0), P_CLIP)
        values: list[float] = []
        for block in range(blocks):
            values += [min(max(means[block], edge), 1.0 - edge)] * sizes[block]
        self._values = array(_TYPE, values)

    def encode(self) -> bytes:
        bins = self._labels.tobytes() + self._ones.tobytes() + self._values.tobytes()
        return _HEAD.pack(self._learnt) + bins + self._guard.encode()

    def decode(self, payload: bytes) -> None:
        require_length(payload, SIZE)
        self._learnt = _HEAD.unpack_from(payload)[0]
        parts = [payload[at : at + _PART] for at in range(_HEAD.size, SIZE - GUARD_SIZE, _PART)]
        self._labels, self._ones, self._values = [array(_TYPE, part) for part in parts]
        self._guard.decode(payload, SIZE - GUARD_SIZE)


def _bin(z: float) -> int:
    x = (z - LOW) / WIDTH
    return 0 if x < 0.0 else int(x) if x < BINS else BINS - 1
